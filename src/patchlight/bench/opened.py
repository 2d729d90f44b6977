"""Models and data sets of a plan, opened once in a process, and the keys that depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from patchlight import data as sets
from patchlight.bench.cell import Cell, canonical, digest, packages, weights_digest
from patchlight.bench.plan import Plan
from patchlight.core.errors import PatchlightError, SettingError
from patchlight.core.metric import get_metric
from patchlight.core.registry import get
from patchlight.data import DataSet, Item
from patchlight.models.load import load
from patchlight.models.subject import Subject


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pictures of a shard that could be read, with what is known of them, and those that could not."""

    items: Sequence[Item]
    numbers: Sequence[int]
    contents: Mapping[int, str]  # number -> digest
    unread: Sequence[tuple[int, str, str]]  # number, name, reason

    def __len__(self) -> int:
        return len(self.items)

    @property
    def names(self) -> list[str]:
        return [i.name for i in self.items]

    @property
    def labels(self) -> list[int | None]:
        return [i.label for i in self.items]

    def target(self, target: str) -> Any:
        return None if target == "predicted" else self.labels


@dataclass(eq=False)
class Opened:
    """Everything of a plan that is costly to open."""

    plan: Plan
    device: str = "auto"
    subjects: dict[str, Subject] = field(default_factory=dict)
    digests: dict[str, tuple[str, str]] = field(default_factory=dict)  # weights, preprocessing
    sets: dict[str, tuple[DataSet, list[int]]] = field(default_factory=dict)
    contents: dict[tuple[str, int], str] = field(default_factory=dict)
    cells: dict[tuple[str, str, str, str, int], Cell] = field(default_factory=dict)

    def subject(self, label: str) -> Subject:
        if label not in self.subjects:
            given = dict(self.plan.models[label])
            changes = given.pop("preprocess", {})
            subject = load(str(given.pop("load", label)), device=self.device, **given)
            if changes:
                listed = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
                subject = replace(subject, preprocess=replace(subject.preprocess, **listed))
            if self.plan.precision == "float64":
                subject.model.double()
            self.subjects[label] = subject
            self.digests[label] = weights_digest(subject.model), canonical(asdict(subject.preprocess))
        return self.subjects[label]

    def data(self, label: str) -> tuple[DataSet, list[int]]:
        """The data set and the numbers of the chosen pictures in it: evenly spread where `count` asks for fewer."""
        if label not in self.sets:
            given = dict(self.plan.data[label])
            count, start = given.pop("count", None), int(given.pop("start", 0))
            whole = sets.open(str(given.pop("name", label)), given.pop("root", None), **given)
            self.sets[label] = whole, spread(len(whole), start, count, label)
        return self.sets[label]

    def content(self, label: str, number: int) -> str:
        """The digest of one picture of the whole set and of what is known of it."""
        if (label, number) not in self.contents:
            whole, _ = self.data(label)
            turned = whole.entries[number].upright
            self.contents[label, number] = digest([whole.of([whole.entries[number]]).digest(), turned])
        return self.contents[label, number]

    def digest(self, label: str, start: int, stop: int) -> str:
        """Of a range of the chosen pictures: equal for equal content, wherever it lies."""
        return digest([self.content(label, n) for n in self.data(label)[1][start:stop]])

    def pictures(self, label: str, start: int, stop: int) -> Pictures:
        whole, numbers = self.data(label)
        items, good, bad = [], [], []
        for n in numbers[start:stop]:
            try:
                items.append(whole[n])
                good.append(n)
            except (PatchlightError, OSError) as error:
                bad.append((n, whole.entries[n].name, str(error)))
        return Pictures(items, good, {n: self.content(label, n) for n in numbers[start:stop]}, bad)

    def cell(self, model: str, method: str, metric: str, target: str, seed: int) -> Cell:
        """Made once: it is asked for with every row, and the versions of packages are read from files."""
        asked = model, method, metric, target, seed
        if asked not in self.cells:
            self.cells[asked] = self.make_cell(*asked)
        return self.cells[asked]

    def make_cell(self, model: str, method: str, metric: str, target: str, seed: int) -> Cell:
        self.subject(model)
        weights, preprocess = self.digests[model]
        method_name, method_settings = self.plan.method(method)
        metric_name, metric_settings = self.plan.metric(metric)
        return Cell(
            model=model,
            weights=weights,
            preprocess=preprocess,
            method=method_name,
            method_version=get(method_name).version,
            method_settings=canonical(method_settings),
            metric=metric_name,
            metric_version=get_metric(metric_name).version,
            metric_settings=canonical(metric_settings),
            target=target,
            seed=seed,
            precision=self.plan.precision,
            batch=self.plan.batch,
            packages=canonical(packages()),
        )


def spread(length: int, start: int, count: int | None, label: str) -> list[int]:
    """`count` numbers evenly spaced from `start` on: data sets are often sorted by class."""
    left = length - start
    if left < 1 or (count is not None and not 1 <= count <= left):
        raise SettingError(f"data {label}: {count} pictures from number {start} on were asked for, but it has {length}.")
    return list(range(start, length)) if count is None else [start + i * left // count for i in range(count)]
