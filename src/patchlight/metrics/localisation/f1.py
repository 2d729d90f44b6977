from __future__ import annotations

from torch import Tensor

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _confusion as confusion
from patchlight.metrics import _places as places


def overlap(c: confusion.Counts) -> Tensor:
    return 2 * c.tp / (2 * c.tp + c.fp + c.fn)


@metric(
    paper="cut as in AG-CAM (Leem and Seo 2024, arXiv:2402.04563)",
    equation="2 |A and B| / (|A| + |B|), A: where the map lies above the threshold, B: the object",
    better="higher",
    needs=("boxes or masks",),
)
def f1(case: Case, *, threshold: confusion.Threshold = 0.5) -> Found:
    """The F1 score of the object (the Dice coefficient), for each picture.

    The map is min-max scaled and cut at 0.5, as published. A picture without any object has no value.
    """
    notes: list[str] = []
    c = confusion.counts(case, threshold, overlap, metric="f1")
    return Found(places.where_told(overlap(c), places.inside(case), notes), notes=tuple(notes))
