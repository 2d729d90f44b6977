"""Localisation against scikit-learn, scikit-image and plain loops, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.filters
import skimage.measure
import sklearn.metrics as sk
import torch

import patchlight as pl
import tiny

SIZE = 32
COUNT = 6


@pytest.fixture(scope="module")
def maps():
    """Smooth ones, one with many ties, one constant."""
    draw = torch.Generator().manual_seed(2)
    rows = torch.nn.functional.interpolate(torch.randn(COUNT, 1, 6, 6, generator=draw).double(), size=SIZE, mode="bicubic")[:, 0]
    rows[1] = (rows[1] * 3).round()
    rows[5] = 0.25
    return rows


@pytest.fixture(scope="module")
def masks():
    """With pixels that are not labelled, and one that is object everywhere."""
    draw = torch.Generator().manual_seed(4)
    rows = torch.nn.functional.interpolate(torch.randn(COUNT, 1, 5, 5, generator=draw), size=SIZE, mode="bilinear")[:, 0] > 0.1
    found = rows.to(torch.int8)
    found[2, :4] = -1
    found[3] = 1
    return found


def evaluate(maps, metric, masks=None, boxes=None, **settings):
    return pl.evaluate(tiny.subject("vit"), tiny.pictures(count=len(maps)), maps, metric, masks=masks, boxes=boxes, **settings)


def units(maps):
    for rows in maps.numpy():
        span = rows.max() - rows.min()
        yield (rows - rows.min()) / span if span else np.zeros_like(rows)


def pairs(maps, masks):
    """(scaled map, truth) over the labelled pixels."""
    for rows, truth in zip(units(maps), masks.numpy(), strict=True):
        yield rows[truth >= 0], truth[truth >= 0]


CUTS = {
    "mean": lambda rows: rows.mean(),
    "otsu": lambda rows: skimage.filters.threshold_otsu(rows) if np.ptp(rows) else 0.0,
    0.5: lambda _: 0.5,
    0.2: lambda _: 0.2,
}


def cut(maps, masks, threshold):
    """(said, truth) over the labelled pixels; the threshold is that of the whole map."""
    for rows, truth in zip(units(maps), masks.numpy(), strict=True):
        yield (rows > CUTS[threshold](rows))[truth >= 0], truth[truth >= 0]


@pytest.mark.parametrize("threshold", CUTS)
def test_overlap_of_each_picture_is_that_of_scikit_learn(maps, masks, threshold):
    expected = {
        "jaccard": lambda t, s: sk.jaccard_score(t, s, zero_division=0),
        "f1": lambda t, s: sk.f1_score(t, s, zero_division=0),
        "pixel_accuracy": sk.accuracy_score,
        "mean_iou": lambda t, s: np.mean(sk.jaccard_score(t, s, average=None, zero_division=0)),
    }
    for metric, library in expected.items():
        found = evaluate(maps, metric, masks, threshold=threshold)
        wanted = [library(t, s) for s, t in cut(maps, masks, threshold)]
        np.testing.assert_allclose(found.values.numpy(), wanted, rtol=1e-12, err_msg=metric)


def test_over_the_data_set_the_pixels_are_summed_first(maps, masks):
    said, truth = (np.concatenate(c) for c in zip(*cut(maps, masks, "mean"), strict=True))
    assert evaluate(maps, "pixel_accuracy", masks).mean == pytest.approx(sk.accuracy_score(truth, said), rel=1e-12)
    assert evaluate(maps, "mean_iou", masks).mean == pytest.approx(sk.jaccard_score(truth, said, average="macro"), rel=1e-12)
    images = evaluate(maps, "mean_iou", masks, over="images")
    assert images.mean == pytest.approx(float(images.values.mean()), rel=1e-12) != evaluate(maps, "mean_iou", masks).mean


def test_the_best_cut_is_found_by_trying_all(maps, masks):
    for metric, library in {"f1": sk.f1_score, "jaccard": sk.jaccard_score, "pixel_accuracy": sk.accuracy_score}.items():
        found = evaluate(maps, metric, masks, threshold="best", **({"over": "images"} if metric == "pixel_accuracy" else {}))
        for k, (rows, truth) in enumerate(pairs(maps, masks)):
            if k not in (0, 1, 5):
                continue
            levels = [-1.0, *np.unique(rows)] if k != 0 else [-1.0, *np.unique(rows)[::8]]
            options = {} if metric == "pixel_accuracy" else {"zero_division": 0}
            tried = [library(truth, rows > level, **options) for level in levels]
            assert float(found.values[k]) >= max(tried) - 1e-12
            assert k == 0 or float(found.values[k]) == pytest.approx(max(tried), rel=1e-12)


def test_average_precision_is_that_of_scikit_learn(maps, masks):
    wanted = [sk.average_precision_score(t, r) for r, t in pairs(maps, masks)]
    np.testing.assert_allclose(evaluate(maps, "foreground_ap", masks).values.numpy(), wanted, rtol=1e-10)
    wanted = []
    for rows, truth in pairs(maps, masks):
        ground = 1 - rows if rows.any() else rows  # a constant map: both sides are 0, as in the authors' code
        wanted.append(sk.average_precision_score(np.concatenate([1 - truth, truth]), np.concatenate([ground, rows])))
    np.testing.assert_allclose(evaluate(maps, "two_sided_map", masks).values.numpy(), wanted, rtol=1e-10)


BOXES = [[[3.0, 4.0, 20.5, 17.0]], [[0.0, 0.0, 8.0, 8.0], [16.0, 16.0, 31.0, 30.2]]]


def in_boxes(boxes):
    return np.array(
        [[any(x0 <= j + 0.5 < x1 and y0 <= i + 0.5 < y1 for x0, y0, x1, y1 in boxes) for j in range(SIZE)] for i in range(SIZE)]
    )


@pytest.mark.parametrize("tolerance", [0, 3, 15])
def test_the_pointing_game_pixel_by_pixel(maps, tolerance):
    found = evaluate(maps[:2], "pointing_game", boxes=BOXES, tolerance=tolerance)
    for k in range(2):
        row, column = divmod(int(np.argmax(maps[k].numpy())), SIZE)  # numpy takes the first maximum
        truth = in_boxes(BOXES[k])
        near = [truth[i, j] for i in range(SIZE) for j in range(SIZE) if (i - row) ** 2 + (j - column) ** 2 <= tolerance**2]
        assert float(found.values[k]) == float(any(near))


def test_the_first_of_equal_maxima_counts():
    flat = torch.zeros(1, SIZE, SIZE, dtype=torch.float64)
    truth = torch.zeros(1, SIZE, SIZE, dtype=torch.int8)
    truth[0, 0, 0] = 1
    assert evaluate(flat, "pointing_game", truth).mean == 1
    flat[0, 9, 9] = flat[0, 9, 10] = 1
    truth[0, 9, 10] = 1
    assert evaluate(flat, "pointing_game", truth).mean == 0
    assert evaluate(flat, "pointing_game", truth, tolerance=1).mean == 1


def test_energy_and_area_are_shares(maps):
    energy, area = (evaluate(maps[:2], m, boxes=BOXES) for m in ("energy", "area"))
    positive = evaluate(maps[:2], "energy", boxes=BOXES, scale="positive")
    for k, rows in enumerate(units(maps[:2])):
        truth, raw = in_boxes(BOXES[k]), maps[k].numpy().clip(0)
        assert float(energy.values[k]) == pytest.approx(rows[truth].sum() / rows.sum(), rel=1e-12)
        assert float(positive.values[k]) == pytest.approx(raw[truth].sum() / raw.sum(), rel=1e-12)
        assert float(area.values[k]) == pytest.approx(truth.mean(), rel=1e-12)


@pytest.mark.parametrize("protocol", ["v2", "v1"])
def test_boxes_around_the_parts_of_the_map(maps, protocol):
    found = evaluate(maps[:2], "max_box_acc", boxes=BOXES, cuts=10, protocol=protocol)
    overlaps = (0.3, 0.5, 0.7) if protocol == "v2" else (0.5,)
    hits = np.zeros((2, len(overlaps), 10))
    for k, rows in enumerate(units(maps[:2])):
        for level in range(10):
            parts = skimage.measure.regionprops(skimage.measure.label(rows > level / 10, connectivity=2))
            if protocol == "v1" and parts:
                parts = [max(parts, key=lambda p: p.area)]
            best = max((iou((p.bbox[1], p.bbox[0], p.bbox[3], p.bbox[2]), box) for p in parts for box in BOXES[k]), default=0.0)
            hits[k, :, level] = [best >= o for o in overlaps]
    assert found.mean == pytest.approx(hits.mean(0).max(-1).mean(), rel=1e-12)
    np.testing.assert_allclose(found.values.numpy(), hits.max(-1).mean(-1), rtol=1e-12)


def iou(a, b):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inner = max(0.0, wide) * max(0.0, high)
    return inner / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner)


@pytest.mark.parametrize("metric", ["pixel_accuracy", "mean_iou", "jaccard", "f1", "two_sided_map", "foreground_ap", "energy"])
def test_the_mask_itself_is_perfect_and_its_negative_is_the_worst(metric, masks):
    masks = masks[:2]
    perfect = masks.double() + 1e-6 * torch.rand(masks.shape, generator=torch.Generator().manual_seed(0))
    random = torch.rand(masks.shape, generator=torch.Generator().manual_seed(1)).double()
    found = [evaluate(m, metric, masks).mean for m in (perfect, random, -perfect)]
    assert found[0] > found[1] > found[2]
    assert metric == "energy" or found[0] > 0.999


def test_a_picture_without_its_object_has_no_value(maps):
    masks = torch.zeros(2, SIZE, SIZE, dtype=torch.int8)
    masks[0, 3:9, 3:9] = 1
    for metric in ("pointing_game", "energy", "area", "jaccard", "f1", "foreground_ap"):
        found = evaluate(maps[:2], metric, masks)
        assert found.values.isnan().tolist() == [False, True]
        assert found.n == 1
        assert "1 pictures without any object in what the model sees: no value" in found.notes


@pytest.mark.parametrize(
    ("metric", "settings", "message"),
    [
        ("f1", {"threshold": 1.5}, "threshold takes 'mean', 'otsu', 'best' or a number from 0 to 1, but 1.5 came"),
        ("pointing_game", {"tolerance": -1}, "tolerance takes 0 or more pixels, but -1 came"),
        ("max_box_acc", {"cuts": 0}, "max_box_acc: cuts takes 1 or more, but 0 came"),
    ],
)
def test_a_setting_out_of_range_is_named(maps, metric, settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        evaluate(maps[:2], metric, boxes=BOXES, **settings)
