"""What a plan will cost: passes by what methods declare, hours by running a little of it for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchlight.bench.drive import groups, ranges
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
        total = f"{self.plan} on {self.device}: {self.hours:.2f} hours by one worker, {self.forwards:.3g} forward and "
        found = [f"{total}{self.backwards:.3g} backward passes for the maps, and those of the metrics"]
        for r in sorted(self.rows, key=lambda r: -r.seconds):
            how = f"seen on {r.probed}" if r.probed else "from its declared passes"
            found.append(f"  {r.seconds / 3600:8.3f} h  {r.model} on {r.data}: {r.method}, {r.pictures} pictures ({how})")
        return found


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


def declared(plan: Plan, label: str) -> Cost:
    name, settings = plan.method(label)
    return get(name).cost(settings)


@dataclass(frozen=True, eq=False)
class Probe:
    """A few pictures of one model and data set."""

    worker: Worker
    shard: Shard
    methods: Mapping[str, Sequence[str]]
    most: int
    clock: Callable[[], float]

    def lines(self, pictures: int, budget: float) -> list[Line]:
        plan = self.worker.job.plan
        cost = {m: declared(plan, m) for m in self.methods}
        order = sorted(self.methods, key=lambda m: cost[m].forwards + 2 * cost[m].backwards)
        until, seen = self.clock() + budget, dict[str, tuple[float, int]]()
        self.seconds([order[0]], 1)  # the first call warms up
        for i, method in enumerate(order):
            left = until - self.clock()
            if left <= 0 or (seen and self.expected(cost, seen, method) > left):
                continue
            alone = self.seconds([method], 1)
            count = max(1, min(self.most, int(left / (len(order) - i) / max(alone, 1e-6))))
            seen[method] = (self.seconds([method], count) / count, count) if count > 1 else (alone, 1)
        return [self.line(plan, m, pictures, cost, seen) for m in self.methods]

    def expected(self, cost: Mapping[str, Cost], seen: Mapping[str, tuple[float, int]], method: str) -> float:
        """Seconds of a picture from the declared passes, at the rate of the costliest method seen."""
        other = max(seen, key=lambda m: cost[m].forwards + 2 * cost[m].backwards)
        passes = cost[other].forwards + 2 * cost[other].backwards
        return seen[other][0] * max(1.0, (cost[method].forwards + 2 * cost[method].backwards) / max(1.0, passes))

    def seconds(self, methods: Sequence[str], count: int) -> float:
        began = self.clock()
        todo = tuple((m, tuple(self.methods[m])) for m in methods)
        for _ in self.worker.rows(replace(self.shard, stop=count, todo=todo)):
            pass
        return self.clock() - began

    def line(self, plan: Plan, method: str, pictures: int, cost: Mapping[str, Cost], seen: Mapping[str, tuple[float, int]]) -> Line:
        one, probed = seen.get(method, (self.expected(cost, seen, method) if seen else float("nan"), 0))
        passes = cost[method]
        return Line(self.shard.model, self.shard.data, method, pictures, passes.forwards * pictures,
                    passes.backwards * pictures, one * pictures, probed)  # fmt: skip
