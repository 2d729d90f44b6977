"""What is being explained: a class, one class rather than another, or any function of the logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from patchlight.core.errors import TargetError, nearest

Index = int | str


@dataclass(frozen=True, eq=False)
class Target:
    """Resolved for one batch: `index` (b,), `against` (b,) for a contrast, or a function of the logits (index -1)."""

    index: Tensor
    against: Tensor | None = None
    function: Callable[[Tensor], Tensor] | None = None

    def logit(self, logits: Tensor) -> Tensor:
        """(b,) the value that is explained, in float32 or better."""
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return self.function(wide) if self.function is not None else self.difference(wide)

    def probability(self, logits: Tensor) -> Tensor:
        """(b,) the same on softmax probabilities; a function of the logits stays as it is."""
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return self.function(wide) if self.function is not None else self.difference(wide.softmax(-1))

    def difference(self, values: Tensor) -> Tensor:
        picked = values.gather(1, self.index[:, None])[:, 0]
        return picked if self.against is None else picked - values.gather(1, self.against[:, None])[:, 0]

    def scalar(self, logits: Tensor, objective: str) -> Tensor:
        """Pictures do not depend on each other, so the sum's gradient is each picture's own."""
        return (self.probability(logits) if objective == "probability" else self.logit(logits)).sum()

    def pick(self, pictures: Tensor) -> Target:
        """For variants (n,) of some of the pictures."""
        return Target(self.index[pictures], None if self.against is None else self.against[pictures], self.function)

    def repeat(self, copies: int) -> Target:
        """For `copies` variants of the batch, one batch after the other."""
        return Target(self.index.repeat(copies), None if self.against is None else self.against.repeat(copies), self.function)


def resolve(target: Any, logits: Tensor, labels: Sequence[str], *, start: int = 0, count: int | None = None) -> Target:
    """None: predicted class. int or label: the same for all. A list or tensor: one for each picture. (a, b): a rather than b.

    `start` and `count` place this batch in a longer run, so that a list gives each picture its own entry.
    """
    batch, classes = logits.shape
    count = batch if count is None else count
    device = logits.device
    if target is None:
        return Target(logits.argmax(-1))
    if callable(target):
        value = target(logits)
        if not isinstance(value, Tensor) or value.shape != (batch,):
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise TargetError(
                f"target: a function must turn logits {tuple(logits.shape)} into ({batch},) scores, but {came} came."
            )
        return Target(torch.full((batch,), -1, device=device), function=cast(Callable[[Tensor], Tensor], target))
    if isinstance(target, tuple):
        if len(target) != 2:
            raise TargetError(
                f"target: a contrast is a pair (class, other class), but {target!r} came. For one class each, give a list."
            )
        one, other = (class_index(t, labels, classes) for t in target)
        return Target(torch.full((batch,), one, device=device), torch.full((batch,), other, device=device))
    if isinstance(target, (list, Tensor)) or hasattr(target, "tolist"):
        items = target if isinstance(target, list) else target.tolist()
        items = items if isinstance(items, list) else [items] * count
        if len(items) != count:
            raise TargetError(
                f"target: {count} pictures need {count} targets, but {len(items)} came. Give one, or one for each picture."
            )
        chosen = [class_index(t, labels, classes) for t in items[start : start + batch]]
        return Target(torch.tensor(chosen, device=device))
    return Target(torch.full((batch,), class_index(target, labels, classes), device=device))


def class_index(target: Any, labels: Sequence[str], classes: int) -> int:
    """A class number, checked, or the number of a label."""
    if isinstance(target, bool) or not isinstance(target, (int, str)):
        raise TargetError(
            f"target: expected a class number, a label, a list of them, a pair (a, b) or a function, but {target!r} came."
        )
    if isinstance(target, str) and not target.lstrip("-").isdigit():
        index = label_index(target, labels)
        if index >= classes:
            raise TargetError(
                f"target: {target!r} is label number {index} of {len(labels)}, but the model has {classes} outputs. "
                "Give one label for each output: load(..., labels=[...])."
            )
        return index
    index = int(target)
    if not 0 <= index < classes:
        raise TargetError(f"target: {index} came, but the model counts its classes from 0 to {classes - 1}.")
    return index


def label_index(name: str, labels: Sequence[str]) -> int:
    """Exact name first, then a unique part of one; upper and lower case and underscores do not matter."""
    if not labels:
        raise TargetError(
            f"target: {name!r} is a label, but the model has no label names. Give a number, or load(..., labels=[...])."
        )
    plain = [label.lower().replace("_", " ") for label in labels]
    wanted = name.lower().replace("_", " ")
    found = [i for i, label in enumerate(plain) if label == wanted] or [i for i, label in enumerate(plain) if wanted in label]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(labels[i] for i in found[:5])
        raise TargetError(f"target: {name!r} fits {len(found)} labels ({some}). Give the full name or a number.")
    raise TargetError(
        f"target: there is no label {name!r}.{nearest(name, labels) if len(labels) < 60 else near_few(name, labels)}"
    )


def near_few(name: str, labels: Sequence[str]) -> str:
    """Long label lists are not printed."""
    return nearest(name, labels).split(" Known:")[0] + f" The model has {len(labels)} labels."
