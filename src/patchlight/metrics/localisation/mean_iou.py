from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _confusion as confusion
from patchlight.metrics import _places as places


def overlap(c: confusion.Counts) -> Tensor:
    """The mean of both classes; a class that is neither there nor said is left out."""
    wrong = c.fp + c.fn
    return torch.stack([c.tp / (c.tp + wrong), c.tn / (c.tn + wrong)]).nanmean(0)


def pool(means: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Tensor:  # noqa: ARG001
    return overlap(confusion.Counts.of(means))


@metric(
    paper="Chefer et al. 2021, arXiv:2012.09838",
    equation="(IoU of the object + IoU of the background) / 2, intersections and unions summed over the data set",
    better="higher",
    needs=("boxes or masks",),
    pool=pool,
)
def mean_iou(case: Case, *, threshold: confusion.Threshold = "mean", over: Literal["data set", "images"] = "data set") -> Found:
    """Intersection over union of object and background, their mean.

    As published, intersections and unions are summed over the data set before they are divided; over="images" is the mean of each
    picture's own number. The two differ: never compare one with the other.
    """
    c = confusion.counts(case, threshold, overlap, metric="mean_iou")
    notes = places.unlabelled(places.inside(case))
    return Found(overlap(c), parts=c.rows() if over == "data set" else {}, notes=notes)
