"""What `evaluate` returns: a number for each picture, and what they say together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from patchlight.core.metric import Metric

RESAMPLES = 2000
AT_ONCE = 5_000_000  # drawn numbers in memory


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
        drawing = torch.Generator().manual_seed(0)
        sizes = torch.ones(RESAMPLES, dtype=torch.int64).split(max(1, AT_ONCE // self.n))
        drawn = torch.cat([self.summary(self.weights(len(size), drawing)) for size in sizes])
        low, high = drawn.nanquantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return low, high

    def weights(self, rounds: int, drawing: torch.Generator) -> Tensor:
        """(r, n) how often each picture was drawn."""
        draws = torch.randint(self.n, (rounds, self.n), generator=drawing)
        found = torch.zeros(rounds, self.n, dtype=torch.float64)
        return found.scatter_add_(1, draws, torch.ones_like(draws, dtype=torch.float64))

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


def together(scores: Sequence[Score]) -> Score:
    """One score of several batches of the same metric."""
    first = scores[0]

    def joined(get: Callable[[Score], Tensor | None]) -> Tensor | None:
        """A batch in which every map was broken has no curve: NaN."""
        like = next((t for s in scores if (t := get(s)) is not None), None)
        if like is None:
            return None
        missing = [torch.full((len(s), *like.shape[1:]), torch.nan, dtype=like.dtype, device=like.device) for s in scores]
        return torch.cat([m if (t := get(s)) is None else t for s, m in zip(scores, missing, strict=True)])

    names = dict.fromkeys(n for s in scores for n in s.parts)
    parts = {n: joined(lambda s, n=n: s.parts.get(n)) for n in names}
    return replace(
        first,
        values=torch.cat([s.values for s in scores]),
        curve=joined(lambda s: s.curve),
        at=next((s.at for s in scores if s.at is not None), None),
        parts={n: p for n, p in parts.items() if p is not None},
        names=tuple(n for s in scores for n in s.names),
        notes=added(n for s in scores for n in s.notes),
    )


def added(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes of several batches, each once: "2 maps ..." and "3 maps ..." are 5 maps, "1 of 2 ..." twice is 2 of 4."""
    found: dict[tuple[str, str], list[int]] = {}
    for note in notes:
        begins = re.match(r"(\d+)( of )?((?(2)\d+)) ", note)
        first, joint, second = begins.groups() if begins else ("", None, "")
        counts = [int(c) for c in (first, second) if c]
        key = joint or "", note[begins.end() :] if begins else note
        found[key] = [a + b for a, b in zip(counts, found.get(key, [0, 0]), strict=False)]
    return tuple(f"{joint.join(map(str, counts))} {text}" if counts else text for (joint, text), counts in found.items())


def number(value: float) -> float | None:
    return None if value != value else float(value)
