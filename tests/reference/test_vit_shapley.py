"""vit_shapley: an explainer trained on pictures comes near the exact values on others; training goes on where it was left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import timm.models as tm
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.registry import discover
from tiny import close

SIZE, GRID, CLASSES = (32, 16), (4, 2), 4
SHORT = {"surrogate_epochs": 1, "epochs": 2, "coalitions": 4, "batch_size": 5}


def scenes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with the pattern of the class in one of the eight patches, and a fainter pattern of any class in another."""
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.randn(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(99))
    images = 0.3 * torch.randn(count, 3, *SIZE, generator=draw)
    labels, others = torch.randint(CLASSES, (2, count), generator=draw)
    places = torch.stack([torch.randperm(8, generator=draw)[:2] for _ in range(count)])
    for image, label, other, (place, faint) in zip(images, labels, others, places.tolist(), strict=True):
        for pattern, strength, at in ((patterns[label], 1.0, place), (patterns[other], 0.5, faint)):
            row, column = divmod(at, 2)
            image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += strength * pattern
    return images, labels


@pytest.fixture(scope="module")
def subject() -> pl.Subject:
    """A small ViT that has learnt to tell the patterns apart."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tm.VisionTransformer(
            img_size=SIZE, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=CLASSES, global_pool="token"
        )
    images, labels = scenes(512, 1)
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(120):
        some = torch.randint(512, (64,), generator=torch.Generator().manual_seed(step))
        loss = nn.functional.cross_entropy(model(images[some]), labels[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    unseen, truth = scenes(64, 2)
    assert (model.eval()(unseen).argmax(1) == truth).float().mean() > 0.9
    for parameter in model.parameters():
        parameter.grad = None
    return pl.load(model)


@pytest.fixture(scope="module")
def trained(subject, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("explainer") / "small.safetensors"
    pl.train_explainer(subject, scenes(200, 3)[0], out, surrogate_epochs=0, epochs=8, batch_size=16)
    return out


def explain(subject: pl.Subject, file: Path, images: Tensor, target=None, **options) -> pl.Explanation:
    return pl.explain(subject, images, "vit_shapley", target, explainer=str(file), **options)


# -- the values -------------------------------------------------------------------------------------------------------


def test_it_comes_near_the_exact_values_on_pictures_that_it_has_not_seen(subject, trained):
    """The authors' aim: one pass in place of 2^8. Every patch alike has a relative squared error of 1."""
    images = scenes(24, 4)[0]
    found = explain(subject, trained, images)
    exact = pl.explain(subject, images, "shapley", estimator="exact", samples=256, remove="drop")
    assert torch.equal(found.target, exact.target)
    one, other = found.tokens.flatten(1), exact.tokens.flatten(1)
    even = other.mean(1, keepdim=True)
    assert float((one - other).square().sum() / (other - even).square().sum()) < 0.3
    assert float(torch.cosine_similarity(one - one.mean(1, keepdim=True), other - even).mean()) > 0.85
    assert float((one.argmax(1) == other.argmax(1)).float().mean()) > 0.85
    torch.testing.assert_close(one.sum(1), other.sum(1), rtol=0, atol=1e-5)  # efficiency


def test_training_tells_how_well_it_went_and_leaves_nothing_behind(subject, tmp_path):
    lines, steps = [], []
    out = tmp_path / "deep" / "e.safetensors"
    about = pl.train_explainer(subject, scenes(40, 3)[0], out, **SHORT, report=lines.append, progress=lambda *p: steps.append(p))
    assert 0 <= about.explained < 1
    assert (about.pictures, about.held_out, about.grid, about.classes) == (36, 4, GRID, CLASSES)
    assert about.explained >= 0  # the best epoch is kept, and before the first one every patch is worth the same
    assert [line.partition(":")[0] for line in lines] == [
        "surrogate, epoch 0", "surrogate, epoch 1", "explainer, epoch 0", "explainer, epoch 1", "explainer, epoch 2",
    ]  # fmt: skip
    assert steps == [(i, 24) for i in range(1, 25)]
    assert [p.name for p in out.parent.iterdir()] == ["e.safetensors"]


def test_one_alone_is_as_in_company_and_the_cost_is_two_passes(subject, trained):
    images, seen = scenes(3, 5)[0], []
    handle = subject.model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    whole = explain(subject, trained, images)
    handle.remove()
    assert sum(seen) / 3 == discover()["vit_shapley"].cost({}).forwards
    for i in range(3):
        close(explain(subject, trained, images[i : i + 1]).tokens, whole.tokens[i : i + 1], 1e-5)
    close(explain(subject, trained, images, batch_size=2).tokens, whole.tokens, 1e-5)


