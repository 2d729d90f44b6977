"""The authors' metric scripts: segmentation (pixel accuracy, mIoU of the data set, their mAP) and the area of TSW's curves."""

from __future__ import annotations

import pytest
import torch

import patchlight as pl
from patchlight.metrics._curves import area


def test_segmentation(golden):
    file = golden.file("metrics_seg_chefer")
    maps, masks = torch.tensor(file["maps"]), torch.tensor(file["masks"])
    images = torch.zeros(len(maps), 3, 224, 224)
    found = pl.evaluate_many(golden.subject, images, maps, ["pixel_accuracy", "mean_iou", "two_sided_map"], masks=masks)
    for score, expected in zip(found.values(), file["aggregate"][:3], strict=True):
        assert score.mean == pytest.approx(float(expected), abs=1e-6)
    correct, labelled, inner, union = (file["rows"][:, k] for k in (0, 1, slice(2, 4), slice(4, 6)))
    accuracy, iou = found["pixel_accuracy"].parts, found["mean_iou"].parts
    assert (accuracy["tp"] + accuracy["tn"]).tolist() == correct.tolist()
    assert sum(accuracy.values()).tolist() == labelled.tolist()
    assert torch.stack([iou["tn"], iou["tp"]], 1).tolist() == pytest.approx(inner, rel=1e-6)
    wrong = iou["fp"] + iou["fn"]
    assert (torch.stack([iou["tn"], iou["tp"]], 1) + wrong[:, None]).flatten().tolist() == pytest.approx(union.ravel(), rel=1e-6)
    assert found["two_sided_map"].values.tolist() == pytest.approx(file["rows"][:, 6], abs=1e-6)


@pytest.mark.parametrize("picture", ["img00", "img01"])
def test_the_area_below_a_deletion_curve(golden, picture):
    file = golden.file("metrics_tsw")
    curve = torch.tensor(file[f"{picture}_deletion_curve"]).double()[None]
    assert float(area(curve)) == pytest.approx(float(file[f"{picture}_deletion_auc"]), abs=1e-6)
