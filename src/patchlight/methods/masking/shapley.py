from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.baseline.centre import grid_of
from patchlight.methods.masking._coalitions import every, paired, paired_orders, walks
from patchlight.methods.masking._estimate import relative_error, report, rounds
from patchlight.methods.masking._shares import Shares, enumerated, from_pairs, from_walks
from patchlight.methods.masking._variants import Score, whole
from patchlight.methods.masking._without import Remove, Without, blocks_of, checked_players, without
from patchlight.tracing.ask import Ask

CHECK = 256  # coalitions between two looks at the error, at least


@method(
    paper="Shapley 1953; Lundberg and Lee 2017 (KernelSHAP); Covert and Lee 2021 (pairs); Castro et al. 2009 (permutations)",
    equation="φ_i = Σ_{S without i} |S|! (n - |S| - 1)! / n! (v(S + i) - v(S)), v(S) the score with the patches S alone",
    cost=lambda s: Cost(s["samples"] + 2 + CHECKING[s["remove"]], 0, "at most"),
    stochastic=True,
)
def shapley(
    ask: Ask,
    *,
    estimator: Literal["kernel", "permutation", "exact"] = "kernel",
    samples: int = 2048,
    players: tuple[int, int] | None = None,
    remove: Remove = "paint",
    score: Score = "probability",
    until: float | None = None,
) -> Tensor:
    """What each patch is worth: the mean of what it adds to the score, over all orders in which patches may come in.

    The values add up to the score of the picture less that of a picture without patches. `estimator`: "kernel" is weighted least
    squares over coalitions drawn from the Shapley kernel, each with its complement; "permutation" walks through random orders and
    their reverses; "exact" scores every coalition of few players. `samples` coalitions are scored at most. `players` (rows,
    columns) are blocks of patches, whose worth is spread over their patches; None: every patch by itself, on a 14 x 14 grid where
    the network has none. `remove`: patches are painted over with the mean colour, or their tokens dropped, which takes half the
    time but a plain ViT with a class token; the two answer different questions. `until` ends the sampling of a picture when the
    standard error is that share of the map's range.
    """
    grid = grid_of(ask)
    blocks = checked_players(players, grid, method="shapley")
    missing = without(ask, blocks, remove=remove, score=score, method="shapley")
    count, everyone = prod(blocks), list(range(len(ask.images)))
    game = Game(missing, count, blocks_of(grid, blocks, grid).to(ask.images.device))
    if estimator == "exact":
        if 2**count > samples:
            raise SettingError(
                f"shapley: exact values of {count} players take 2^{count} coalitions, but samples is {samples}. "
                "Give fewer players, such as players=(3, 3), more samples, or another estimator."
            )
        coalitions = every(count).expand(len(everyone), -1, -1)
        return game.exactly(missing.values(everyone, coalitions))
    kind = ESTIMATORS[estimator]
    per, draws = kind.per(count), samples // kind.per(count)
    if draws < kind.least(count):
        raise SettingError(
            f"shapley: {estimator} takes {per * kind.least(count)} samples or more for {count} players, but {samples} came. "
            "Give more samples or fewer players, such as players=(7, 7)."
        )
    game.start(whole(ask, score=score), missing.values(everyone, torch.zeros(len(everyone), 1, count, dtype=torch.bool))[:, 0])
    for opened, begin, end in rounds(ask, draws, game, until, every=max(kind.least(count), CHECK // per)):
        game.play(opened, end - begin, kind)
    if not game.mean.isfinite().all():
        raise KeyboardInterrupt  # stopped before there was anything to keep
    return report(ask, game, count=draws * per, until=until, unit="coalitions")


@dataclass(frozen=True)
class Estimator:
    """Draws of `per` coalitions each, of which `least` are needed; how to draw them, and what they say."""

    per: Callable[[int], int]
    least: Callable[[int], int]
    draw: Callable[[torch.Generator, int, int], Tensor]
    coalitions: Callable[[Tensor], Tensor]
    shares: Callable[[Tensor, Tensor, Tensor, Tensor], Shares]


ESTIMATORS = {
    "kernel": Estimator(
        per=lambda _: 2,
        least=lambda n: 2 * n,
        draw=paired,
        coalitions=lambda pairs: pairs,
        shares=from_pairs,
    ),
    "permutation": Estimator(
        per=lambda n: 2 * (n - 1),
        least=lambda _: 2,
        draw=paired_orders,
        coalitions=lambda orders: walks(orders).flatten(1, 2),
        shares=lambda orders, values, empty, full: from_walks(orders, values.unflatten(1, (2, -1)), empty, full),
    ),
}
CHECKING = {"paint": 0, "drop": 3}  # passes of a batch's first picture, which show that dropping equals hiding


@dataclass(eq=False)
class Game:
    """What was drawn of each picture, what it was worth, and the shares that follow from it."""

    missing: Without
    players: int
    patches: Tensor
    """(h, w) the player that each patch belongs to."""
    full: Tensor = field(init=False)
    empty: Tensor = field(init=False)
    generators: list[torch.Generator] = field(default_factory=list)
    drawn: list[list[Tensor]] = field(default_factory=list)
    values: list[list[Tensor]] = field(default_factory=list)
    shares: list[Shares] = field(default_factory=list)
    count: Tensor = field(init=False)

    def start(self, full: Tensor, empty: Tensor) -> None:
        if not empty.isfinite().all():
            raise KeyboardInterrupt  # stopped before there was anything to keep
        self.full, self.empty = full.double().cpu(), empty.double().cpu()
        self.generators = self.missing.ask.generators()
        self.drawn, self.values = [[] for _ in full], [[] for _ in full]
        nothing = torch.full((self.players,), float("nan"), dtype=torch.float64)
        self.shares = [Shares(nothing, nothing)] * len(full)
        self.count = torch.zeros(len(full), dtype=torch.long)

    def play(self, opened: list[int], draws: int, kind: Estimator) -> None:
        """Draw for every picture that is still open, score all of it together, and work out the shares anew."""
        plans = {i: kind.draw(self.generators[i], draws, self.players) for i in opened}
        per = kind.per(self.players)
        coalitions = torch.zeros(len(self.full), draws * per, self.players, dtype=torch.bool)
        for i, plan in plans.items():
            coalitions[i] = kind.coalitions(plan).flatten(0, 1)
        values = self.missing.values(opened, coalitions).double().cpu().unflatten(1, (draws, per))
        for i, plan in plans.items():
            done = values[i].isfinite().all(1)  # all, unless the user asked for an end
            self.drawn[i].append(plan[done])
            self.values[i].append(values[i][done])
            self.count[i] += int(done.sum()) * per
            if self.count[i] >= per * kind.least(self.players):
                self.shares[i] = kind.shares(torch.cat(self.drawn[i]), torch.cat(self.values[i]), self.empty[i], self.full[i])

    def exactly(self, values: Tensor) -> Tensor:
        if not values.isfinite().all():
            raise KeyboardInterrupt
        ask = self.missing.ask
        self.shares = [Shares(s, torch.zeros_like(s)) for s in map(enumerated, values.double().cpu())]
        ask.error, ask.samples = self.error, torch.full((len(values),), values.shape[1], device=ask.images.device)
        return self.mean

    def on_patches(self, shares: list[Tensor]) -> Tensor:
        """(b, h, w): a player's share spread evenly over its patches."""
        ask = self.missing.ask
        sizes = torch.bincount(self.patches.flatten(), minlength=self.players).cpu()
        spread = torch.stack(shares) / sizes
        kind = torch.promote_types(ask.images.dtype, torch.float32)
        return spread[:, self.patches.cpu()].to(ask.images.device, kind)

    @property
    def mean(self) -> Tensor:
        return self.on_patches([s.values for s in self.shares])

    @property
    def error(self) -> Tensor:
        return self.on_patches([s.errors for s in self.shares])

    @property
    def relative(self) -> Tensor:
        return relative_error(self.mean, self.error)
