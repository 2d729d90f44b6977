from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._coalitions import every, paired, paired_orders, walks
from patchlight.methods.masking._fill import Fill, filling
from patchlight.methods.masking._game import Game, Kind
from patchlight.methods.masking._shares import enumerated, from_pairs, from_walks
from patchlight.methods.masking._variants import Score, whole, wide
from patchlight.methods.masking._without import Remove, Without, checked_grid, without
from patchlight.tracing.ask import Ask


def cost(settings: Mapping[str, Any]) -> Cost:
    """The whole picture, nothing of it, and the samples; dropping is checked on the first picture of a batch."""
    return Cost(settings["samples"] + 2 + 3 * (settings["remove"] == "drop"), 0, "at most")


@method(
    paper="Shapley 1953; Lundberg and Lee 2017 (KernelSHAP); Covert and Lee 2021 (pairs); Castro et al. 2009 (permutations)",
    equation="φ_i = Σ_{S without i} |S|! (n - |S| - 1)! / n! (v(S + i) - v(S)), v(S) the score with the patches S alone",
    cost=cost,
    stochastic=True,
)
def shapley(
    ask: Ask,
    *,
    estimator: Literal["kernel", "permutation", "exact"] = "kernel",
    samples: int = 2048,
    grid: tuple[int, int] | None = None,
    remove: Remove = "paint",
    fill: Fill = "mean",
    score: Score = "probability",
    until: float | None = None,
) -> Tensor:
    """What each patch is worth: the mean of what it adds to the score, over all orders in which patches may come in.

    The values add up to the score of the picture less that of a picture without patches. `estimator`: "kernel" is least squares
    over coalitions drawn from the Shapley kernel, each with its complement; "permutation" walks through random orders and their
    reverses; "exact" scores every coalition of a few patches. `samples` coalitions are scored at most. `grid` (rows, columns)
    replaces the patch grid. `remove`: patches are painted over (`fill`), or their tokens are dropped, which takes half the time
    but a plain ViT with a class token; the two answer different questions. `until` ends the sampling of a picture when the
    standard error is that share of the map's range.
    """
    shape = checked_grid(ask, grid, remove=remove, method="shapley")
    filler = filling(ask, fill, method="shapley")
    missing = without(ask, shape, filler, remove=remove, score=score, method="shapley")
    players, everyone = prod(shape), list(range(len(ask.images)))
    if estimator == "exact":
        return exactly(ask, missing, players, samples).unflatten(1, shape)
    per = 2 if estimator == "kernel" else 2 * (players - 1)
    least = 4 * players if estimator == "kernel" else 2 * per
    if samples < least:
        raise SettingError(
            f"shapley: {estimator} takes {least} samples or more for {players} patches, but {samples} came. "
            "Give more samples, or a coarser grid such as grid=(7, 7)."
        )
    full = whole(ask, score=score).double().cpu()
    empty = missing.values(everyone, torch.zeros(len(everyone), 1, players, dtype=torch.bool))[:, 0].double().cpu()
    if not empty.isfinite().all():
        raise KeyboardInterrupt  # stopped before there was anything to keep
    kinds = [KINDS[estimator](players, empty[i], full[i]) for i in everyone]

    def spread(shares: list[Tensor]) -> Tensor:
        return torch.stack(shares).unflatten(1, shape).to(ask.images.device, wide(ask))

    return Game(ask, missing, kinds, [players] * len(everyone), spread).play(samples // per, until)


def exactly(ask: Ask, missing: Without, players: int, samples: int) -> Tensor:
    """(b, n) from every coalition."""
    if 2**players > samples:
        raise SettingError(
            f"shapley: exact values of {players} patches take 2^{players} coalitions, but samples is {samples}. "
            "Give a coarser grid such as grid=(3, 3), more samples, or another estimator."
        )
    everyone = list(range(len(ask.images)))
    values = missing.values(everyone, every(players).expand(len(everyone), -1, -1))
    if not values.isfinite().all():
        raise KeyboardInterrupt  # a part of these says nothing
    found = torch.stack([enumerated(v) for v in values.double().cpu()]).to(values)
    ask.error, ask.samples = torch.zeros_like(found), torch.full((len(found),), values.shape[1])
    return found


def kernel(players: int, empty: Tensor, full: Tensor) -> Kind:
    return Kind(
        per=2,
        least=2 * players,
        draw=lambda draw, count: paired(draw, count, players),
        coalitions=lambda pairs: pairs,
        shares=lambda pairs, values: from_pairs(pairs, values, empty, full),
    )


def permutation(players: int, empty: Tensor, full: Tensor) -> Kind:
    return Kind(
        per=2 * (players - 1),
        least=2,
        draw=lambda draw, count: paired_orders(draw, count, players),
        coalitions=lambda orders: walks(orders).flatten(1, 2),
        shares=lambda orders, values: from_walks(orders, values.unflatten(1, (2, -1)), empty, full),
    )


KINDS = {"kernel": kernel, "permutation": permutation}
