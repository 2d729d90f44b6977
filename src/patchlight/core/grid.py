"""Tokens to patch grid to pixels: the only place where maps are enlarged."""

from __future__ import annotations

from math import prod

import torch.nn.functional as F
from torch import Tensor


def to_grid(scores: Tensor, grid: tuple[int, int]) -> Tensor:
    """(b, n) scores of all tokens -> (b, h, w): prefix tokens stand in front and are left out."""
    return scores[:, scores.shape[1] - prod(grid) :].unflatten(1, grid)


def to_pixels(tokens: Tensor, size: tuple[int, int], *, corners: bool = False) -> Tensor:
    """(b, h, w) -> (b, H, W), bilinear with half-pixel centres; `corners` puts the outer centres into the corners instead."""
    return F.interpolate(tokens[:, None], size=size, mode="bilinear", align_corners=corners)[:, 0]
