"""A map cut into object and background: the cuts, and the four counts that the metrics of overlap are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case
from patchlight.metrics._places import inside, unit

Threshold = Literal["mean", "otsu", "best"] | float
BINS = 256


@dataclass(frozen=True, eq=False)
class Counts:
    """Pixels by what they are and what the map says, (...) each in float64."""

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor

    def rows(self) -> dict[str, Tensor]:
        return {"tp": self.tp, "fp": self.fp, "fn": self.fn, "tn": self.tn}

    @classmethod
    def of(cls, rows: Mapping[str, Tensor]) -> Counts:
        return cls(rows["tp"], rows["fp"], rows["fn"], rows["tn"])


Overlap = Callable[[Counts], Tensor]


def counts(case: Case, threshold: Threshold, overlap: Overlap, *, metric: str) -> Counts:
    """(b,) each: the map, min-max scaled, is an object where it lies strictly above the threshold.

    "mean": its own mean. "otsu": its own, from 256 bins. "best": for each map the cut with the highest overlap, which no one
    knows beforehand. A number: the same for all maps. A constant map becomes zeros and is background everywhere.
    """
    if not isinstance(threshold, str) and not 0 <= threshold <= 1:
        raise SettingError(f"{metric}: threshold takes 'mean', 'otsu', 'best' or a number from 0 to 1, but {threshold} came.")
    truth, maps = inside(case), unit(case.pixels)
    if threshold == "best":
        return best(maps, truth, overlap)
    if threshold == "mean":
        cut = maps.mean((1, 2))
    elif threshold == "otsu":
        cut = otsu(maps)
    else:
        cut = torch.full((len(maps),), float(threshold), device=maps.device, dtype=maps.dtype)
    return count(maps > cut[:, None, None], truth)


def count(said: Tensor, truth: Tensor) -> Counts:
    """Pixels that are not labelled do not count."""

    def total(which: Tensor) -> Tensor:
        return which.flatten(1).sum(1).double()

    thing, ground = truth == 1, truth == 0
    return Counts(total(said & thing), total(said & ground), total(~said & thing), total(~said & ground))


def otsu(maps: Tensor) -> Tensor:
    """(b,) The bin centre that maximises w_1 w_2 (m_1 - m_2)^2, the first of equals; as scikit-image."""
    flat = maps.flatten(1)
    bins = (flat.double() * BINS).long().clamp(0, BINS - 1)
    heights = torch.zeros(len(flat), BINS, dtype=torch.float64, device=flat.device)
    heights.scatter_add_(1, bins, torch.ones_like(bins, dtype=torch.float64))
    centres = (torch.arange(BINS, device=flat.device, dtype=torch.float64) + 0.5) / BINS
    low, mass = heights.cumsum(1), (heights * centres).cumsum(1)
    high, rest = low[:, -1:] - low, mass[:, -1:] - mass
    means = mass / low.clamp_min(1), rest / high.clamp_min(1)
    between = (low * high * (means[0] - means[1]).square())[:, :-1]
    return centres[between.argmax(1)].to(maps.dtype)


def best(maps: Tensor, truth: Tensor, overlap: Overlap) -> Counts:
    """The counts at each map's own best cut: after the k highest values, where the next one differs."""
    found = [best_of(m[t >= 0], t[t >= 0], overlap) for m, t in zip(maps, truth, strict=True)]
    return Counts(*(torch.stack(column) for column in zip(*found, strict=True)))


def best_of(values: Tensor, truth: Tensor, overlap: Overlap) -> tuple[Tensor, ...]:
    every = cuts(values, truth)
    at = overlap(every).nan_to_num(-1).argmax()
    return every.tp[at], every.fp[at], every.fn[at], every.tn[at]


def cuts(values: Tensor, truth: Tensor) -> Counts:
    """The counts of every cut of (n,) values, from none to all; equal values stay together."""
    order = values.argsort(descending=True)
    hits = (truth[order] == 1).double()
    ends = torch.ones(len(values), dtype=torch.bool, device=values.device)
    ends[:-1] = values[order][1:] != values[order][:-1]
    zero = hits.new_zeros(1)
    tp = torch.cat([zero, hits.cumsum(0)[ends]])
    fp = torch.cat([zero, (1 - hits).cumsum(0)[ends]])
    positives = hits.sum()
    return Counts(tp, fp, positives - tp, len(values) - positives - fp)


def average_precision(values: Tensor, truth: Tensor) -> Tensor:
    """sum_k (R_k - R_{k-1}) P_k over the cuts; NaN without any positive."""
    every = cuts(values, truth)
    precision = every.tp[1:] / (every.tp + every.fp)[1:]
    return (every.tp.diff() * precision).sum() / every.tp[-1]
