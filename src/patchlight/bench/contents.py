"""What a plan consists of in a store: which cell each of its labels is, and which pictures each of its data sets has.

Rows are kept by what they depend on, not by who asked. A changed setting, another version of torch or another plan in the same
store leaves rows under the same labels: a report takes those that its plan asked for last, and gives them its plan's labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from patchlight.bench.cell import canonical
from patchlight.bench.opened import Opened
from patchlight.bench.plan import Plan
from patchlight.bench.store import Store

Group = tuple[str, str, str, int]  # model, data, target, seed
Methods = dict[str, list[str]]  # method -> metrics


def groups(plan: Plan) -> dict[Group, Methods]:
    """Blocks that ask for the same model, data, target and seed are done together."""
    found: dict[Group, Methods] = {}
    for block in plan.blocks:
        for model in block.models:
            for data in block.data:
                for seed in plan.seeds:
                    methods = found.setdefault((model, data, block.target, seed), {})
                    for method in block.methods:
                        known = methods.setdefault(method, [])
                        known += [m for m in block.metrics if m not in known]
    return found


Labels = tuple[str, str, str, int, str, str]
LABELS = ("model", "data", "target", "seed", "method", "metric")
MEANING = ("method_name", "method_settings", "metric_name", "metric_settings")


@dataclass(frozen=True)
class Contents:
    """The cells of a plan by its labels, and the digests of its pictures by data set, as the last run had them."""

    plan: str
    cells: Mapping[Labels, str]
    pictures: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, opened: Opened) -> Contents:
        cells = {
            (model, data, target, seed, method, metric): opened.cell(model, method, metric, target, seed).key
            for (model, data, target, seed), methods in groups(opened.plan).items()
            for method, metrics in methods.items()
            for metric in metrics
        }
        used = dict.fromkeys(data for _, data, *_ in cells)
        pictures = {data: tuple(opened.content(data, n) for n in opened.data(data)[1]) for data in used}
        return cls(opened.plan.name, cells, pictures)

    def text(self) -> str:
        return json.dumps({"cells": [[*k, v] for k, v in self.cells.items()], "pictures": self.pictures}, indent=0)

    def rows(self, whole: pa.Table, plan: Plan) -> pa.Table:
        """The rows that are the plan's, under its labels; a cell with several labels comes once for each."""
        there: dict[str, list[int]] = {}
        for place, key in enumerate(whole["cell"].to_pylist()):
            there.setdefault(key, []).append(place)
        content, meant = whole["content"].to_pylist(), meaning(plan)
        settings = list(zip(*(whole[c].to_pylist() for c in MEANING), strict=True))
        pictures = {data: set(found) for data, found in self.pictures.items()}
        places: list[int] = []
        names: list[Labels] = []
        for labels, key in self.cells.items():
            _, data, _, _, method, metric = labels
            kept = [i for i in there.get(key, ()) if content[i] in pictures[data] and settings[i] == meant.get((method, metric))]
            places += kept
            names += [labels] * len(kept)
        found = whole.take(pa.array(places, pa.int64()))
        for i, name in enumerate(LABELS):
            column = found.column_names.index(name)
            found = found.set_column(column, found.field(column), pa.array([n[i] for n in names], found.field(column).type))
        return found


def meaning(plan: Plan) -> dict[tuple[str, str], tuple[str, str, str, str]]:
    """(method, metric) -> what these labels mean in the plan as it is now: a row made with anything else is not its row."""
    methods = {m: plan.method(m) for m in plan.methods}
    metrics = {m: plan.metric(m) for m in plan.metrics}
    return {
        (method, metric): (name, canonical(settings), measure, canonical(given))
        for method, (name, settings) in methods.items()
        for metric, (measure, given) in metrics.items()
    }


def remember(store: Store, new: Contents) -> None:
    """Beside the parts; labels that this run did not ask for (--methods) keep what they were."""
    old = recall(store, new.plan)
    if old is not None:
        new = Contents(new.plan, {**old.cells, **new.cells}, {**old.pictures, **new.pictures})
    store.remember(f"{new.plan}.json", new.text())


def recall(store: Store, plan: str) -> Contents | None:
    """None where the plan was never run in this store."""
    text = store.recall(f"{plan}.json")
    if text is None:
        return None
    found = json.loads(text)
    return Contents(plan, {tuple(k): v for *k, v in found["cells"]}, {d: tuple(p) for d, p in found["pictures"].items()})
