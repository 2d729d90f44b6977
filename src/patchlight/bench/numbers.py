"""The numbers of a store as tables: one for each model, data set, target and precision; methods down, metrics across."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from patchlight.bench.plan import Plan
from patchlight.bench.statistics import DRAWS, Comparison, Estimate, adjusted, estimate, paired, ranks
from patchlight.core.metric import Metric, get_metric

BASELINE = "baseline"


@dataclass(frozen=True, eq=False)
class Column:
    """One metric for all methods of a table: per picture (seeds averaged), and what is made of them."""

    label: str
    metric: Metric
    settings: Mapping[str, Any]
    values: Mapping[str, Mapping[str, float]]  # method -> picture -> value
    parts: Mapping[str, Mapping[int, Mapping[str, Mapping[str, Any]]]]  # method -> seed -> picture -> parts
    curves: Mapping[str, np.ndarray]  # method -> mean curve
    at: np.ndarray | None
    failures: Mapping[str, Mapping[str, int]]  # method -> reason -> how many pictures

    @property
    def higher(self) -> bool | None:
        return {"higher": True, "lower": False, "neither": None}[self.metric.better]

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        return {m: self.estimate(m) for m in self.values}

    def estimate(self, method: str) -> Estimate:
        pool, seeds = self.metric.pool, self.parts.get(method)
        if pool is None or not seeds:
            return estimate(np.array([self.values[method][p] for p in sorted(self.values[method])]))
        pictures = sorted(set.intersection(*(set(found) for found in seeds.values())))
        stacks = [stacked([found[p] for p in pictures]) for found in seeds.values()]
        return pooled(stacks, pool, self.settings, len(pictures))

    @cached_property
    def ranks(self) -> dict[str, int]:
        if self.higher is None:
            return {}
        means = {m: e.mean for m, e in self.estimates.items() if e.n and np.isfinite(e.mean)}
        return ranks(means, higher=self.higher)

    @cached_property
    def best(self) -> str | None:
        return min(self.ranks, key=self.ranks.__getitem__) if self.ranks else None

    def against(self, other: str) -> list[Comparison]:
        """Every other method against this one, on the pictures that both have, corrected for their number."""
        found = [paired(m, other, self.values[m], self.values[other]) for m in self.values if m != other]
        return adjusted([c for c in found if c.n])


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of one model on one data set."""

    model: str
    data: str
    target: str
    precision: str
    methods: tuple[str, ...]
    columns: tuple[Column, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)  # of a map, by method
    pictures: int = 0

    @property
    def title(self) -> str:
        return f"{self.model} on {self.data}, explaining the {self.target} class, {self.precision}"

    def mean_rank(self, method: str) -> float:
        found = [c.ranks[method] for c in self.columns if method in c.ranks]
        return float(np.mean(found)) if found else float("nan")


def stacked(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """name -> (n, ...) tensors of the parts of n pictures."""
    import torch

    return {name: torch.tensor([p[name] for p in parts], dtype=torch.float64) for name in (parts[0] if parts else ())}


def pooled(seeds: Sequence[Mapping[str, Any]], pool: Any, settings: Mapping[str, Any], n: int, *, seed: int = 0) -> Estimate:
    """A data set's number made of the means of its pictures' parts, the mean over seeds, with the bootstrap over pictures.

    Every seed sees the same draw of pictures.
    """
    import torch

    if n == 0:
        return Estimate(0, float("nan"), float("nan"), float("nan"))

    def number(times: Any) -> Any:
        """(r, n) how often each picture counts -> (r,)"""
        found = []
        for parts in seeds:
            means = {k: (times @ v.reshape(n, -1) / n).reshape(len(times), *v.shape[1:]) for k, v in parts.items()}
            found.append(pool(means, settings).reshape(len(times)))
        return torch.stack(found).mean(0)

    middle = float(number(torch.ones(1, n, dtype=torch.float64))[0])
    if n == 1:
        return Estimate(n, middle, float("nan"), float("nan"))
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    drawn = number(torch.from_numpy(times).double()).numpy()
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Estimate(n, middle, float(low), float(high))


def tables(rows: pa.Table, plan: Plan | None = None) -> list[Table]:
    """All tables of a store; with a plan, in its order and only what it names."""
    names = list(zip(*(rows[c].to_pylist() for c in ("model", "data", "target", "precision")), strict=True))
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, key in enumerate(names):
        groups[key].append(i)
    keys = sorted(groups, key=lambda k: (place(plan.models if plan else (), k[0]), place(plan.data if plan else (), k[1]), k))
    if plan is not None:
        keys = [k for k in keys if k[0] in plan.models and k[1] in plan.data]
    return [table_of(key, rows.take(pa.array(groups[key])), plan) for key in keys]


def place(order: Iterable[str], name: str) -> int:
    found = list(order)
    return found.index(name) if name in found else len(found)


def table_of(key: tuple[str, ...], rows: pa.Table, plan: Plan | None) -> Table:
    """One metric after the other: rows as Python objects, with their curves, take some twenty times their room in the store."""
    of, at = rows["method"].to_pylist(), rows["metric"].to_pylist()
    methods = sorted(set(of), key=lambda m: (place(plan.methods if plan else (), m), m))
    metrics = sorted(set(at), key=lambda m: (place(plan.metrics if plan else (), m), m))
    if plan is not None:
        methods, metrics = [m for m in methods if m in plan.methods], [m for m in metrics if m in plan.metrics]
    kept = set(methods)
    columns = []
    for metric in metrics:
        places = [i for i, m in enumerate(at) if m == metric and of[i] in kept]
        columns.append(column_of(metric, rows.take(pa.array(places, pa.int64())).to_pylist()))
    seconds: dict[str, list[float]] = {m: [] for m in methods}
    for method, found in zip(of, rows["map_seconds"].to_pylist(), strict=True):
        if method in kept and found is not None:
            seconds[method].append(found)
    model, data, target, precision = key
    pictures = len(set(rows["picture"].to_pylist()))
    return Table(model, data, target, precision, tuple(methods), tuple(columns),
                 {m: median(s) for m, s in seconds.items()}, pictures)  # fmt: skip


def median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def column_of(label: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    parts: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    curves: dict[str, list[Any]] = defaultdict(list)
    failures: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    at = None
    for row in rows:
        if row["value"] is None or not np.isfinite(row["value"]):
            failures[row["method"]][row["error"] or "no number"] += 1
            continue
        values[row["method"]][row["picture"]].append(row["value"])
        if row["parts"]:
            parts[row["method"]][row["seed"]][row["picture"]] = json.loads(row["parts"])
        if row["curve"]:
            curves[row["method"]].append(row["curve"])
            at = row["at"]
    mean = {m: {p: float(np.mean(v)) for p, v in found.items()} for m, found in values.items()}
    return Column(
        label,
        get_metric(rows[0]["metric_name"]),
        json.loads(rows[0]["metric_settings"]),
        mean,
        parts,
        {m: np.mean(np.array(c), axis=0) for m, c in curves.items()},
        None if at is None else np.array(at),
        failures,
    )
