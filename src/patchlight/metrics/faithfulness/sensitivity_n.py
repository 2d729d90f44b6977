from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Edit, Fill, Found, Steps, metric, ranks_of
from patchlight.metrics import _curves as curves
from patchlight.metrics._correlation import pearson


@metric(
    paper="Ancona et al. 2018, arXiv:1711.06104",
    equation="mean_n corr_S( sum of M over S, y_c(x) - y_c(x without S) ), S: random sets of n cells",
    better="higher",
    needs=curves.label_needed,
)
def sensitivity_n(
    case: Case,
    *,
    grid: int = 14,
    at: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9),
    sets: int = 20,
    fill: Fill = "mean",
    output: Literal["logit", "probability"] = "logit",
    of: curves.Of = "predicted",
) -> Steps:
    """Whether the scores of random parts of the picture add up to what the model loses without them.

    The picture is cut into grid x grid cells; for each share n of them (`at`) as many `sets` are drawn from the picture's own
    seed, and the scores in a set are correlated with the fall of the output without it. A map that is constant, and an output
    that does not move, give 0. The curve is the correlation for each n.
    """
    if sets < 3 or not 2 <= grid <= min(case.pixels.shape[1:]):
        raise SettingError(
            f"sensitivity_n: sets takes 3 or more and grid 2 to {min(case.pixels.shape[1:])}, but {sets} and {grid} came."
        )
    counts = curves.parts_of(grid * grid, at, metric="sensitivity_n")
    names = [f"sensitivity_n {grid} {j}" for j in range(sets)]
    draws = [torch.stack([torch.randperm(grid * grid, generator=g) for _ in names]) for g in case.generators()]
    ranks = ranks_of(torch.stack(draws, 1).flatten(0, 1)).view(sets, len(case), grid, grid).to(case.pixels.device)
    for name, rank in zip(names, ranks, strict=True):
        case.add_order(name, rank)
    logits = yield [Edit(), *(Edit(name, 0, n, fill) for n in counts for name in names)]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    read = curves.probabilities(logits, classes) if output == "probability" else curves.read(logits.double(), classes)
    fall = (read[:, :1] - read[:, 1:]).unflatten(1, (len(counts), sets))
    cells = cell_sums(case.pixels.double(), grid).flatten(1)  # (b, cells)
    inside = [(ranks.flatten(2) < n).double() for n in counts]  # (sets, b, cells) each
    sums = torch.stack([torch.einsum("sbc,bc->bs", i, cells) for i in inside], 1)  # (b, n, sets)
    found = pearson(sums, fall)
    return Found(found.mean(1), found, curves.shares(counts, grid * grid, logits), notes=notes)


def cell_sums(pixels: Tensor, grid: int) -> Tensor:
    """(b, H, W) -> (b, grid, grid): the sum over each cell, cut where the nearest enlargement of a grid cuts."""
    for axis in (1, 2):
        size = pixels.shape[axis]
        cell = torch.arange(size, device=pixels.device) * grid // size
        shape = list(pixels.shape)
        shape[axis] = grid
        pixels = pixels.new_zeros(shape).index_add_(axis, cell, pixels)
    return pixels
