"""Coalitions of regions are drawn for each picture, scored all together, and turned into what every region is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from patchlight.methods.masking._estimate import relative_error, report, rounds
from patchlight.methods.masking._shares import Shares
from patchlight.methods.masking._without import Without
from patchlight.tracing.ask import Ask

CHECK = 256  # coalitions between two looks at the error, at least


@dataclass(frozen=True)
class Kind:
    """How one picture's coalitions are drawn, `per` of them at a time and `least` times at least, and what they say."""

    per: int
    least: int
    draw: Callable[[torch.Generator, int], Tensor]
    """(generator, m) -> m draws (m, ...)"""
    coalitions: Callable[[Tensor], Tensor]
    """draws (m, ...) -> (m, per, n)"""
    shares: Callable[[Tensor, Tensor], Shares]
    """(draws (m, ...), values (m, per)) -> shares (n,)"""


@dataclass(eq=False)
class Game:
    """What was drawn of each picture, what it was worth, and the shares that follow from it."""

    ask: Ask
    missing: Without
    kinds: Sequence[Kind]
    players: Sequence[int]
    spread: Callable[[list[Tensor]], Tensor]
    """shares (n,) of each picture -> maps (b, ...)"""
    generators: list[torch.Generator] = field(init=False)
    drawn: list[list[Tensor]] = field(init=False)
    values: list[list[Tensor]] = field(init=False)
    shares: list[Shares] = field(init=False)
    count: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.generators = self.ask.generators()
        self.drawn, self.values = [[] for _ in self.kinds], [[] for _ in self.kinds]
        unknown = [torch.full((n,), float("nan"), dtype=torch.float64) for n in self.players]
        self.shares = [Shares(u, u) for u in unknown]
        self.count = torch.zeros(len(self.kinds), dtype=torch.long)

    def play(self, draws: int, until: float | None) -> Tensor:
        """The map after `draws` draws of each picture, or fewer where its error is small enough or the user wants an end."""
        per, least = self.kinds[0].per, max(k.least for k in self.kinds)
        for opened, start, stop in rounds(self.ask, draws, self, until, every=max(least, CHECK // per)):
            self.round(opened, stop - start)
        if not all(s.values.isfinite().all() for s in self.shares):
            raise KeyboardInterrupt  # stopped before there was anything to keep
        return report(self.ask, self, count=draws * per, until=until, unit="coalitions")

    def round(self, opened: Sequence[int], draws: int) -> None:
        """Draw for every picture that is still open, score all of it together, and work out the shares anew."""
        per = self.kinds[0].per
        plans = {i: self.kinds[i].draw(self.generators[i], draws) for i in opened}
        coalitions = torch.zeros(len(self.kinds), draws * per, max(self.players), dtype=torch.bool)
        for i, plan in plans.items():
            coalitions[i, :, : self.players[i]] = self.kinds[i].coalitions(plan).flatten(0, 1)
        values = self.missing.values(opened, coalitions).double().cpu().unflatten(1, (draws, per))
        for i, plan in plans.items():
            done = values[i].isfinite().all(1)  # all, unless the user asked for an end
            self.drawn[i].append(plan[done])
            self.values[i].append(values[i][done])
            self.count[i] += int(done.sum()) * per
            if self.count[i] >= per * self.kinds[i].least:
                self.shares[i] = self.kinds[i].shares(torch.cat(self.drawn[i]), torch.cat(self.values[i]))

    @property
    def mean(self) -> Tensor:
        return self.spread([s.values for s in self.shares])

    @property
    def error(self) -> Tensor:
        return self.spread([s.errors for s in self.shares])

    @property
    def relative(self) -> Tensor:
        return relative_error(self.mean, self.error)
