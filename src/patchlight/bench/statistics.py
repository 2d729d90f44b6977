"""Means with intervals, and paired tests: pictures are the unit, and seeds of one picture are averaged first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

DRAWS = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over n pictures with its 95 % bootstrap interval."""

    n: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Comparison:
    """`first` against `second` on the same pictures: mean difference, its interval, and Wilcoxon's signed-rank test."""

    first: str
    second: str
    n: int
    difference: float
    low: float
    high: float
    p: float
    adjusted: float = float("nan")

    @property
    def significant(self) -> bool:
        return self.adjusted < 0.05


def estimate(values: np.ndarray, *, seed: int = 0) -> Estimate:
    """The percentile bootstrap over pictures."""
    if not len(values):
        return Estimate(0, float("nan"), float("nan"), float("nan"))
    low, high = np.percentile(resampled(values, seed), [2.5, 97.5]) if len(values) > 1 else (float("nan"),) * 2
    return Estimate(len(values), float(values.mean()), float(low), float(high))


def resampled(values: np.ndarray, seed: int) -> np.ndarray:
    """(DRAWS,) the mean of pictures drawn with replacement; the same draws for every method of a table."""
    n = len(values)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS)  # (draws, n) how often each is drawn
    return times @ values / n


def paired(first: str, second: str, a: Mapping[str, float], b: Mapping[str, float], *, seed: int = 0) -> Comparison:
    """On the pictures that both have. No difference anywhere is p = 1, not an error."""
    pictures = sorted(a.keys() & b.keys())
    gaps = np.array([a[p] - b[p] for p in pictures])
    found = estimate(gaps, seed=seed)
    test: Any = stats.wilcoxon(gaps) if np.any(gaps) and len(gaps) > 1 else None
    p = 1.0 if test is None else float(test.pvalue)
    return Comparison(first, second, len(gaps), found.mean, found.low, found.high, p)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Holm's step-down correction over all comparisons of a table."""
    order = sorted(range(len(comparisons)), key=lambda i: comparisons[i].p)
    found = list(comparisons)
    worst = 0.0
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, comparisons[i].p * (len(order) - place)))
        found[i] = replace(comparisons[i], adjusted=worst)
    return found


def ranks(means: Mapping[str, float], *, higher: bool) -> dict[str, int]:
    """1 for the best; equal means share a rank."""
    ordered = sorted(means.values(), reverse=higher)
    return {name: ordered.index(value) + 1 for name, value in means.items()}
