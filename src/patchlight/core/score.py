"""What `evaluate` returns: a number for each picture, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from patchlight.core.metric import Metric

RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Score:
    """The numbers of one metric for a batch of maps."""

    metric: Metric
    settings: Mapping[str, Any]
    values: Tensor
    """(B,) one for each picture; NaN where there is none, and `notes` says why."""
    curve: Tensor | None = None
    """(B, steps), where the metric has one, at the places `at` (steps,)."""
    at: Tensor | None = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """(B, ...) what the number of the whole data set is made of, where that is not the mean of the values."""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        low, high = self.interval
        return f"Score({self.metric.name} {self.mean:.4g} [{low:.4g}, {high:.4g}], n = {self.n}, {self.metric.better} is better)"

    @property
    def n(self) -> int:
        """How many pictures have a value."""
        return int(self.counted.sum())

    @property
    def counted(self) -> Tensor:
        return ~self.values.isnan()

    @property
    def pooled(self) -> bool:
        return self.metric.pool is not None and bool(self.parts)

    @cached_property
    def mean(self) -> float:
        """The number of the data set: the mean of the values, or pooled over all pictures where the metric is defined so."""
        return float(self.summary(torch.ones(1, len(self.rows), dtype=torch.float64))[0]) if self.n else float("nan")

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of `mean`: 2,000 draws of the pictures, with a fixed seed; NaN below two pictures."""
        if self.n < 2:
            return float("nan"), float("nan")
        draws = torch.randint(self.n, (RESAMPLES, self.n), generator=torch.Generator().manual_seed(0))
        weights = torch.zeros(RESAMPLES, self.n, dtype=torch.float64)
        weights.scatter_add_(1, draws, torch.ones_like(draws, dtype=torch.float64))
        low, high = self.summary(weights).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return low, high

    @cached_property
    def rows(self) -> Tensor:
        """(n, f) the values, or the flattened parts, of the pictures that count."""
        given = list(self.parts.values()) if self.pooled else [self.values]
        columns = [g.detach().double().cpu().reshape(len(self), -1) for g in given]
        return torch.cat(columns, 1)[self.counted.cpu()]

    def summary(self, weights: Tensor) -> Tensor:
        """(r, n) how often each picture counts -> (r,) the number of the data set."""
        means = weights @ self.rows / weights.sum(1, keepdim=True)
        if self.metric.pool is None or not self.pooled:
            return means[:, 0]
        shapes = {name: part.shape[1:] for name, part in self.parts.items()}
        pieces = means.split([max(1, shape.numel()) for shape in shapes.values()], 1)
        parts = {n: p.reshape(len(weights), *s) for (n, s), p in zip(shapes.items(), pieces, strict=True)}
        return self.metric.pool(parts, self.settings)

    def record(self) -> dict[str, Any]:
        """The numbers and how they came about, ready for JSON (None for NaN)."""
        low, high = self.interval
        return {
            "metric": self.metric.name,
            "version": self.metric.version,
            "settings": dict(self.settings),
            "better": self.metric.better,
            "mean": number(self.mean),
            "interval": [number(low), number(high)],
            "n": self.n,
            "values": {name: number(v) for name, v in zip(self.names, self.values.tolist(), strict=True)},
            "notes": list(self.notes),
        }


def number(value: float) -> float | None:
    return None if value != value else float(value)
