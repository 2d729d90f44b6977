"""`evaluate`: one run of forward passes for all metrics, broken and constant maps, needs, intervals."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import patchlight as pl
import tiny
from patchlight.core.metric import Case, Edit
from patchlight.core.score import added, together
from patchlight.core.scoring import Scorer
from patchlight.metrics._pictures import Pictures

FAITHFULNESS = [m.name for m in pl.metrics().values() if m.family == "faithfulness"]
QUICK = {"sensitivity_n": {"sets": 3, "at": (0.5,)}, "road": {"at": (0.3,)}}


def maps(count=3, seed=0):
    return torch.rand(count, 32, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def counted(monkeypatch):
    """How many pictures were scored."""
    seen = []

    def call(self, images):
        seen.append(len(images))
        with torch.no_grad():
            return self.function(images)

    monkeypatch.setattr(Scorer, "__call__", call)
    return seen


def test_metrics_that_ask_for_the_same_pictures_share_them(counted):
    subject, images = tiny.subject("vit"), tiny.pictures(count=2)
    pl.evaluate(subject, images, maps(2), "deletion", steps=28)
    assert sum(counted) == 2 * 29
    counted.clear()
    both = {"deletion": {}, "insertion": {"canvas": "mean"}, "again": {"metric": "deletion"}}
    found = pl.evaluate_many(subject, images, maps(2), both)
    assert sum(counted) == 2 * (29 + 27)  # the whole and the empty picture are the same
    assert found["again"].values.tolist() == found["deletion"].values.tolist()
    counted.clear()
    several = ["positive_perturbation", "aopc", "lodds", "negative_perturbation"]
    pl.evaluate_many(subject, images, maps(2), several, labels=[1, 2])
    assert sum(counted) == 2 * (21 + 19)
    counted.clear()
    pl.evaluate(subject, images, maps(2), "pointing_game", boxes=[[[0, 0, 9, 9]]] * 2)
    assert not counted


@pytest.mark.parametrize("metric", FAITHFULNESS)
def test_alone_or_together_in_any_batch_a_picture_has_the_same_number(metric):
    subject, images = tiny.subject("vit"), tiny.pictures(count=3)
    labels = {"labels": [0, 1, 2]} if "perturbation" in metric else {}
    settings = QUICK.get(metric, {})
    whole = pl.evaluate(subject, images, maps(), metric, **labels, **settings)
    among = pl.evaluate_many(subject, images, maps(), {"deletion": {}, metric: settings}, **labels, batch_size=5)[metric]
    torch.testing.assert_close(among.values, whole.values, rtol=1e-9, atol=1e-12)
    one = pl.evaluate(subject, images[2:], maps()[2:], metric, **({"labels": [2]} if labels else {}), **settings, batch_size=1)
    torch.testing.assert_close(one.values, whole.values[2:], rtol=1e-9, atol=1e-12)
    assert one.values.dtype == torch.float64


def test_a_broken_map_has_no_value_and_is_named(caplog):
    broken = maps()
    broken[1, 4, 4] = torch.nan
    with caplog.at_level(logging.WARNING):
        found = pl.evaluate_many(
            tiny.subject("vit"), tiny.pictures(), broken, ["deletion", "mean_iou"], masks=torch.ones(3, 32, 32).int()
        )
    assert "picture 1: the map holds NaN or infinity: no value" in caplog.text
    sound = [0, 2]
    whole = pl.evaluate(tiny.subject("vit"), tiny.pictures()[sound], broken[sound], "deletion")
    for score in found.values():
        assert score.values.isnan().tolist() == [False, True, False]
        assert score.n == 2
        assert "picture 1: the map holds NaN or infinity: no value" in score.notes
    assert found["deletion"].mean == pytest.approx(whole.mean, rel=1e-9)
    assert found["deletion"].curve[1].isnan().all()
    none = pl.evaluate(tiny.subject("vit"), tiny.pictures(count=1), torch.full((1, 32, 32), torch.inf), "deletion")
    assert (none.n, none.mean, none.curve) == (0, pytest.approx(torch.nan, nan_ok=True), None)


def test_a_constant_map_is_ranked_by_index_and_named():
    flat = torch.full((1, 32, 32), 0.3, dtype=torch.float64)
    images = tiny.pictures(count=1)
    index = -torch.arange(1024, dtype=torch.float64).view(1, 32, 32)
    found = pl.evaluate(tiny.subject("vit"), images, flat, "deletion")
    assert found.values.tolist() == pl.evaluate(tiny.subject("vit"), images, index, "deletion").values.tolist()
    assert "picture 0: the map is constant: ranked by index, flat everywhere else" in found.notes
    for metric in ("saco", "sensitivity_n"):
        assert pl.evaluate(tiny.subject("vit"), images, flat, metric, **QUICK.get(metric, {})).values.tolist() == [0.0]
    mask = torch.zeros(1, 32, 32, dtype=torch.int8)
    mask[0, :8] = 1
    expected = {"f1": 0.0, "jaccard": 0.0, "pixel_accuracy": 0.75, "energy": 0.0, "foreground_ap": 0.25, "pointing_game": 1.0}
    found = pl.evaluate_many(tiny.subject("vit"), images, flat, list(expected), masks=mask)
    assert {name: score.mean for name, score in found.items()} == pytest.approx(expected)


def test_ties_go_to_the_lowest_index_in_both_directions():
    scores = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]])
    case = Case(torch.zeros(1, 3, 2, 2), scores, torch.tensor([-1]))
    assert case.order("high").flatten().tolist() == [2, 0, 1, 3]
    assert case.order("low").flatten().tolist() == [0, 2, 3, 1]


def test_changed_pictures_of_every_order_are_what_their_edits_say():
    images, scores = tiny.pictures(count=2), maps(2)
    case = Case(images, scores, torch.tensor([-1, -1]))
    case.add_order("cells", torch.tensor([[[0, 1], [2, 3]], [[3, 2], [1, 0]]]))
    edits = [
        Edit(),
        Edit("high", 0, 9),
        Edit("high", 3, 9, "blur"),
        Edit("cells", 1, 3),
        Edit("low", 0, 1024),
        Edit("high", 5, 5),
    ]
    made = []

    def keep(batch):
        made.append(batch.clone())
        return batch.flatten(1)

    pictures = Pictures(case, Scorer(keep, images.device, images.dtype, fixed=3), (-1.0, -2.0, -3.0))
    pictures.learn(edits)
    found = pictures.answer(edits).view(2, len(edits), 3, 32, 32)
    assert sum(map(len, made)) == 2 * 5
    for k in range(2):
        rank = case.order("high")[k]
        cells = case.orders["cells"][k].repeat_interleave(16, 0).repeat_interleave(16, 1)
        blur = pictures.canvas("blur")[k]
        assert (found[k, 0] == images[k]).all()
        assert (found[k, 1] == torch.where(rank < 9, 0, images[k])).all()
        assert (found[k, 2] == torch.where((rank >= 3) & (rank < 9), blur, images[k])).all()
        assert (found[k, 3] == torch.where((cells >= 1) & (cells < 3), 0, images[k])).all()
        assert (found[k, 4] == 0).all()
        assert (found[k, 5] == images[k]).all()


def test_evaluating_leaves_the_model_as_found():
    model = tiny.fresh("vit").train()
    before = {n: p.clone() for n, p in model.state_dict().items()}
    state = torch.get_rng_state()
    pl.evaluate_many(model, tiny.pictures(), maps(), ["deletion", "saco"])
    assert model.training
    assert all(torch.equal(p, before[n]) for n, p in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_bare_scores_an_explanation_and_a_grid_agree():
    subject, images = tiny.subject("vit"), tiny.pictures()
    e = pl.explain(subject, images, "transformer_mm")
    found = [pl.evaluate(subject, images, m, "deletion").values.tolist() for m in (e, e.pixels, e.tokens)]
    assert found[0] == found[1] == found[2]


def test_progress_goes_from_nothing_to_all():
    seen = []
    pl.evaluate(tiny.subject("vit"), tiny.pictures(count=18), maps(18), "deletion", steps=1, progress=lambda *a: seen.append(a))
    assert seen == [(16, 18), (18, 18)]


# -- scores ------------------------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_the_bootstrap():
    found = pl.evaluate(tiny.subject("vit"), tiny.pictures(count=12), maps(12), "deletion", steps=4)
    draw = np.random.default_rng(1)
    values = found.values.numpy()
    means = [draw.choice(values, len(values)).mean() for _ in range(20_000)]
    assert found.interval == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.1 * values.std())
    assert found.interval[0] < found.mean < found.interval[1]
    assert "n = 12, lower is better" in repr(found)
    one = pl.evaluate(tiny.subject("vit"), tiny.pictures(count=1), maps(1), "deletion", steps=4)
    assert np.isnan(one.interval).all()
    assert one.record()["interval"] == [None, None]


def test_a_pooled_number_has_its_own_interval():
    masks = (maps(12, seed=3) > 0.5).int()
    found = pl.evaluate(tiny.subject("vit"), tiny.pictures(count=12), maps(12), "mean_iou", masks=masks)
    assert found.interval[0] < found.mean < found.interval[1]
    counts = {n: p.sum(0, keepdim=True) for n, p in found.parts.items()}
    inner, wrong = torch.stack([counts["tp"], counts["tn"]]), counts["fp"] + counts["fn"]
    assert found.mean == pytest.approx(float((inner / (inner + wrong)).mean()), rel=1e-12)


def test_batches_put_together_are_the_whole():
    subject, images, masks = tiny.subject("vit"), tiny.pictures(count=4), (maps(4, seed=3) > 0.5).int()
    rows = maps(4)
    rows[2] = torch.nan
    for metric in ("deletion", "mean_iou"):
        whole = pl.evaluate(subject, images, rows, metric, masks=masks)
        parts = [pl.evaluate(subject, images[k : k + 1], rows[k : k + 1], metric, masks=masks[k : k + 1]) for k in range(4)]
        joined = together(parts)
        torch.testing.assert_close(joined.values, whole.values, equal_nan=True)
        assert joined.mean == pytest.approx(whole.mean, rel=1e-9)
        assert len(joined) == 4
    assert replace(joined, notes=()).record()["n"] == 3


# -- what is wrong is said ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "deletoin"}, "There is no metric 'deletoin'. Did you mean 'deletion'?"),
        ({"metric": "deletion", "stesp": 3}, "deletion has no setting 'stesp'. Did you mean 'steps'?"),
        (
            {"metric": "positive_perturbation"},
            "positive_perturbation needs labels, but none came. Give labels, or Items with them, or --data",
        ),
        ({"metric": "max_box_acc", "masks": torch.ones(3, 32, 32).int()}, "max_box_acc needs boxes, but none came"),
        ({"metric": "class_sensitivity"}, "makes maps anew, so it needs what `explain` returned"),
        ({"e": maps(2)}, "3 pictures need 3 maps, but 2 came"),
        ({"e": maps()[:, None]}, r"maps are \(B, H, W\), but \(3, 1, 32, 32\) came"),
        ({"e": torch.rand(3, 64, 64)}, r"larger than the model's input \(32, 32\), and not of the size of its picture"),
        ({"labels": [1]}, "labels: 3 pictures need 3 entries, but 1 came"),
        ({"labels": [1, 2, {}]}, "labels: expected class numbers or names, but {} came"),
        ({"labels": [1, 2, -1]}, "labels: -1 came, but classes are whole numbers from 0. Give None"),
        ({"labels": [1, 2, 1.5]}, "labels: 1.5 came, but classes are whole numbers from 0"),
        (
            {"labels": [1, 2, 7], "metric": "positive_perturbation"},
            "labels: 7 came, but the model counts its classes from 0 to 6. Give labels in the model's own numbers",
        ),
        ({"labels": [1, 2, 7], "of": "label"}, "labels: 7 came, but the model counts"),
        ({"e": maps().to(torch.complex64)}, r"maps are numbers \(B, H, W\), but a Tensor came \(complex numbers\)"),
        ({"e": [maps()[0], "map", maps()[2]]}, r"maps are numbers \(B, H, W\), but a list came"),
        ({"e": []}, r"maps are numbers \(B, H, W\), but a list came \(it is empty\)"),
        ({"e": [torch.rand(4, 4), torch.rand(5, 5), torch.rand(4, 4)]}, r"the maps have different sizes \(\(4, 4\), \(5, 5\)\)"),
        ({"metric": "area", "masks": torch.ones(3, 16, 16).int()}, r"the mask of picture 0 is \(16, 16\), but the picture is"),
        ({"metric": "area", "masks": torch.rand(3, 32, 32)}, "of whole numbers or truth values, but torch.float32"),
        ({"metric": "area", "boxes": [[[5, 5, 5, 9]]] * 3}, r"the box \[5.0, 5.0, 5.0, 9.0\] is empty: expected x0 < x1"),
        ({"metric": "area", "boxes": [[[5, 5, 9]]] * 3}, r"boxes of a picture are \[\[x0, y0, x1, y1\]"),
    ],
)
def test_a_wrong_call_is_told_what_to_do(given, message):
    given = {"e": maps(), "metric": "deletion", **given}
    with pytest.raises(pl.PatchlightError, match=message):
        pl.evaluate(tiny.subject("vit"), tiny.pictures(), given.pop("e"), **given)


def test_maps_and_what_belongs_to_a_picture_come_in_every_usual_form():
    subject, images, rows = tiny.subject("vit"), tiny.pictures(), maps()
    whole = pl.evaluate(subject, images, rows, "deletion", steps=np.int64(4))
    for e in (list(rows), [m.numpy() for m in rows], rows.numpy(), rows.tolist()):
        assert pl.evaluate(subject, images, e, "deletion", steps=4).values.tolist() == pytest.approx(
            whole.values.tolist(), abs=1e-6
        )
    assert pl.evaluate(subject, images[0], rows[0], "deletion", steps=4).values.tolist() == pytest.approx(
        whole.values[:1].tolist()
    )
    truth = (maps(seed=3) > 0.5).int()
    wanted = pl.evaluate(subject, images, rows, "jaccard", masks=truth, threshold=np.float32(0.5)).values.tolist()
    for masks in (
        truth.double(),
        truth.bool(),
        list(truth.numpy()),
        [Image.fromarray(t.numpy().astype(np.uint8)) for t in truth],
    ):
        assert pl.evaluate(subject, images, rows, "jaccard", masks=masks).values.tolist() == wanted
    for masks in (truth[0], truth[0].numpy(), Image.fromarray(truth[0].numpy().astype(np.uint8)), lambda: truth[0].numpy()):
        assert pl.evaluate(subject, images[:1], rows[:1], "jaccard", masks=masks).values.tolist() == wanted[:1]
    for boxes in (
        [0, 0, 16, 32],
        [[0, 0, 16, 32]],
        [[[0, 0, 16, 32]]],
        [[0, 0, 8, 32], [8, 0, 16, 32]],
        np.array([0, 0, 16, 32]),
    ):
        assert pl.evaluate(subject, images[:1], rows[:1], "area", boxes=boxes).mean == 0.5
    for labels in (torch.tensor(3), np.int64(3), 3, [3.0] * 3, torch.full((3,), 3)):
        score = pl.evaluate(subject, images, rows, "positive_perturbation", labels=labels)
        assert (
            score.values.tolist() == pl.evaluate(subject, images, rows, "positive_perturbation", labels=[3, 3, 3]).values.tolist()
        )


def test_what_is_not_known_of_one_picture_costs_only_that_picture():
    subject, images, rows = tiny.subject("vit"), tiny.pictures(), maps()
    truth = (maps(seed=3) > 0.5).int()
    calls = {
        "positive_perturbation": {"labels": [1, None, 2]},
        "mean_iou": {"masks": [truth[0], None, truth[2]]},
        "pixel_accuracy": {"masks": [truth[0], None, truth[2]]},
        "two_sided_map": {"masks": [truth[0], None, truth[2]]},
        "energy": {"boxes": [[[0, 0, 9, 9]], None, [[4, 4, 9, 9]]]},
        "max_box_acc": {"boxes": [[[0, 0, 9, 9]], (), [[4, 4, 9, 9]]]},
    }
    for metric, given in calls.items():
        score = pl.evaluate(subject, images, rows, metric, **given)
        kind = next(iter(given))
        others = {kind: [given[kind][0], given[kind][2]]}
        alone = pl.evaluate(subject, images[[0, 2]], rows[[0, 2]], metric, **others)
        assert score.values.isnan().tolist() == [False, True, False]
        assert score.mean == pytest.approx(alone.mean, rel=1e-9)
        assert any(n.startswith("1 pictures without") for n in score.notes), metric
    score = pl.evaluate(subject, images, rows, "deletion", steps=2, of="label", labels=[1, None, 2])
    assert score.curve.isnan().any(1).tolist() == [False, True, False]
    assert pl.evaluate(subject, images, rows, "deletion", steps=2, labels=[1, None, 7]).n == 3  # reads no labels


def test_counts_of_several_batches_are_added_up():
    notes = ["2 maps explain another", "3 maps explain another", "1 of 16 maps", "2 of 4 maps", "a.png: broken", "a.png: broken"]
    assert added(notes) == ("5 maps explain another", "3 of 20 maps", "a.png: broken")
    score = pl.evaluate(tiny.subject("vit"), tiny.pictures(count=18), maps(18), "energy", boxes=[None] * 17 + [[[0, 0, 9, 9]]])
    assert score.notes == ("17 pictures without any object in what the model sees: no value",)


def test_the_interval_does_not_depend_on_how_much_is_drawn_at_once(monkeypatch):
    def interval():
        return pl.evaluate(tiny.subject("vit"), tiny.pictures(count=4), maps(4), "sparseness").interval

    whole = interval()
    monkeypatch.setattr("patchlight.core.score.AT_ONCE", 4 * 300)
    assert interval() == pytest.approx(whole, rel=1e-12)


def test_no_metrics_is_a_wrong_call():
    with pytest.raises(pl.PatchlightError, match="no metrics came"):
        pl.evaluate_many(tiny.subject("vit"), tiny.pictures(), maps(), [])
