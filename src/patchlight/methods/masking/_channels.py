"""Feature maps as masks: each channel scaled to 0 ... 1 over the pixels. They stay on their grid until a batch needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from patchlight.core.grid import to_pixels
from patchlight.methods.masking._variants import Make

CHUNK = 256  # maps enlarged at once, to find their extremes


@dataclass(frozen=True, eq=False)
class Bank:
    """Masks (n, H, W) that lie on their grid until they are needed: maps (n, h, w), scaled when enlarged."""

    maps: Tensor
    size: tuple[int, int]
    low: Tensor  # (n, 1, 1) the smallest value when enlarged
    scale: Tensor  # 1 / (largest - smallest); 0 for a constant map, whose mask hides everything
    corners: bool = False

    def pixels(self, index: Tensor) -> Tensor:
        """(m, H, W), exactly 0 and 1 at their extremes."""
        return (to_pixels(self.maps[index], self.size, corners=self.corners) - self.low[index]) * self.scale[index]

    @property
    def constant(self) -> Tensor:
        return self.scale[:, 0, 0] == 0

    @property
    def on_grid(self) -> Tensor:
        """(n, h, w) the scaled maps in front of the enlarging, which is linear with weights that sum to one."""
        return (self.maps - self.low) * self.scale


def bank(maps: Tensor, size: tuple[int, int], *, corners: bool = False) -> Bank:
    """Each map to be scaled to 0 ... 1 over the pixels."""
    ends = [to_pixels(some, size, corners=corners).flatten(1).aminmax(dim=1) for some in maps.split(CHUNK)]
    low, high = (torch.cat(values)[:, None, None] for values in zip(*ends, strict=True))
    grid = maps.flatten(1)
    varies = (grid.amax(1) > grid.amin(1))[:, None, None]  # told on the grid: enlarging rounds, on some devices unevenly
    scale = torch.where(varies & (high > low), 1 / (high - low), 0.0)
    return Bank(maps, size, low, scale, corners)


def of_pictures(masks: Bank, counts: Sequence[int]) -> Make:
    """masks(picture (n,), number (n,)) -> (n, H, W), of a bank that holds `counts` masks of each picture, one after the other."""
    starts = torch.tensor([0, *counts[:-1]]).cumsum(0).to(masks.maps.device)
    return lambda picture, number: masks.pixels(starts[picture] + number)


def cosine_distances(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """(b, d, d) distances 1 - cos between maps (b, d, h, w) as they are when enlarged, without enlarging them.

    <U f, U g> = <f, UᵀU g>, and bilinear enlargement U is one matrix for the rows and one for the columns.
    """
    gram = [overlap(n, out, maps) for n, out in zip(maps.shape[-2:], size, strict=True)]
    inner = maps.flatten(2) @ (gram[0] @ maps @ gram[1]).flatten(2).mT
    norm = inner.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    product = norm[:, :, None] * norm[:, None]
    found = 1 - torch.where(product > 0, inner / product.clamp_min(torch.finfo(maps.dtype).tiny), 0.0)
    found.diagonal(dim1=1, dim2=2).zero_()
    return found.clamp_min_(0)


def overlap(cells: int, length: int, like: Tensor) -> Tensor:
    """UᵀU (n, n) of the enlargement of one axis."""
    basis = torch.eye(cells, dtype=like.dtype, device=like.device)[:, :, None]  # each a column of n cells
    enlarged = to_pixels(basis, (length, 1))[:, :, 0]  # (n, length)
    return enlarged @ enlarged.mT
