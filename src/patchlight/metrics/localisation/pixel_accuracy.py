from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _confusion as confusion
from patchlight.metrics import _places as places


def overlap(c: confusion.Counts) -> Tensor:
    return (c.tp + c.tn) / (c.tp + c.tn + c.fp + c.fn)


def pool(means: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Tensor:  # noqa: ARG001
    return overlap(confusion.Counts.of(means))


@metric(
    paper="Chefer et al. 2021, arXiv:2012.09838",
    equation="pixels that are told right / pixels that are labelled",
    better="higher",
    needs=("boxes or masks",),
    pool=pool,
)
def pixel_accuracy(
    case: Case, *, threshold: confusion.Threshold = "mean", over: Literal["data set", "images"] = "data set"
) -> Found:
    """The share of labelled pixels that the map, cut in two, tells right.

    Over the data set all pixels count alike, as published; over images every picture does. Pixels that are not labelled, or lie
    beyond the picture, are left out.
    """
    c = confusion.counts(case, threshold, overlap, metric="pixel_accuracy")
    notes = places.unlabelled(places.inside(case))
    return Found(overlap(c), parts=c.rows() if over == "data set" else {}, notes=notes)