def test_a_contrast_is_the_difference_of_two_classes(subject, trained):
    both, one, other = (explain(subject, trained, scenes(3, 5)[0], t).tokens for t in ((0, 2), 0, 2))
    close(both, one - other, 1e-5)
    assert not torch.allclose(one, other)


def as_it_is(model: nn.Module) -> dict:
    tensors = {n: (id(p), p.requires_grad, p.grad, p.tolist()) for n, p in model.named_parameters()}
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in model.modules()]
    return {"tensors": tensors, "hooks": hooks, "rng": torch.get_rng_state().tolist(), "grad": torch.is_grad_enabled()}


def test_the_model_is_left_as_found_by_training_and_by_explaining(subject, trained, tmp_path):
    before = as_it_is(subject.model)
    pl.train_explainer(subject, scenes(12, 3)[0], tmp_path / "e.safetensors", **SHORT)
    with torch.inference_mode():
        explain(subject, trained, scenes(2, 5)[0])
    assert as_it_is(subject.model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_an_explainer_serves_the_model_in_another_precision(subject, trained, dtype):
    import copy

    images = scenes(8, 5)[0]
    other = pl.load(copy.deepcopy(subject.model).to(dtype))
    found, expected = explain(other, trained, images.to(dtype), 1), explain(subject, trained, images, 1)
    similar = torch.cosine_similarity(found.tokens.flatten().double(), expected.tokens.flatten().double(), dim=0)
    assert similar > 0.98


# -- training ---------------------------------------------------------------------------------------------------------


def interrupt_at(step: int):
    """Ctrl-C after a step."""

    def progress(done: int, _: int) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGINT)

    return progress


@pytest.mark.parametrize("step", [3, 13])
def test_a_training_that_was_interrupted_ends_as_if_it_had_not_been(subject, tmp_path, step):
    """In the middle of either stage: the same numbers to the bit."""
    images = scenes(40, 3)[0]
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    pl.train_explainer(subject, images, whole, **SHORT)
    with pytest.raises(KeyboardInterrupt, match="the same call goes on from there"):
        pl.train_explainer(subject, images, parts, **SHORT, progress=interrupt_at(step))
    assert not parts.exists()
    lines, steps = [], []
    pl.train_explainer(subject, images, parts, **SHORT, report=lines.append, progress=lambda *p: steps.append(p))
    assert "goes on with the " in lines[0]
    assert steps[0] == (step + 1, 24)
    assert parts.read_bytes() == whole.read_bytes()


def test_an_unfinished_training_is_not_mixed_with_another_or_begun_anew_by_accident(subject, tmp_path):
    images, out = scenes(12, 3)[0], tmp_path / "e.safetensors"
    with pytest.raises(KeyboardInterrupt, match="the training is kept in"):
        pl.train_explainer(subject, images, out, **SHORT, progress=interrupt_at(1))
    with pytest.raises(pl.PatchlightError, match=r"is an unfinished training with other settings \(epochs, rate\)"):
        pl.train_explainer(subject, images, out, **{**SHORT, "epochs": 3}, rate=0.01)
    with pytest.raises(pl.PatchlightError, match=r"with other settings \(pictures\)"):
        pl.train_explainer(subject, scenes(13, 3)[0], out, **SHORT)
    pl.train_explainer(subject, images, out, **{**SHORT, "epochs": 1}, restart=True)
    assert [p.name for p in tmp_path.iterdir()] == ["e.safetensors"]
    (tmp_path / "e.safetensors.unfinished").write_bytes(b"no such thing")
    with pytest.raises(pl.PatchlightError, match="is no unfinished training"):
        pl.train_explainer(subject, images, out, **SHORT)


@pytest.mark.parametrize("network", ["swin", "vit_mean", "torchvision_vit"])
def test_other_networks_by_painting(network, tmp_path):
    held, images = tiny.subject(network), tiny.pictures(network, 10)
    about = pl.train_explainer(held, images, tmp_path / "e.safetensors", **SHORT, remove="paint", tune=False)
    found = explain(held, tmp_path / "e.safetensors", images[:2], 3)
    assert found.tokens.shape == (2, *tiny.KINDS[network].grid)
    assert found.tokens.dtype == torch.float64
    assert about.remove == "paint"
    with torch.no_grad():
        gap = (held.forward(images[:2]).softmax(-1) - held.forward(torch.zeros_like(images[:2])).softmax(-1))[:, 3]
    if not about.recipe["surrogate_epochs"]:
        torch.testing.assert_close(found.tokens.sum((1, 2)), gap)


