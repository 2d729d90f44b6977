from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _confusion as confusion
from patchlight.metrics import _places as places


@metric(
    paper="Chefer et al. 2021, arXiv:2012.09838, the mAP of their code",
    equation="average precision of the scores [1 - m, m] of all pixels against [background, object]; mean over pictures",
    better="higher",
    needs=("boxes or masks",),
)
def two_sided_map(case: Case) -> Found:
    """The published mAP: every pixel counts twice, with m as object and with 1 - m as background.

    Half of it is about the background, so a picture that is mostly background scores high: `foreground_ap` is the average
    precision of the object alone. Equal scores stay together, as in scikit-learn. For a constant map both sides are 0.
    """
    maps, truth = places.unit(case.pixels), places.inside(case)
    found = [both_sides(m[t >= 0], t[t >= 0]) for m, t in zip(maps, truth, strict=True)]
    return Found(torch.stack(found), notes=places.unlabelled(truth))


def both_sides(values: Tensor, truth: Tensor) -> Tensor:
    ground = torch.zeros_like(values) if not values.any() else 1 - values
    return confusion.average_precision(torch.cat([ground, values]), torch.cat([1 - truth, truth]))
