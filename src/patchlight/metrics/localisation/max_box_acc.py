from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _places as places

TOUCHING = np.ones((3, 3), dtype=bool)  # eight neighbours


def pool(means: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Tensor:  # noqa: ARG001
    """(r, d, t) the share of hits -> the best cut of the data set at each overlap, their mean."""
    return means["hits"].amax(-1).mean(-1)


@metric(
    paper="Choe et al. 2020, arXiv:2001.07437; used by ViT-CX, arXiv:2211.03064",
    equation="mean over IoU 0.3, 0.5, 0.7 of max over cuts of the share of pictures with a box of the map on a box of the object",
    better="higher",
    needs=("boxes",),
    pool=pool,
)
def max_box_acc(case: Case, *, cuts: int = 100, protocol: Literal["v2", "v1"] = "v2") -> Found:
    """Weakly supervised localisation: boxes around the connected parts of the map against the boxes of the object.

    The map is min-max scaled and cut at `cuts` levels j / cuts, strictly above. Version 2 takes the best pair among all boxes and
    the mean over three overlaps; version 1 the largest part alone at an overlap of 0.5. The cut that is best for the whole data
    set counts in `mean`; `values` are each picture's own best, so their mean is higher.
    """
    if cuts < 1:
        raise SettingError(f"max_box_acc: cuts takes 1 or more, but {cuts} came.")
    notes: list[str] = []
    overlaps = (0.3, 0.5, 0.7) if protocol == "v2" else (0.5,)
    maps = places.unit(case.pixels).double().cpu().numpy()
    assert case.boxes is not None
    best = [best_overlaps(m, b.cpu().numpy(), cuts, largest=protocol == "v1") for m, b in zip(maps, case.boxes, strict=True)]
    iou = torch.tensor(np.stack(best), device=case.pixels.device)  # (b, t)
    hits = torch.stack([(iou >= o).double() for o in overlaps], 1)  # (b, d, t)
    told = places.where_told(hits.amax(-1).mean(-1), places.in_boxes(case), notes)
    return Found(told, parts={"hits": hits}, notes=tuple(notes))


def best_overlaps(values: np.ndarray, boxes: np.ndarray, cuts: int, *, largest: bool) -> np.ndarray:
    """(t,) the highest overlap of any box of the map with any box of the object, at each cut."""
    found = np.zeros(cuts)
    for j in range(cuts if len(boxes) else 0):
        labels = np.zeros(values.shape, dtype=np.int32)
        ndimage.label(values > j / cuts, structure=TOUCHING, output=labels)
        slices = ndimage.find_objects(labels)
        if not slices:
            break
        if largest:
            slices = [slices[int(np.bincount(labels.ravel())[1:].argmax())]]
        ours = np.array([(s[1].start, s[0].start, s[1].stop, s[0].stop) for s in slices], dtype=np.float64)
        found[j] = overlap(ours, boxes).max()
    return found


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, 4), (m, 4) -> (n, m) intersection over union."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = np.clip(high - low, 0, None).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b)]
    return inner / (areas[0][:, None] + areas[1][None] - inner)
