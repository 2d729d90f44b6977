from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Found, metric
from patchlight.metrics import _places as places


@metric(
    paper="Zhang et al. 2016, Excitation Backprop, arXiv:1608.00507; tolerance 0 as ViT-CX, arXiv:2211.03064",
    equation="1[ the highest pixel lies on the object, or at most `tolerance` pixels from it ]",
    better="higher",
    needs=("boxes or masks",),
)
def pointing_game(case: Case, *, tolerance: int = 0) -> Found:
    """Whether the highest pixel lies on the object: in the mask, or in any box where there is no mask.

    The first of equal maxima counts, row by row. `tolerance` is in pixels of the model's input; the classic game has 15. Compare
    with `area` (a point thrown at random) and with the map `centre`, which nearly wins this game on ImageNet.
    """
    if tolerance < 0:
        raise SettingError(f"pointing_game: tolerance takes 0 or more pixels, but {tolerance} came.")
    notes: list[str] = []
    truth = places.inside(case)
    hits = torch.stack([hit(m, t, tolerance) for m, t in zip(case.pixels, truth, strict=True)])
    return Found(places.where_told(hits, truth, notes), notes=tuple(notes))


def hit(pixels: Tensor, truth: Tensor, tolerance: int) -> Tensor:
    """A disc around the maximum touches the object: (i - i*)^2 + (j - j*)^2 <= tolerance^2."""
    best = pixels.flatten().argmax()
    row, column = best // pixels.shape[1], best % pixels.shape[1]
    down = (torch.arange(pixels.shape[0], device=pixels.device) - row).square()
    across = (torch.arange(pixels.shape[1], device=pixels.device) - column).square()
    return ((down[:, None] + across[None] <= tolerance**2) & (truth == 1)).any()
