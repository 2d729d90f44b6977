from __future__ import annotations

from torch import Tensor

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _confusion as confusion
from patchlight.metrics import _places as places


def overlap(c: confusion.Counts) -> Tensor:
    return c.tp / (c.tp + c.fp + c.fn)


@metric(
    paper="cut as in AG-CAM (Leem and Seo 2024, arXiv:2402.04563)",
    equation="|A and B| / |A or B|, A: where the map lies above the threshold, B: the object",
    better="higher",
    needs=("boxes or masks",),
)
def jaccard(case: Case, *, threshold: confusion.Threshold = 0.5) -> Found:
    """Intersection over union of the object alone, for each picture.

    The map is min-max scaled and cut at 0.5, as published. A picture without any object has no value.
    """
    notes: list[str] = []
    c = confusion.counts(case, threshold, overlap, metric="jaccard")
    return Found(places.where_told(overlap(c), places.inside(case), notes), notes=tuple(notes))
