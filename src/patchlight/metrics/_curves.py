"""What the metrics of a curve share: how many places are painted at each step, whose probability is read, and the area below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Found, Need

Of = Literal["predicted", "explained", "label"]


def levels(places: int, steps: int, *, whole: bool = False, metric: str) -> list[int]:
    """How many places at each of steps + 1 levels: floor(j places / steps); j floor(places / steps) in `whole` steps."""
    if not 1 <= steps <= places:
        raise SettingError(f"{metric}: steps must lie between 1 and the {places} pixels, but {steps} came.")
    return [j * (places // steps) if whole else places * j // steps for j in range(steps + 1)]


def spaced(places: int, levels: int, *, ends: bool, metric: str) -> list[int]:
    """How many places at each of `levels` shares: 0 ... 1 with the ends, else evenly between them; rounded down."""
    if not 2 <= levels <= places:
        raise SettingError(f"{metric}: levels must lie between 2 and the {places} pixels, but {levels} came.")
    return (
        [places * j // (levels - 1) for j in range(levels)] if ends else [places * (j + 1) // (levels + 1) for j in range(levels)]
    )


def parts_of(places: int, at: Sequence[float], *, metric: str, most: float = 1.0) -> list[int]:
    """How many places each share is, at least one."""
    if not at or not all(0 < share <= most for share in at):
        raise SettingError(f"{metric}: at takes shares above 0 and up to {most:g}, as (0.1, 0.5), but {tuple(at)} came.")
    return [max(1, int(places * share + 1e-9)) for share in at]


def label_needed(settings: Mapping[str, Any]) -> tuple[Need, ...]:
    """For metrics with a setting `of`."""
    return ("labels",) if settings["of"] == "label" else ()


def chosen(case: Case, whole: Tensor, of: str) -> tuple[Tensor, tuple[str, ...]]:
    """(b,) the class whose score is read, from the logits of the whole pictures; and what a reader should know."""
    predicted = whole.argmax(-1)
    if of == "label" and case.labels is not None:
        return case.labels, ()
    if of == "explained":
        if (case.explained < 0).any():
            raise SettingError(
                "of='explained' needs maps that know their class, but these explain a function or came as bare numbers. "
                "Use of='predicted' or of='label'."
            )
        return case.explained, ()
    other = int(((case.explained >= 0) & (case.explained != predicted)).sum())
    note = f"{other} maps explain another class than the predicted one, which is scored; of='explained' scores theirs"
    return predicted, (note,) if other else ()


def probabilities(logits: Tensor, classes: Tensor) -> Tensor:
    """(b, s, K) and (b,) -> (b, s) in float64."""
    return log_probabilities(logits, classes).exp()


def log_probabilities(logits: Tensor, classes: Tensor) -> Tensor:
    return read(logits.double().log_softmax(-1), classes)


def read(values: Tensor, classes: Tensor) -> Tensor:
    """(b, s, K) and (b,) -> (b, s)"""
    return values.gather(2, classes[:, None, None].expand(-1, values.shape[1], 1))[..., 0]


def area(curve: Tensor) -> Tensor:
    """(b, s) -> (b,): the trapezoid rule over evenly spaced places, divided by their width."""
    return (curve.sum(1) - (curve[:, 0] + curve[:, -1]) / 2) / (curve.shape[1] - 1)


def shares(counts: Sequence[int], places: int, like: Tensor) -> Tensor:
    """(s,) the painted share at each step."""
    return torch.tensor([c / places for c in counts], dtype=torch.float64, device=like.device)


def of_curve(curve: Tensor, at: Tensor, notes: tuple[str, ...] = ()) -> Found:
    return Found(area(curve), curve, at, notes=notes)
