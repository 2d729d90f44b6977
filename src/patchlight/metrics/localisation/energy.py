from __future__ import annotations

from typing import Literal

import torch

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _places as places


@metric(
    paper="Wang et al. 2020, Score-CAM, arXiv:1910.01279",
    equation="sum of M on the object / sum of M",
    better="higher",
    needs=("boxes or masks",),
)
def energy(case: Case, *, scale: Literal["minmax", "positive"] = "minmax") -> Found:
    """The share of the map that lies on the object, in the mask or in the boxes.

    The map must not be negative: it is min-max scaled as published, or cut at zero (scale="positive"), which asks how much of
    what speaks for the class lies there. A map without any energy, such as a constant one, gets 0. Compare with `area`, the
    share of a map that is the same everywhere.
    """
    notes: list[str] = []
    truth = places.inside(case)
    maps = places.unit(case.pixels) if scale == "minmax" else case.pixels.clamp_min(0)
    maps = maps.double() * (truth >= 0)
    on, all_of = (maps * (truth == 1)).sum((1, 2)), maps.sum((1, 2))
    share = torch.where(all_of > 0, on / torch.where(all_of > 0, all_of, 1), 0.0)
    return Found(places.where_told(share, truth, notes), notes=tuple(notes))
