from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.tracing.ask import Ask


@method(
    paper="Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks",
    equation="M = Σ_c (x - x')_c ∫_0^1 ∂y/∂x_c(x' + t (x - x')) dt",
    cost=lambda settings: Cost(settings["steps"] + 2, settings["steps"]),
    returns="pixels",
)
def integrated_gradients(
    ask: Ask,
    *,
    steps: int = 50,
    baseline: float = 0.0,
    quadrature: Literal["gauss", "trapezoid"] = "gauss",
    channels: Literal["sum", "absolute"] = "sum",
) -> Tensor:
    """Gradients along the straight line from a flat baseline to the picture, times the difference.

    `baseline` is in the units of the normalised input: 0 is the mean colour, not black. The completeness gap
    |Σ M - (y(x) - y(x'))| is reported in the notes and as the inside `completeness gap`. `channels="absolute"` sums |.| over
    the colour channels, for rankings. `quadrature="trapezoid"` has captum's weights, which sum to (steps - 1) / steps.
    """
    if steps < 2:
        raise SettingError(f"integrated_gradients: steps takes 2 or more, but {steps} came.")
    if not np.isfinite(baseline):
        raise SettingError(f"integrated_gradients: baseline takes a finite number, but {baseline} came.")
    logits, target = ask.look()
    points, weights = rule(quadrature, steps)
    start = torch.full_like(ask.images, baseline)
    line = ask.images - start
    total = torch.zeros_like(line, dtype=torch.promote_types(line.dtype, torch.float32))
    for weight, gradient in zip(weights, ask.gradients(lambda k: start + points[k] * line, steps), strict=True):
        total += weight * gradient
    parts = total * line  # (b, 3, H, W)
    difference = target.logit(logits) - target.logit(ask.score(start))
    gap = (parts.flatten(1).sum(1) - difference).detach()
    ask.keep("product", parts)
    ask.keep("completeness gap", gap)
    ask.notes += [f"completeness gap {g:+.4f} of {d:+.4f}" for g, d in zip(gap.tolist(), difference.tolist(), strict=True)]
    return parts.abs().sum(1) if channels == "absolute" else parts.sum(1)


def rule(quadrature: str, steps: int) -> tuple[list[float], list[float]]:
    """Points and weights on [0, 1]."""
    if quadrature == "trapezoid":
        return np.linspace(0, 1, steps).tolist(), [(0.5 if k in (0, steps - 1) else 1.0) / steps for k in range(steps)]
    points, weights = np.polynomial.legendre.leggauss(steps)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()
