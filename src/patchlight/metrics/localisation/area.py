from __future__ import annotations

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _places as places


@metric(
    paper="baseline",
    equation="pixels of the object / pixels that are labelled",
    better="neither",
    needs=("boxes or masks",),
)
def area(case: Case) -> Found:
    """The share of the input that the object takes: the pointing game of a random point, the energy of an even map.

    It does not depend on the map: what any localisation must beat.
    """
    notes: list[str] = []
    truth = places.inside(case)
    share = (truth == 1).sum((1, 2)).double() / (truth >= 0).sum((1, 2)).clamp_min(1)
    return Found(places.where_told(share, truth, notes), notes=tuple(notes))
