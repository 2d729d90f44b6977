"""Correlation along the last axis."""

from __future__ import annotations

import torch
from torch import Tensor


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """(..., n), (..., n) -> (...) in float64; 0 where one of them does not vary."""
    a, b = (t.double() - t.double().mean(-1, keepdim=True) for t in (a, b))
    scale = a.norm(dim=-1) * b.norm(dim=-1)
    flat = scale <= 1e-12 * torch.maximum(a.abs().amax(-1), b.abs().amax(-1)).clamp_min(1e-300) ** 2
    return torch.where(flat, 0.0, (a * b).sum(-1) / torch.where(flat, 1.0, scale))
