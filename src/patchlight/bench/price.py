"""What a plan will cost: passes by what methods declare, hours by running a little of it for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchlight.bench.contents import groups
from patchlight.bench.drive import ranges
from patchlight.bench.opened import Opened
from patchlight.bench.plan import Plan
from patchlight.bench.run import Job, Shard, Worker
from patchlight.bench.store import Store
from patchlight.core.registry import Cost, get

MINUTE = 60.0


@dataclass(frozen=True)
class Line:
    """One method on one model and data set: what is declared, and what was seen."""

    model: str
    data: str
    method: str
    pictures: int
    forwards: float
    backwards: float
    seconds: float  # for all pictures, metrics included
    probed: int  # pictures of the probe; 0: from the declared passes


@dataclass(frozen=True)
class Price:
    """The sum, and where it comes from."""

    plan: str
    device: str
    rows: tuple[Line, ...]

    @property
    def forwards(self) -> float:
        return sum(r.forwards for r in self.rows)

    @property
    def backwards(self) -> float:
        return sum(r.backwards for r in self.rows)

    @property
    def hours(self) -> float:
        return sum(r.seconds for r in self.rows) / 3600

    def record(self) -> dict[str, Any]:
        return {"plan": self.plan, "device": self.device, "hours": self.hours, "forwards": self.forwards,
                "backwards": self.backwards, "rows": [vars(r) for r in self.rows]}  # fmt: skip

    def lines(self) -> list[str]:
        total = f"{self.plan} on {self.device}: {lasting(self.hours)} by one worker, {self.forwards:.3g} forward and "
        found = [f"{total}{self.backwards:.3g} backward passes for the maps, and those of the metrics"]
        for r in sorted(self.rows, key=lambda r: -r.seconds):
            how = f"seen on {r.probed}" if r.probed else "from its declared passes"
            found.append(f"  {lasting(r.seconds / 3600):>12s}  {r.model} on {r.data}: {r.method}, {r.pictures} pictures ({how})")
        return found


def lasting(hours: float) -> str:
    """In the unit that says something."""
    seconds = hours * 3600
    if seconds < 1:
        return "under a second"
    return (
        f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{hours:.1f} hours"
    )


def price(plan: Plan, *, device: str = "auto", budget: float = MINUTE, clock: Callable[[], float] = time.perf_counter) -> Price:
    """Run every method and metric on a few pictures, the cheap ones first, until the budget is spent; scale up the rest."""
    opened = Opened(plan, device)
    worker = Worker(Job(plan, Store("memory://price"), device))
    worker.opened = opened
    found, todo = [], groups(plan)
    until = clock() + budget
    for number, ((model, data, target, seed), methods) in enumerate(todo.items()):
        pictures = sum(stop - start for start, stop in ranges(opened, data))
        share = (until - clock()) / (len(todo) - number)
        probe = Probe(worker, Shard(model, data, target, seed, 0, 0, "", ()), methods, min(pictures, plan.shard), clock)
        found += probe.lines(pictures, max(1.0, share))
    return Price(plan.name, opened.subject(next(iter(plan.models))).device.type, tuple(found))


def passes(plan: Plan, label: str) -> Cost:
    name, settings = plan.method(label)
    return get(name).cost(settings)


def weight(cost: Cost) -> float:
    """A backward pass takes about two forward passes."""
    return cost.forwards + 2 * cost.backwards


@dataclass(frozen=True, eq=False)
class Probe:
    """A few pictures of one model and data set. A unit is what runs together: methods that share a trace, or one method."""

    worker: Worker
    shard: Shard
    methods: Mapping[str, Sequence[str]]
    most: int
    clock: Callable[[], float]

    def units(self) -> list[tuple[str, ...]]:
        plan = self.worker.job.plan
        shared = tuple(m for m in self.methods if get(plan.method(m)[0]).traced)
        alone = sorted((m for m in self.methods if m not in shared), key=lambda m: weight(passes(plan, m)))
        return [*([shared] if shared else []), *((m,) for m in alone)]

    def lines(self, pictures: int, budget: float) -> list[Line]:
        units = self.units()
        until, seen = self.clock() + budget, dict[tuple[str, ...], tuple[float, int]]()
        self.seconds(units[0], 1)  # the first call warms up
        for i, unit in enumerate(units):
            left = until - self.clock()
            if seen and (left <= 0 or self.expected(seen, unit) > left):
                continue
            alone = self.seconds(unit, 1)
            count = max(1, min(self.most, int(left / (len(units) - i) / max(alone, 1e-6)) - 1))
            seen[unit] = (self.seconds(unit, count) / count, count) if count > 1 else (alone, 1)
        return [self.line(unit, pictures, seen) for unit in units]

    def cost(self, unit: Sequence[str]) -> Cost:
        every = [passes(self.worker.job.plan, m) for m in unit]
        return Cost(max(c.forwards for c in every), max(c.backwards for c in every)) if len(unit) > 1 else every[0]

    def expected(self, seen: Mapping[tuple[str, ...], tuple[float, int]], unit: Sequence[str]) -> float:
        """Seconds of a picture: a straight line through the single methods seen, cheapest to costliest, over their passes."""
        known = sorted((weight(self.cost(u)), one / len(u)) for u, (one, _) in seen.items())
        (low, first), (high, last) = known[0], known[-1]
        slope = max(0.0, (last - first) / (high - low)) if high > low else last / max(1.0, high)
        return last + slope * (weight(self.cost(unit)) - high)

    def seconds(self, unit: Sequence[str], count: int) -> float:
        began = self.clock()
        todo = tuple((m, tuple(self.methods[m])) for m in unit)
        for _ in self.worker.rows(replace(self.shard, stop=count, todo=todo)):
            pass
        return self.clock() - began

    def line(self, unit: tuple[str, ...], pictures: int, seen: Mapping[tuple[str, ...], tuple[float, int]]) -> Line:
        one, probed = seen.get(unit) or (self.expected(seen, unit), 0)
        cost, names = self.cost(unit), ", ".join(unit)
        return Line(self.shard.model, self.shard.data, names, pictures, cost.forwards * pictures, cost.backwards * pictures,
                    one * pictures, probed)  # fmt: skip
