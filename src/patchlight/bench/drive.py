"""From a plan to shards: what is still to be done, in an order that shares traces and rankings, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from patchlight.bench.contents import Contents, groups, remember
from patchlight.bench.engines import engine
from patchlight.bench.opened import Opened
from patchlight.bench.plan import Plan
from patchlight.bench.run import Done, Job, Shard, Tell
from patchlight.bench.store import Store, missing


def shards(opened: Opened, done: set[tuple[str, str]]) -> Iterator[Shard]:
    """Everything that is not in the store yet."""
    plan, done = opened.plan, set(done)
    for (model, data, target, seed), methods in groups(plan).items():
        cells = {m: {k: opened.cell(model, m, k, target, seed).key for k in metrics} for m, metrics in methods.items()}
        for start, stop in ranges(opened, data):
            pictures = opened.digest(data, start, stop)
            todo = [(m, metrics) for m in methods if (metrics := left(cells[m], pictures, done))]
            if todo:
                yield Shard(model, data, target, seed, start, stop, pictures, tuple(todo))


def left(cells: Mapping[str, str], pictures: str, done: set[tuple[str, str]]) -> tuple[str, ...]:
    """The metrics to be made for a method, and taken for made: what has two labels is made under the first."""
    found = []
    for metric, key in cells.items():
        if (key, pictures) not in done:
            done.add((key, pictures))
            found.append(metric)
    return tuple(found)


def ranges(opened: Opened, data: str) -> list[tuple[int, int]]:
    count, size = len(opened.data(data)[1]), opened.plan.shard
    return [(s, min(s + size, count)) for s in range(0, count, size)]


@dataclass
class State:
    """How far a plan is in a store, counted in (cell, picture) pairs."""

    total: int = 0
    done: int = 0
    rows: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # (model, data) -> done, total


def state(opened: Opened, done: set[tuple[str, str]]) -> State:
    found = State()
    for (model, data, target, seed), methods in groups(opened.plan).items():
        keys = [opened.cell(model, m, k, target, seed).key for m, metrics in methods.items() for k in metrics]
        for start, stop in ranges(opened, data):
            pictures, count = opened.digest(data, start, stop), stop - start
            there = (len(keys) - len(missing(keys, pictures, done))) * count
            before = found.rows.get((model, data), (0, 0))
            found.rows[model, data] = before[0] + there, before[1] + len(keys) * count
            found.done, found.total = found.done + there, found.total + len(keys) * count
    return found


@dataclass
class Outcome:
    """What a run did."""

    shards: int = 0
    rows: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, done: Done) -> None:
        self.shards, self.rows, self.seconds = self.shards + 1, self.rows + done.rows, self.seconds + done.seconds
        for reason, count in done.failed.items():
            self.failed[reason] = self.failed.get(reason, 0) + count


def drive(
    job: Job,
    todo: Sequence[Shard],
    *,
    name: str = "local",
    workers: int | None = None,
    address: str | None = None,
    tell: Tell = lambda _: None,
) -> Outcome:
    """Run what is left of a plan on an engine. Killed at any moment, the same call goes on where it was."""
    run, outcome = engine(name), Outcome()

    def told(done: Done) -> None:
        outcome.add(done)
        tell(done)

    if todo:
        run(job, todo, told, workers=workers, address=address)
    return outcome


def bench(
    plan: Plan, store: str, *, device: str = "auto", threads: int | None = None, retry: bool = False
) -> tuple[Job, list[Shard]]:
    """The job, and what is left to do for it. retry: with what failed before."""
    job, opened = Job(plan, Store(store), device, threads), Opened(plan, device)
    todo = list(shards(opened, job.store.done(failed=not retry)))
    job.store.clean()
    job.store.remember(f"{plan.name}.toml", plan.text)
    remember(job.store, Contents.of(opened))
    return job, todo
