"""Random masks: coarse grids of zeros and ones, enlarged and shifted, made when they are needed."""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

from patchlight.methods.masking._variants import Make, wide
from patchlight.tracing.ask import Ask


def random_masks(ask: Ask, samples: int, cells: int, keep: float) -> Make:
    """masks(picture (n,), number (n,)) -> (n, H, W): grids and shifts are drawn at once, a few numbers for each mask."""
    size = ask.images.shape[-2:]
    steps = [ceil(n / cells) for n in size]
    grids, shifts = [], []
    for g in ask.generators():
        grids.append(torch.rand(samples, cells, cells, generator=g) < keep)
        shifts.append(torch.stack([torch.randint(step, (samples,), generator=g) for step in steps], 1))
    grid, shift = (torch.stack(t).to(ask.images.device) for t in (grids, shifts))  # (b, m, s, s), (b, m, 2)
    tables = [enlarging(cells, (cells + 1) * step).to(ask.images.device, wide(ask)) for step in steps]

    def masks(picture: Tensor, number: Tensor) -> Tensor:
        return seen_through(grid[picture, number], shift[picture, number], tables, (size[0], size[1]))

    return masks


def seen_through(grid: Tensor, shift: Tensor, tables: list[Tensor], size: tuple[int, int]) -> Tensor:
    """Grids (n, s, s) enlarged by tables (H', s) and (W', s) and cut to (n, H, W) at the shifts (n, 2): two small products."""
    rows, columns = (
        table[shift[:, axis, None] + torch.arange(size[axis], device=grid.device)] for axis, table in enumerate(tables)
    )  # (n, H, s), (n, W, s)
    return rows @ grid.to(rows.dtype) @ columns.mT


def enlarging(cells: int, size: int) -> Tensor:
    """(size, cells) weights of bilinear enlargement with half-pixel centres, mirrored at the middle of the outer cells."""
    at = (torch.arange(size, dtype=torch.float64) + 0.5) * cells / size - 0.5
    at = at.abs()
    at = torch.where(at > cells - 1, 2 * (cells - 1) - at, at)
    return (1 - (at[:, None] - torch.arange(cells)).abs()).clamp_min(0)
