from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.layout import Layout
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._fill import Fill, filling
from patchlight.methods.masking._variants import Score, all_values, whole
from patchlight.methods.masking._without import cells, checked_grid
from patchlight.tracing.ask import Ask

PLAIN = (14, 14)  # patches of a network that has none of its own


def grid_of(settings: Mapping[str, Any], layout: Layout) -> tuple[int, int]:
    return settings["grid"] or (layout.grid if prod(layout.grid) > 1 else PLAIN)


def cost(settings: Mapping[str, Any], layout: Layout) -> Cost:
    return Cost(1 + prod(grid_of(settings, layout)) + (settings["keep"] == "one"), 0)


@method(
    paper="the review's causal reading of patches (do-interventions, Pearl 2009)",
    equation="all but one kept: M_i = y(x) - y(do(x_i = x̃_i)); one kept: M_i = y(do(x_j = x̃_j, j ≠ i)) - y(do(x = x̃))",
    cost=cost,
)
def patch_intervention(
    ask: Ask,
    *,
    keep: Literal["others", "one"] = "others",
    fill: Fill = "mean",
    score: Score = "probability",
    grid: tuple[int, int] | None = None,
) -> Tensor:
    """What setting one patch to something else does to the score, for every patch of the grid.

    `keep="others"` replaces one patch at a time; `"one"` leaves one patch in and replaces all others. The review writes the
    effect y(do(x_i = x̃_i)) - y(x), which is negative where a patch supports the class: the map has the other sign, so that high
    means support as everywhere; the insides hold the effect as the review has it. `grid` (rows, columns) replaces the patches.
    """
    shape = checked_grid(ask, grid_of({"grid": grid}, ask.layout()), remove="paint", method="patch_intervention")
    filler = filling(ask, fill, method="patch_intervention")
    own_cell = cells(shape, (ask.images.shape[-2], ask.images.shape[-1])).to(ask.images.device)

    def make(picture: Tensor, number: Tensor) -> Tensor:
        own = filler[picture] if len(filler) > 1 else filler
        here = (own_cell == number[:, None, None])[:, None]  # number m: no patch
        return torch.where(here if keep == "others" else ~here, own, ask.images[picture])

    count = prod(shape)
    values = all_values(ask, count + (keep == "one"), make, score=score)
    base = values[:, count:] if keep == "one" else whole(ask, score=score).to(values)[:, None]
    effect = (values[:, :count] - base).unflatten(1, shape)
    ask.keep("effect", effect)
    return effect if keep == "one" else -effect
