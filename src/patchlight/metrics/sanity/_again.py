"""Maps made anew, and what was found when they are compared with the first ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Found
from patchlight.metrics.sanity._alike import Measure


def remade(
    case: Case, name: str, images: Tensor | None = None, *, target: Tensor | None = None, seed: int | None = None
) -> Tensor:
    """(b, H, W) by the method that made the maps: by default for the same pictures, the original class and the same seed."""
    assert case.explain is not None  # `needs` has been checked
    target = original(case, name) if target is None else target
    found = case.explain(case.images if images is None else images, target=target, seed=case.seed if seed is None else seed)
    return found.to(case.pixels.device, case.pixels.dtype)


def original(case: Case, name: str) -> Tensor:
    """(b,) the class that each map is for."""
    if (case.explained < 0).any():
        raise SettingError(
            f"{name} makes maps for the same class anew, but these are for a function of the logits. "
            "Give maps that `explain` made for a class."
        )
    return case.explained


def check_count(name: str, **counts: int) -> None:
    for setting, value in counts.items():
        if value < 1:
            raise SettingError(f"{name}: at least one of {setting} is needed, but {value} came.")


def compared(found: Sequence[dict[Measure, Tensor]], measure: Measure, notes: Sequence[str] = ()) -> Found:
    """The chosen measure's mean over the comparisons is the value, (b, s) the curve; the others are parts."""
    curves = {m: torch.stack([f[m] for f in found], 1) for m in found[0]}
    missing = int(curves[measure].isnan().sum())
    said = [
        *notes,
        *(
            [f"{missing} of {curves[measure].numel()} comparisons do not count: the first map is constant, or one is not finite"]
            if missing
            else []
        ),
    ]
    at = torch.arange(1, len(found) + 1, dtype=torch.float64, device=curves[measure].device) / len(found)
    return Found(curves[measure].nanmean(1), curves[measure], at, parts=dict(curves), notes=tuple(said))
