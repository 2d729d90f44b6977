from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._fill import Fill, filling
from patchlight.methods.masking._game import Game, Kind
from patchlight.methods.masking._shares import Shares, least_squares
from patchlight.methods.masking._superpixels import superpixels
from patchlight.methods.masking._variants import Score, whole, wide
from patchlight.methods.masking._without import Without, cells, checked_grid
from patchlight.tracing.ask import Ask


@method(
    paper='Ribeiro, Singh and Guestrin 2016, "Why should I trust you?": explaining the predictions of any classifier',
    equation="M_i = β_i of min_β Σ_S w_S (y(S) - β_0 - Σ_{i in S} β_i)² + ridge |β|², w_S = exp(-d²/width²)^½, d = 1 - (|S|/n)^½",
    cost=lambda s: Cost(s["samples"] + 1, 0, "at most"),
    returns=lambda s: "tokens" if s["segments"] == "patches" else "pixels",
    stochastic=True,
)
def lime(
    ask: Ask,
    *,
    segments: Literal["patches", "superpixels"] = "patches",
    samples: int = 1000,
    grid: tuple[int, int] | None = None,
    count: int = 60,
    compactness: float = 10.0,
    fill: Literal["segment"] | Fill = "segment",
    width: float = 0.25,
    ridge: float = 1.0,
    score: Score = "probability",
    until: float | None = None,
) -> Tensor:
    """A linear model of the score around the picture: segments are kept or hidden at random, each with chance 1/2.

    `segments`: patches (of `grid`, or the patch grid), or superpixels as the authors have it: about `count` of SLIC with its
    `compactness`, which needs scikit-image. `fill` "segment" paints a segment in its own mean colour. `width` of the kernel, on
    the cosine distance to the whole picture, and `ridge` are the authors'. The first sample is the picture itself. The error is
    that of the ridge coefficients about their own mean, not about those without ridge. `until` ends the sampling of a picture
    when the standard error is that share of the map's range.
    """
    if not width > 0 or not ridge >= 0 or samples < 2:
        raise SettingError(
            f"lime: width takes more than 0, ridge 0 or more, samples 2 or more, but {width}, {ridge} and {samples} came."
        )
    size = (ask.images.shape[-2], ask.images.shape[-1])
    shape = checked_grid(ask, grid, remove="paint", method="lime") if segments == "patches" else None
    if shape is not None:
        regions = cells(shape, size).to(ask.images.device).expand(len(ask.images), *size)
    else:
        regions = superpixels(ask, count, compactness)
        ask.keep("superpixels", regions)
    players = (regions.flatten(1).amax(1) + 1).tolist()
    filler = segment_means(ask.images, regions) if fill == "segment" else filling(ask, fill, method="lime")
    full = whole(ask, score=score).double().cpu()
    kinds = [linear(n, full[i], width, ridge) for i, n in enumerate(players)]

    def spread(coefficients: list[Tensor]) -> Tensor:
        if shape is not None:
            return torch.stack(coefficients).unflatten(1, shape).to(ask.images.device, wide(ask))
        return torch.stack([c.to(r.device, wide(ask))[r] for c, r in zip(coefficients, regions, strict=True)])

    return Game(ask, Without(ask, regions, filler, score), kinds, players, spread).play(samples, until)


def linear(players: int, full: Tensor, width: float, ridge: float) -> Kind:
    """The local linear model of one picture."""

    def draw(generator: torch.Generator, count: int) -> Tensor:
        return torch.rand(count, players, generator=generator, dtype=torch.float64) < 0.5

    def shares(drawn: Tensor, values: Tensor) -> Shares:
        rows = torch.cat([torch.ones(1, players + 1), torch.cat([torch.ones(len(drawn), 1), drawn], 1)]).double()
        present = rows[:, 1:].sum(1) / players
        distance = 1 - present.sqrt()  # cosine distance of zeros and ones to all ones
        weights = (-0.5 * (distance / width).square()).exp()
        penalty = torch.diag(torch.tensor([1e-12, *[ridge] * players], dtype=torch.float64))  # the intercept is free
        found = least_squares(rows, torch.cat([full[None], values[:, 0]]), penalty=penalty, weights=weights)
        return Shares(found.values[1:], found.errors[1:])

    return Kind(per=1, least=2, draw=draw, coalitions=lambda drawn: drawn[:, None], shares=shares)


def segment_means(images: Tensor, regions: Tensor) -> Tensor:
    """(b, 3, H, W): every pixel in the mean colour of its segment."""
    flat, place = images.flatten(2), regions.flatten(1)[:, None].expand(-1, 3, -1)  # (b, 3, H W)
    count = int(place.max()) + 1
    total = flat.new_zeros(*flat.shape[:2], count, dtype=torch.promote_types(flat.dtype, torch.float32))
    sums = total.scatter_add(2, place, flat.to(total.dtype))
    sizes = total.scatter_add(2, place, torch.ones_like(flat, dtype=total.dtype)).clamp_min(1)
    return (sums / sizes).gather(2, place).view_as(images).to(images.dtype)
