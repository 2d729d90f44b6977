"""A map as shares of the whole: p = |M| / sum |M|."""

from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.metric import Case, Found


def shares(case: Case) -> tuple[Tensor, Tensor]:
    """(b, n) in float64 summing to one, and (b,) whether there is anything to share."""
    sizes = case.pixels.double().abs().flatten(1)
    sizes = sizes / sizes.amax(1, keepdim=True).clamp_min(torch.finfo(sizes.dtype).tiny)
    total = sizes.sum(1, keepdim=True)
    return sizes / total.clamp_min(1.0), total[:, 0] > 0


def told(values: Tensor, something: Tensor) -> Found:
    """NaN for a map of zeros."""
    empty = int((~something).sum())
    notes = (f"{empty} maps are zero everywhere: no value",) if empty else ()
    return Found(torch.where(something, values, torch.nan), notes=notes)
