from __future__ import annotations

import torch

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _confusion as confusion
from patchlight.metrics import _places as places


@metric(
    paper="Everingham et al. 2010, VOC, without interpolation",
    equation="sum_k (R_k - R_{k-1}) P_k over all cuts of the map",
    better="higher",
    needs=("boxes or masks",),
)
def foreground_ap(case: Case) -> Found:
    """The average precision of the map as a ranking of the object's pixels: no threshold at all.

    Equal scores stay together, so a constant map gets the object's share of the picture, and so does, on average, a random one.
    """
    notes: list[str] = []
    truth = places.inside(case)
    found = [confusion.average_precision(m[t >= 0], t[t >= 0]) for m, t in zip(case.pixels, truth, strict=True)]
    return Found(places.where_told(torch.stack(found), truth, notes), notes=tuple(notes))
