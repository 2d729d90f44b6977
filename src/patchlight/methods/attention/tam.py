from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.layout import Layout, block_index
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, is_skipped, read, start_row, through
from patchlight.tracing.trace import Steps, Trace


def taps(settings: Mapping[str, Any], layout: Layout) -> Taps:
    return Taps("logit", frozenset({"attention"}), first=gate_index(layout, settings["readout"]))


def cost(settings: Mapping[str, Any]) -> Cost:
    passes = settings["steps"] if settings["integrate"] else 1
    return Cost(passes, passes)


@method(
    paper="Yuan et al. 2021, Explaining Information Flow Inside Vision Transformers Using Markov Chain",
    equation="s_L = A_L[cls, :], s_l = s_{l+1} (mean_h A_l + I); W = mean_h [mean_k ∂y/∂A_L at k x/(m-1)]^+; M = s ⊙ W[cls, :]",
    needs=("chain",),
    cost=cost,
    taps=taps,
)
def tam(
    trace: Trace,
    *,
    start_block: int | None = None,
    steps: int = 20,
    integrate: bool = True,
    chain: bool = True,
    readout: Readout = None,
) -> Steps:
    """Transition attention maps: a chain of attention states, gated by the last block's gradient along a path from grey.

    The chain runs down to `start_block` (default: a third of the depth, 4 of 12, as the authors' scripts do). The gradient is
    averaged over `steps` scalings of the picture, both ends included; it is not multiplied with the attention difference, so it
    is not integrated gradients and sums to nothing in particular.
    """
    if steps < 2:
        raise SettingError(
            f"tam: steps takes 2 or more (both ends of the path count), but {steps} came. For none, integrate=False."
        )
    layout = trace.layout
    gate = gate_index(layout, readout)
    start = round(len(layout.trunk) / 3) if start_block is None else block_index(layout, start_block, method="tam")
    row = gradient = None
    while (seen := (yield)) is not None:
        if is_skipped(seen.block, readout):
            continue
        fused = seen.mean_attention
        if seen.index == gate:
            row = through(start_row(layout, readout, fused), seen, fused, tokens=layout.tokens, keep=0.0)
            gradient = seen.gradient()  # (b, h, q, k)
        elif chain and row is not None and seen.index >= start:
            row = through(row, seen, fused, tokens=layout.tokens)
        if row is not None:
            trace.keep("state", seen.index, row)
    assert row is not None
    assert gradient is not None
    if integrate:
        gradient = path_mean(trace, gradient, steps, gate)
    weights = read(start_row(layout, readout, gradient), gradient.clamp_min(0)).mean(1)
    patches = layout.tokens - layout.prefix
    return row[:, -patches:] * weights[:, -patches:]


def gate_index(layout: Layout, readout: Readout) -> int:
    """The last block that the row passes."""
    return len(layout.blocks if readout is None else layout.trunk) - 1


def path_mean(trace: Trace, at_picture: Tensor, steps: int, gate: int) -> Tensor:
    """The mean gradient of the last map at k/(steps - 1) of the picture, k = 0 ... steps - 1; the last point is known."""
    total = at_picture.clone()
    for k in range(steps - 1):
        step = Taps("logit", frozenset({"attention"}), first=gate)
        point = trace.again(trace.images * (k / (steps - 1)), [step])
        total += point.feed([(step, last_gradient(gate))])[0]
    return total / steps


def last_gradient(gate: int) -> Steps:
    found: Tensor | None = None
    while (seen := (yield)) is not None:
        if seen.index == gate:
            found = seen.gradient()
    assert isinstance(found, torch.Tensor)
    return found
