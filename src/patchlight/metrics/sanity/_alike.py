"""How alike two maps are, by rank and by structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.metrics._correlation import pearson

Measure = Literal["spearman", "absolute", "ssim"]
WINDOW, SIGMA = 11, 1.5
C1, C2 = 0.01**2, 0.03**2


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """(b,) rank correlation of signed maps (b, H, W); equal scores share their mean rank. 0 for a constant map."""
    return pearson(mean_ranks(a.flatten(1)), mean_ranks(b.flatten(1)))


def absolute(a: Tensor, b: Tensor) -> Tensor:
    """The same of the absolute values: a map that only changes its sign is still the same map."""
    return spearman(a.abs(), b.abs())


def mean_ranks(rows: Tensor) -> Tensor:
    """(b, n) -> (b, n) in float64: 0, 1, ...; ties get the mean of their places."""
    return torch.stack([ranked(row) for row in rows])


def ranked(row: Tensor) -> Tensor:
    _, place, count = row.unique(sorted=True, return_inverse=True, return_counts=True)
    ends = count.double().cumsum(0)
    return (ends - (count.double() + 1) / 2)[place]


def ssim(a: Tensor, b: Tensor) -> Tensor:
    """(b,) mean structural similarity of the maps scaled to 0 ... 1, by a Gaussian window of 11 pixels, sigma 1.5.

    SSIM = (2 m_a m_b + c1)(2 s_ab + c2) / ((m_a^2 + m_b^2 + c1)(s_a^2 + s_b^2 + c2)), c1 = 0.01^2, c2 = 0.03^2, where the
    window fits.
    """
    if min(a.shape[1:]) < WINDOW:
        raise SettingError(
            f"ssim looks through a window of {WINDOW} pixels, but the maps are {a.shape[1]} x {a.shape[2]}. "
            "Set measure='spearman' for maps so small."
        )
    a, b = scaled(a), scaled(b)
    mean_a, mean_b = blurred(a), blurred(b)
    var_a, var_b = blurred(a * a) - mean_a**2, blurred(b * b) - mean_b**2
    both = blurred(a * b) - mean_a * mean_b
    top = (2 * mean_a * mean_b + C1) * (2 * both + C2)
    return (top / ((mean_a**2 + mean_b**2 + C1) * (var_a + var_b + C2))).mean((1, 2))


def scaled(maps: Tensor) -> Tensor:
    """Each map to 0 ... 1; a constant one to 0."""
    maps = maps.double()
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / torch.where(high > low, high - low, 1.0)


def blurred(maps: Tensor) -> Tensor:
    offsets = torch.arange(WINDOW, dtype=maps.dtype, device=maps.device) - WINDOW // 2
    kernel = (-(offsets**2) / (2 * SIGMA**2)).exp()
    kernel = kernel / kernel.sum()
    down = F.conv2d(maps[:, None], kernel[None, None, :, None])
    return F.conv2d(down, kernel[None, None, None, :])[:, 0]


MEASURES: Mapping[Measure, Callable[[Tensor, Tensor], Tensor]] = {"spearman": spearman, "absolute": absolute, "ssim": ssim}


def every(first: Tensor, again: Tensor, measure: Measure) -> dict[Measure, Tensor]:
    """(b,) by every measure; SSIM only where it fits or was asked for. NaN where a map is not finite.

    NaN too where the first map is constant: it cannot change, and to call that "unlike" would praise a map that says nothing.
    """
    fits = min(first.shape[1:]) >= WINDOW
    a, b = first.flatten(1), again.flatten(1)
    silent = ~(a.isfinite().all(1) & b.isfinite().all(1)) | (a.amax(1) == a.amin(1))
    first, again = first.nan_to_num(0.0, 0.0, 0.0), again.nan_to_num(0.0, 0.0, 0.0)
    wanted: list[Measure] = [m for m in MEASURES if fits or m != "ssim" or m == measure]
    return {m: torch.where(silent, torch.nan, MEASURES[m](first, again)) for m in wanted}
