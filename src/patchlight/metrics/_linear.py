"""Noisy linear imputation: every painted pixel becomes the weighted mean of its eight neighbours (ROAD, arXiv:2202.00449)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NOISE = 0.01  # added to what was filled in, in normalised values
STEPS = 8  # of conjugate gradients; each takes about 0.4 of the error, and what is left is well below the noise
DAMPING = 0.8
COARSEST = 4


def imputed(images: Tensor, painted: Tensor, noise: Tensor, *, steps: int = STEPS) -> Tensor:
    """images (m, 3, H, W), painted (m, H, W) -> (m, 3, H, W); `noise` (m, 3, H, W) of unit variance goes onto painted pixels.

    u = x outside the hole, and sum_j w_ij (u_i - u_j) = 0 inside, by conjugate gradients with a multigrid preconditioner. The
    number of steps is fixed, so that a picture gets the same numbers in any batch.
    """
    hole = painted[:, None].to(images.dtype)
    grid = Grid(hole)
    filled = grid.solve(pyramid(images * (1 - hole), hole), steps)
    return torch.where(painted[:, None], filled + NOISE * noise, images)


def pyramid(known: Tensor, hole: Tensor) -> Tensor:
    """A first guess: what is known, averaged two by two until nothing is missing, and enlarged again into the hole."""
    if min(known.shape[-2:]) <= COARSEST:
        share = (1 - hole).sum((2, 3), keepdim=True).clamp_min(1)
        return known + hole * known.sum((2, 3), keepdim=True) / share
    told = F.avg_pool2d(1 - hole, 2, ceil_mode=True)
    coarse = pyramid(F.avg_pool2d(known, 2, ceil_mode=True) / told.clamp_min(1e-6), (told == 0).to(hole.dtype))
    return known + hole * enlarged(coarse, known)


def enlarged(coarse: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(coarse, size=like.shape[-2:], mode="bilinear", align_corners=False)


class Grid:
    """The equations of the hole's pixels on one grid, and the grid of half the size below it."""

    def __init__(self, hole: Tensor) -> None:
        self.hole = hole  # (m, 1, H, W)
        self.degree = around(torch.ones_like(hole))
        self.inverse = DAMPING * hole / self.degree.clamp_min(0.1)
        small = min(hole.shape[-2:]) <= COARSEST
        self.below = None if small else Grid((F.avg_pool2d(1 - hole, 2, ceil_mode=True) == 0).to(hole.dtype))

    def apply(self, u: Tensor) -> Tensor:
        """(A u)_i = sum_j w_ij (u_i - u_j) for the pixels of the hole, 0 elsewhere."""
        return self.hole * (self.degree * u - around(u))

    def cycle(self, residual: Tensor) -> Tensor:
        """About A^-1 r: a step of Jacobi, the correction of the coarser grid, another step."""
        found = self.inverse * residual
        if self.below is not None:
            # four fine equations make one on the grid of twice the spacing
            left = 4 * F.avg_pool2d(residual - self.apply(found), 2, ceil_mode=True, count_include_pad=False)
            found = found + self.hole * enlarged(self.below.cycle(left * self.below.hole), residual)
        return found + self.inverse * (residual - self.apply(found))

    def solve(self, u: Tensor, steps: int) -> Tensor:
        """Preconditioned conjugate gradients (Polak-Ribiere: a cycle is not quite symmetric), each channel alone."""
        residual = -self.apply(u)
        direction = better = self.cycle(residual)
        size = dot(residual, better)
        for step in range(steps):
            pushed = self.apply(direction)
            far = size / dot(direction, pushed).clamp_min(1e-30)
            u, before, residual = u + far * direction, residual, residual - far * pushed
            if step < steps - 1:
                better = self.cycle(residual)
                direction = better + dot(better, residual - before) / size.clamp_min(1e-30) * direction
                size = dot(residual, better)
        return u


def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((2, 3), keepdim=True)


def around(u: Tensor) -> Tensor:
    """The sum over the neighbours, 1/6 beside and 1/12 across: ([1 2 1] x [1 2 1] - 4) / 12, nothing beyond the edge."""
    padded = F.pad(u, (0, 0, 1, 1))
    down = padded[..., :-2, :] + 2 * u + padded[..., 2:, :]
    padded = F.pad(down, (1, 1))
    return (padded[..., :-2] + 2 * down + padded[..., 2:] - 4 * u) / 12
