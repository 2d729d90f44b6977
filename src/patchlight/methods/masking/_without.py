"""Pictures with some of their regions missing: painted over, or their tokens dropped from a plain ViT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import ModelError, SettingError
from patchlight.methods.baseline.centre import grid_of
from patchlight.methods.masking._variants import Score, each_variant, every_pair, scorer_of, wide
from patchlight.tracing.ask import Ask
from patchlight.tracing.drop import dropped, undroppable

Remove = Literal["paint", "drop"]


def cells(grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """(H, W) the number of the grid's cell that holds each place, row by row; sides need not divide."""
    rows, columns = (torch.arange(n) * parts // n for n, parts in zip(size, grid, strict=True))
    return rows[:, None] * grid[1] + columns


def checked_grid(ask: Ask, grid: tuple[int, int] | None, *, remove: Remove, method: str) -> tuple[int, int]:
    """The grid of the regions: the patches, or what was asked for; dropped are whole patches only."""
    own = grid_of(ask)
    found = own if grid is None else grid
    most = own if remove == "drop" else (ask.images.shape[-2], ask.images.shape[-1])
    fits = len(found) == 2 and all(isinstance(n, int) and 1 <= n <= m for n, m in zip(found, most, strict=False))
    if not fits or prod(found) < 2:
        raise SettingError(f"{method}: grid takes (rows, columns) from 2 cells up to {most[0]} x {most[1]}, but {found} came.")
    return found


@dataclass(frozen=True, eq=False)
class Without:
    """How regions go missing: painted with `filler` (b | 1, ...) where `regions` (b, H, W) say, or their tokens dropped."""

    ask: Ask
    regions: Tensor
    filler: Tensor
    score: Score
    patches: Tensor | None = None
    """(patches,) the region of each patch, where tokens are dropped in place of painting."""

    def values(self, pictures: Sequence[int], coalitions: Tensor) -> Tensor:
        """(b, m) values of coalitions (b, m, n) of the chosen pictures; NaN for others, and where a wish to stop came before."""
        ask, count = self.ask, coalitions.shape[1]
        found = torch.full(coalitions.shape[:2], float("nan"), dtype=wide(ask), device=ask.images.device)
        there = coalitions.to(ask.images.device)
        items = every_pair(ask, [count] * len(ask.images), pictures=pictures)

        def use(picture: Tensor, number: Tensor, value: Tensor) -> None:
            found[picture, number] = value.to(found.dtype)

        if self.patches is None:
            each_variant(ask, items, self.painting(there), use, score=self.score)
        else:
            self.dropping(there, items, use)
        return found

    def painting(self, there: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        def make(picture: Tensor, number: Tensor) -> Tensor:
            regions = self.regions[picture]  # (n, H, W)
            seen = there[picture, number].gather(1, regions.flatten(1)).view_as(regions)[:, None]
            own = self.filler[picture] if len(self.filler) > 1 else self.filler
            return torch.where(seen, self.ask.images[picture], own)

        return make

    def dropping(self, there: Tensor, items: tuple[Tensor, Tensor], use: Callable[[Tensor, Tensor, Tensor], None]) -> None:
        """Those that keep equally many tokens go together, so that few are filled up."""
        ask, patches = self.ask, self.patches
        assert patches is not None
        picture, number = items
        sizes = there[picture, number][:, patches].sum(1)
        order = sizes.argsort(stable=True)
        latest: list[Tensor] = []

        def make(picture: Tensor, number: Tensor) -> Tensor:
            latest[:] = [there[picture, number][:, patches]]
            return ask.images[picture]

        def forward(images: Tensor) -> Tensor:
            with dropped(ask.model, ask.layout(), latest[0]):
                return ask.forward(images)

        scorer = replace(scorer_of(ask), function=forward, sizes={})
        each_variant(replace(ask, scorer=scorer), (picture[order], number[order]), make, use, score=self.score)


def without(ask: Ask, grid: tuple[int, int], filler: Tensor, *, remove: Remove, score: Score, method: str) -> Without:
    """The cells of a grid that go missing from the pictures of an ask."""
    size = (ask.images.shape[-2], ask.images.shape[-1])
    regions = cells(grid, size).to(ask.images.device).expand(len(ask.images), *size)
    patches = None
    if remove == "drop":
        if reason := undroppable(ask.model, ask.forward, ask.layout(), ask.images):
            raise ModelError(f"{method}: the patches of this model cannot be dropped: {reason}. Use remove='paint'.")
        patches = cells(grid, grid_of(ask)).flatten().to(ask.images.device)
        ask.notes.append("patches were dropped from the tokens, not painted over: not to be compared with painting")
    return Without(ask, regions, filler, score, patches)


def painted(images: Tensor, present: Tensor, grid: tuple[int, int]) -> Tensor:
    """Pictures (b, 3, H, W) with the patches that are not in `present` (b, n) in the mean colour."""
    regions = cells(grid, (images.shape[-2], images.shape[-1])).to(images.device)
    return torch.where(present[:, regions][:, None], images, torch.zeros_like(images))
