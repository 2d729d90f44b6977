from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._again import compared, original, remade
from patchlight.metrics.sanity._alike import Measure, every
from patchlight.metrics.sanity._rounds import same


@metric(
    paper="Sixt et al. 2020, When Explanations Lie, arXiv:1912.09818 (random logit)",
    equation="alike(M_c, M_c'), c' the least likely class, the likeliest other one, or one at random",
    better="lower",
    needs=("method",),
)
def class_sensitivity(case: Case, *, other: Literal["last", "first", "random"] = "last", measure: Measure = "spearman") -> Found:
    """How alike the maps of two classes of the same picture are.

    The other class is the one that the model holds for least likely (`last`), the likeliest one that was not explained
    (`first`), or any other, drawn by each picture's own seed (`random`, as Sixt et al. do). 1 is a map that takes no notice of
    the class; -1 by rank is one that only turns its sign. Class-blind methods get 1 by construction; that is noted.
    """
    assert case.score is not None
    classes = original(case, "class_sensitivity")
    logits = case.score(case.images)
    if other == "random":
        logits = torch.stack([torch.rand(logits.shape[1], generator=g) for g in case.generators()]).to(logits.device)
    maps = remade(case, "class_sensitivity", target=another(logits, classes, other))
    unmoved = int(same(case.pixels, maps).sum())
    notes = [f"{unmoved} of {len(case)} maps are the same for both classes: class-blind"] if unmoved else []
    return compared([every(case.pixels, maps, measure)], measure, notes)


def another(logits: Tensor, classes: Tensor, other: str) -> Tensor:
    """(b,) the lowest, or the highest that is not the explained one."""
    if logits.shape[1] < 2:
        raise SettingError("class_sensitivity compares two classes, but the model has one output only. Take another metric.")
    own = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, classes[:, None].to(logits.device), value=True)
    if other != "first":
        return logits.masked_fill(own, torch.inf).argmin(1)
    return logits.masked_fill(own, -torch.inf).argmax(1)
