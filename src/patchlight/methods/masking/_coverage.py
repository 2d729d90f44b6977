"""Masks weighted by their scores and added up: by how much each pixel was shown, or as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from patchlight.methods.masking._variants import Make, every_pair, wide
from patchlight.tracing.ask import Ask

CHUNK = 64  # masks at once
SEEN = 1e-5  # a pixel that all masks together show less is not shown: float32 cannot tell it from 0


@dataclass(frozen=True, eq=False)
class Sums:
    """Over the masks of each picture, (b, H, W): Σ s M, Σ M, Σ v M², Σ s² M², Σ s M², Σ M², and Σ M / |M|."""

    scored: Tensor
    shown: Tensor
    varied: Tensor
    squares: tuple[Tensor, Tensor, Tensor]
    unit: Tensor


def add_up(ask: Ask, masks: Make, counts: Sequence[int], scores: Tensor, variance: Tensor) -> Sums:
    """The masks are made once more, `CHUNK` at a time."""
    shape = (len(ask.images), *ask.images.shape[-2:])
    sums = [ask.images.new_zeros(shape, dtype=wide(ask)) for _ in range(7)]
    pictures, numbers = every_pair(ask, counts)
    for picture, number in zip(pictures.split(CHUNK), numbers.split(CHUNK), strict=True):
        mask = masks(picture, number).to(wide(ask)).flatten(1)  # (n, H W)
        own = (picture[None] == torch.arange(len(ask.images), device=picture.device)[:, None]).to(mask)  # (b, n)
        s, v = scores[picture, number], variance[picture, number]
        square, length = mask.square(), mask.norm(dim=1).clamp_min(torch.finfo(mask.dtype).tiny)
        parts = [(own * s, mask), (own, mask), (own * v, square), (own * s * s, square), (own * s, square), (own, square)]
        for total, (weight, base) in zip(sums, [*parts, (own / length, mask)], strict=True):
            total += (weight @ base).view(shape)
    return Sums(sums[0], sums[1], sums[2], (sums[3], sums[4], sums[5]), sums[6])


def shown_mean(sums: Sums, counts: Tensor) -> Tensor:
    """(1/K) Σ_i s_i M_i / Σ_j M_j, and 0 where no mask shows the pixel."""
    return divided(sums.scored, sums.shown) / counts


def noise_error(sums: Sums, counts: Tensor, *, coverage: bool) -> Tensor:
    """The standard error from the noise: the masks are fixed and their scores have independent errors."""
    error = sums.varied.sqrt()
    return divided(error, sums.shown) / counts if coverage else error


def sampling_error(sums: Sums, counts: Tensor, *, coverage: bool) -> Tensor:
    """The standard error of maps from random masks: of a ratio of sums (first order), or of a sum."""
    second, cross, first = sums.squares
    ratio = divided(sums.scored, sums.shown) if coverage else torch.zeros_like(sums.scored)
    spread = second - 2 * ratio * cross + ratio.square() * first  # Σ M² (s - ratio)²
    if coverage:
        return divided((spread * counts / (counts - 1)).clamp_min(0).sqrt(), sums.shown) / counts
    return ((spread - sums.scored.square() / counts) * counts / (counts - 1)).clamp_min(0).sqrt()


def similarity(sums: Sums, counts: Tensor) -> Tensor:
    """(b,) the mean cosine between two different masks: (|Σ M/|M||² - K) / (K (K - 1))."""
    k = counts.flatten()
    return (sums.unit.flatten(1).square().sum(1) - k) / (k * (k - 1)).clamp_min(1)


def divided(above: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown > SEEN, above / shown.clamp_min(SEEN), 0.0)