def test_without_a_surrogate_of_its_own_the_values_add_up_to_the_models_own(tmp_path):
    held, images = tiny.subject("swin"), tiny.pictures("swin", 10)
    pl.train_explainer(held, images, tmp_path / "e.safetensors", **{**SHORT, "surrogate_epochs": 0}, remove="paint")
    with torch.no_grad():
        whole, nothing = (held.forward(x).softmax(-1)[:, 3] for x in (images[:2], torch.zeros_like(images[:2])))
    found = explain(held, tmp_path / "e.safetensors", images[:2], 3)
    torch.testing.assert_close(found.tokens.sum((1, 2)), whole - nothing, rtol=0, atol=1e-12)


def test_blocks_of_patches_learn_together(subject, tmp_path):
    """Two by two blocks: near the exact values of the same players."""
    out, images = tmp_path / "e.safetensors", scenes(24, 4)[0]
    pl.train_explainer(subject, scenes(120, 3)[0], out, surrogate_epochs=0, epochs=6, batch_size=12, grid=(2, 2), tune=False)
    found = explain(subject, out, images).tokens
    exact = pl.explain(subject, images, "shapley", estimator="exact", samples=16, remove="drop", grid=(2, 2)).tokens
    assert found.shape == (24, 2, 2)
    even = exact.mean((1, 2), keepdim=True)
    assert float((found - exact).square().sum() / (exact - even).square().sum()) < 0.5


# -- errors -----------------------------------------------------------------------------------------------------------

WRONG = [
    ({"coalitions": 3}, "coalitions come in pairs, but 3 is odd"),
    ({"epochs": 0}, "train_explainer: epochs cannot be below 1, but 0 came"),
    ({"grid": (5, 2)}, r"grid takes \(rows, columns\) from 2 blocks up to 4 x 2 patches, but \(5, 2\) came"),
    ({"grid": (1, 1)}, "from 2 blocks up to 4 x 2 patches"),
    ({"rate": 0.0}, "rate takes a number between 0 and 1, but 0.0 came"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_wrong_recipes_say_what_would_do(subject, tmp_path, options, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.train_explainer(subject, scenes(12, 3)[0], tmp_path / "e.safetensors", **{**SHORT, **options})


def test_what_cannot_be_trained_says_so(subject, tmp_path):
    out = tmp_path / "e.safetensors"
    with pytest.raises(pl.PatchlightError, match="takes 8 pictures or more, but 7 came"):
        pl.train_explainer(subject, scenes(7, 3)[0], out)
    with pytest.raises(pl.PatchlightError, match=r"training leaves patches out of plain ViTs only: .* Use remove='paint'"):
        pl.train_explainer(tiny.subject("swin"), tiny.pictures("swin", 8), out)
    with pytest.raises(pl.PatchlightError, match=r"vit_shapley cannot be trained for .*Use shapley, which needs no training"):
        pl.train_explainer(tiny.subject("cnn"), tiny.pictures("cnn", 8), out)
    with pytest.raises(pl.PatchlightError, match=r"train_explainer takes a model in float32, but torch.bfloat16 came"):
        pl.train_explainer(tiny.fresh("vit").bfloat16(), tiny.pictures("vit", 8).bfloat16(), out)


def test_an_explainer_is_for_one_model_only(subject, trained, tmp_path):
    images = scenes(2, 5)[0]
    with pytest.raises(pl.PatchlightError, match=r"vit_shapley cannot explain .*: it needs explainer=, see `patchlight methods"):
        pl.explain(subject, images, "vit_shapley")
    with pytest.raises(
        pl.PatchlightError, match=r"there is no explainer .*none.safetensors. Train one: patchlight train-explainer"
    ):
        explain(subject, tmp_path / "none.safetensors", images)
    (tmp_path / "foreign").write_bytes(b"\x00" * 100)
    with pytest.raises(pl.PatchlightError, match="is no explainer of patchlight"):
        explain(subject, tmp_path / "foreign", images)
    other = tm.VisionTransformer(img_size=SIZE, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=CLASSES).eval()
    with pytest.raises(pl.PatchlightError, match="and this model has other weights"):
        explain(pl.load(other), trained, images)
    with pytest.raises(
        pl.PatchlightError, match=r"this explainer belongs to 32 x 16 pixels and 4 x 2 patches, but the model has 32 x 32"
    ):
        explain(tiny.subject("vit"), trained, tiny.pictures("vit", 2))
    with pytest.raises(pl.PatchlightError, match="cannot explain a function of the logits"):
        explain(subject, trained, images, lambda logits: logits[:, 0])
