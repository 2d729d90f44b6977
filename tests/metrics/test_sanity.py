"""The sanity metrics: exact values on models made by hand, the models left as found, and a model trained here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.metrics.sanity import _alike as alike
from patchlight.metrics.sanity import _randomise as r
from sources import SRC

RANDOMISED = ("cascading_randomisation", "independent_randomisation")
ANEW = (*RANDOMISED, "class_sensitivity", "max_sensitivity", "seed_agreement")
QUICK = {"cascading_randomisation": {"seeds": 2}, "independent_randomisation": {"seeds": 2}, "max_sensitivity": {"samples": 3}}


def score(metric: str, method: str, *, name: str = "vit", images: Tensor | None = None, **settings) -> pl.Score:
    images = tiny.pictures(name) if images is None else images
    found = tiny.explain(name, method, images)
    return pl.evaluate(tiny.subject(name), images, found, metric=metric, **{**QUICK.get(metric, {}), **settings})


# -- randomisation ----------------------------------------------------------------------------------------------------


def test_a_cascade_is_what_it_says():
    """By hand: the state of the network overwritten from the head down, the map made for the class explained first."""
    name, images = "vit", tiny.pictures("vit")
    model = tiny.fresh(name)
    subject = pl.load(model)
    first = pl.explain(subject, images, "transformer_mm")
    parts = list(r.parts(model, subject.layout()).values())
    expected = []
    for seed in range(2):
        new = r.fresh(model, seed)[0]
        changed = tiny.fresh(name)
        steps = []
        for names in parts:
            changed.load_state_dict({n: new[n] for n in names}, strict=False)
            maps = pl.explain(changed, images, "transformer_mm", target=first.target).pixels
            steps.append(alike.spearman(first.pixels, maps))
        expected.append(torch.stack(steps, 1))
    found = pl.evaluate(subject, images, first, metric="cascading_randomisation", seeds=2)
    assert torch.allclose(found.curve, torch.stack(expected).mean(0), atol=1e-12)
    assert torch.allclose(found.values, found.curve.mean(1))
    assert found.at.tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert set(found.parts) == {"spearman", "absolute", "ssim"}


def test_independent_parts_are_new_one_at_a_time():
    name, images = "vit", tiny.pictures("vit")
    first = tiny.explain(name, "saliency", images)
    found = score("independent_randomisation", "saliency", seeds=1, measure="ssim")
    model = tiny.fresh(name)
    for step, names in enumerate(r.parts(model, tiny.subject(name).layout()).values()):
        changed = tiny.fresh(name)
        new = r.fresh(model, 0)[0]
        changed.load_state_dict({n: new[n] for n in names}, strict=False)
        maps = pl.explain(changed, images, "saliency", target=first.target).pixels
        assert torch.allclose(found.curve[:, step], alike.ssim(first.pixels, maps), atol=1e-12)


@pytest.mark.parametrize("method", ["rollout", "raw_attention"])
def test_a_class_blind_map_does_not_change_with_the_head_and_that_is_said(method):
    found = score("cascading_randomisation", method)
    assert found.curve[:, 0].tolist() == pytest.approx([1, 1, 1])
    assert (found.curve[:, -1] < 0.9).all()
    assert "3 of 3 maps did not change when only the head was new" in " ".join(found.notes)


def test_a_map_of_the_class_changes_with_the_head():
    found = score("cascading_randomisation", "transformer_mm")
    assert (found.curve[:, 0] < 0.999).all()
    assert "did not change" not in " ".join(found.notes)
    assert found.notes[0] == "parts from the head down: head, blocks.2, blocks.1, blocks.0, embedding"


def test_maps_that_do_not_read_the_model_never_change():
    assert score("cascading_randomisation", "random").values.tolist() == pytest.approx([1, 1, 1])
    assert score("independent_randomisation", "centre").curve.flatten().tolist() == pytest.approx([1] * 15)


@pytest.mark.parametrize("name", ["vit_registers", "cait", "swin", "hf_vit", "hf_swin", "torchvision_vit", "cnn"])
def test_models_of_every_library_are_randomised(name):
    found = score("cascading_randomisation", "saliency", name=name, seeds=1)
    assert found.values.isfinite().all()
    assert (found.values < 0.95).all()


@pytest.mark.parametrize("metric", ANEW)
@pytest.mark.parametrize("name", ["vit", "hf_vit", "torchvision_swin"])
def test_the_model_is_left_as_found(metric, name):
    model = tiny.fresh(name).train()
    for p in list(model.parameters())[::2]:
        p.requires_grad_(requires_grad=False)
    before = {n: (id(t), t.detach().clone(), t.requires_grad) for n, t in model.state_dict(keep_vars=True).items()}
    marks = {n: (m.training, dict(vars(m)).keys()) for n, m in model.named_modules()}
    images, state = tiny.pictures(name), torch.get_rng_state()
    first = pl.explain(model, images, "saliency")
    pl.evaluate(model, images, first, metric=metric, **QUICK.get(metric, {}))
    assert torch.equal(state, torch.get_rng_state())
    for n, t in model.state_dict(keep_vars=True).items():
        assert (id(t), t.requires_grad) == (before[n][0], before[n][2])
        assert torch.equal(t, before[n][1])
    assert {n: (m.training, dict(vars(m)).keys()) for n, m in model.named_modules()} == marks
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("metric", ANEW)
def test_a_batch_gives_each_picture_what_it_gets_alone(metric):
    images = tiny.pictures("vit")
    together = score(metric, "transformer_mm", images=images)
    alone = [score(metric, "transformer_mm", images=images[i : i + 1]).values for i in range(3)]
    assert torch.allclose(together.values, torch.cat(alone), atol=1e-9)


@pytest.mark.parametrize("metric", ["cascading_randomisation", "class_sensitivity", "seed_agreement"])
def test_a_constant_map_has_no_number(metric):
    images = tiny.pictures("vit")
    first = tiny.explain("vit", "saliency", images)
    assert first.pixel_scores is not None
    first.pixel_scores[1] = 3.0
    found = pl.evaluate(tiny.subject("vit"), images, first, metric=metric, **QUICK.get(metric, {}))
    assert found.values.isnan().tolist() == [False, True, False]
    assert "comparisons do not count: the first map is constant" in " ".join(found.notes)


@pytest.mark.parametrize("metric", ["cascading_randomisation", "max_sensitivity"])
def test_the_seed_decides(metric):
    images = tiny.pictures("vit")
    first = tiny.explain("vit", "saliency", images)
    runs = [pl.evaluate(tiny.subject("vit"), images, first, metric=metric, seed=s, **QUICK[metric]).values for s in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_a_trained_model_loses_its_map_on_the_way_down():
    """The embedded model and a shipped photo: 14 parts, and nothing is left at the end."""
    subject, photo = pl.load("pets-vit"), SRC / "assets" / "photos" / "dog.jpg"
    first = pl.explain(subject, photo, "transformer_mm")
    found = pl.evaluate(subject, photo, first, metric="cascading_randomisation", seeds=1)
    assert found.curve is not None
    assert found.curve.shape == (1, 14)
    assert found.curve[0, 0] < 0.999
    assert found.curve[0, -1] < 0.5
    assert torch.equal(pl.explain(subject, photo, "transformer_mm").pixels, first.pixels)


# -- another model ----------------------------------------------------------------------------------------------------


def trained(labels: Tensor, images: Tensor) -> nn.Module:
    """A tiny network that knows these labels by heart, whatever they are."""
    torch.manual_seed(0)
    model = tiny.vit(num_classes=3)
    steps = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        logits = model(images)
        if (logits.argmax(1) == labels).all():
            break
        loss = nn.functional.cross_entropy(logits, labels)
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert (model(images).argmax(1) == labels).all()
    return model.eval()


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The same network trained on the true labels of drawn scenes, and on shuffled ones."""
    from patchlight import data

    scenes = data.open("scenes", count=48, size=32, classes=3, mark=1.0, cause="mark", texture="plain", distractors=1)
    preprocess = pl.Preprocess(size=(32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    images = torch.stack([preprocess(item.picture) for item in scenes])
    labels = torch.tensor([e.label for e in scenes.entries])
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    path = tmp_path_factory.mktemp("twins") / "shuffled.pt"
    torch.save(trained(shuffled, images).state_dict(), path)
    return pl.load(trained(labels, images)), images[:12], path


def test_training_on_shuffled_labels_changes_what_a_map_of_the_model_shows(twins):
    subject, images, path = twins
    values = {}
    for method in ("transformer_mm", "input_x_gradient", "centre"):
        first = pl.explain(subject, images, method)
        values[method] = pl.evaluate(subject, images, first, metric="data_randomisation", weights=str(path))
    assert values["centre"].mean == pytest.approx(1)
    assert values["input_x_gradient"].mean < 0.4
    assert values["transformer_mm"].mean < 0.7
    again = pl.explain(subject, images, "transformer_mm")
    assert torch.equal(again.pixels, pl.explain(subject, images, "transformer_mm").pixels)


def test_the_models_own_weights_change_nothing(twins, tmp_path):
    from safetensors.torch import save_file

    subject, images, _ = twins
    save_file(subject.model.state_dict(), tmp_path / "same.safetensors")
    first = pl.explain(subject, images, "transformer_mm")
    found = pl.evaluate(subject, images, first, metric="data_randomisation", weights=str(tmp_path / "same.safetensors"))
    assert found.values.tolist() == pytest.approx([1] * 12)


def test_a_family_on_the_command_line_leaves_out_what_needs_a_file():
    from patchlight.cli._scores import chosen

    family = {m.name for m in pl.metrics().values() if m.family == "sanity"}
    assert set(chosen(["sanity"])) == family - {"data_randomisation"}
    assert chosen(["data_randomisation"]) == ["data_randomisation"]


def test_other_weights_must_be_there_and_fit(twins, tmp_path):
    subject, images, _ = twins
    first = pl.explain(subject, images, "saliency")

    def compare(weights):
        return pl.evaluate(subject, images, first, metric="data_randomisation", weights=weights)

    with pytest.raises(pl.PatchlightError, match="trained on random labels, but no weights= came"):
        compare(None)
    with pytest.raises(pl.PatchlightError, match="cannot be read as the weights of the other network"):
        compare(str(tmp_path / "nowhere.pt"))
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
    with pytest.raises(pl.PatchlightError, match=r"is not the state of this network: .* tensors differ in name or shape"):
        compare(str(tmp_path / "other.pt"))


# -- another class ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["last", "first"])
def test_class_sensitivity_compares_with_the_class_that_it_says(other):
    images = tiny.pictures("vit")
    first = tiny.explain("vit", "saliency", images)
    order = first.logits.argsort(1, descending=True)
    second = tiny.explain("vit", "saliency", images, target=order[:, -1 if other == "last" else 1])
    expected = alike.spearman(first.pixels, second.pixels)
    assert torch.allclose(score("class_sensitivity", "saliency", other=other).values, expected, atol=1e-12)


def test_a_random_class_is_another_one_and_comes_from_the_pictures_seed():
    one, other = (score("class_sensitivity", "saliency", other="random").values for _ in range(2))
    assert torch.equal(one, other)
    assert (one < 0.999).all()


def test_class_blind_maps_are_named():
    found = score("class_sensitivity", "rollout")
    assert found.values.tolist() == pytest.approx([1, 1, 1])
    assert found.notes == ("3 of 3 maps are the same for both classes: class-blind",)


class Linear(nn.Module):
    """y_k = sum of w_k x: every map is known."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows)

    def forward(self, images: Tensor) -> Tensor:
        return torch.einsum("bchw,kchw->bk", images, self.weight)


def linear(classes: int = 2) -> pl.Subject:
    rows = torch.randn(classes, 3, 16, 16, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return pl.load(Linear(rows), preprocess=pl.Preprocess(size=(16, 16)))


def test_one_output_has_no_other_class():
    subject, images = linear(1), torch.randn(1, 3, 16, 16, dtype=torch.float64)
    first = pl.explain(subject, images, "saliency")
    with pytest.raises(pl.PatchlightError, match="compares two classes, but the model has one output"):
        pl.evaluate(subject, images, first, metric="class_sensitivity")


@pytest.mark.parametrize("metric", ["class_sensitivity", "max_sensitivity", "cascading_randomisation"])
def test_a_function_of_the_logits_has_no_class_to_keep(metric):
    images = tiny.pictures("vit")
    first = tiny.explain("vit", "saliency", images, target=lambda logits: logits[:, 0] - logits[:, 1])
    with pytest.raises(pl.PatchlightError, match="but these are for a function of the logits"):
        pl.evaluate(tiny.subject("vit"), images, first, metric=metric)


def test_a_contrast_is_no_single_class():
    images = tiny.pictures("vit")
    first = tiny.explain("vit", "saliency", images, target=(0, 1))
    with pytest.raises(pl.PatchlightError, match="but these are for one class rather than another"):
        pl.evaluate(tiny.subject("vit"), images, first, metric="max_sensitivity")


# -- small changes ----------------------------------------------------------------------------------------------------


def test_max_sensitivity_of_a_linear_model_is_known():
    """Saliency is the weights, wherever the picture is: 0. Input times gradient moves by w e."""
    subject = linear()
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    settings = {"metric": "max_sensitivity", "samples": 4, "radius": 0.1}
    assert pl.evaluate(subject, images, pl.explain(subject, images, "saliency"), **settings).values.tolist() == [0, 0]
    first = pl.explain(subject, images, "input_x_gradient")
    found = pl.evaluate(subject, images, first, **settings)
    weight = subject.model.weight.detach()
    for i in range(2):
        from patchlight.core.seeds import generator

        draw = generator(images[i], 0)
        moves = [0.1 * (2 * torch.rand(3, 16, 16, generator=draw, dtype=torch.float64) - 1) for _ in range(4)]
        rows = weight[first.target[i]]
        shares = [((rows * e).sum(0).norm() / (rows * images[i]).sum(0).norm()).item() for e in moves]
        assert found.values[i].item() == pytest.approx(max(shares), rel=1e-9)
        assert found.curve[i].tolist() == pytest.approx([max(shares[: k + 1]) for k in range(4)], rel=1e-9)


def test_the_radius_and_the_counts_are_checked():
    with pytest.raises(pl.PatchlightError, match=r"max_sensitivity: radius takes a number above 0, but 0.0 came"):
        score("max_sensitivity", "saliency", radius=0)
    with pytest.raises(pl.PatchlightError, match="max_sensitivity: at least one of samples is needed, but 0 came"):
        score("max_sensitivity", "saliency", samples=0)
    with pytest.raises(pl.PatchlightError, match="cascading_randomisation: at least one of seeds is needed, but 0 came"):
        score("cascading_randomisation", "saliency", seeds=0)


def test_seeds_agree_where_nothing_is_drawn_and_more_samples_agree_more():
    assert score("seed_agreement", "transformer_mm").values.tolist() == pytest.approx([1, 1, 1])
    images = tiny.pictures("vit")
    means = []
    for samples in (2, 32):
        first = tiny.explain("vit", "smooth_grad", images, samples=samples)
        means.append(pl.evaluate(tiny.subject("vit"), images, first, metric="seed_agreement", seeds=2).mean)
    assert means[0] < means[1] < 1


def test_bare_scores_have_no_method():
    images = tiny.pictures("vit")
    for metric in ANEW:
        with pytest.raises(pl.PatchlightError, match="makes maps anew, so it needs what `explain` returned"):
            pl.evaluate(tiny.subject("vit"), images, torch.rand(3, 32, 32), metric=metric)
