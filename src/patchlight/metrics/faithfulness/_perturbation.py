"""Accuracy while pixels go, from either end of the ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from patchlight.core.metric import Case, Edit, Fill, Need, Steps
from patchlight.metrics import _curves as curves

Truth = Literal["label", "predicted"]


def needs(settings: Mapping[str, Any]) -> tuple[Need, ...]:
    return ("labels",) if settings["truth"] == "label" else ()


def accuracy(case: Case, order: str, *, levels: int, ends: bool, fill: Fill, truth: Truth, metric: str) -> Steps:
    """(b, levels) of 1[argmax y(x_k) = truth], and the area below it."""
    counts = curves.spaced(case.cells, levels, ends=ends, metric=metric)
    logits = yield [Edit(), *(Edit(order, 0, k, fill) for k in counts)]
    found = logits.argmax(-1)
    right = case.labels if truth == "label" and case.labels is not None else found[:, 0]
    correct = (found[:, 1:] == right[:, None]).double()
    return curves.of_curve(correct, curves.shares(counts, case.cells, logits))
