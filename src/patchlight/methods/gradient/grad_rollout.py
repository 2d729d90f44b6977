from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchlight.core.layout import Layout, block_index
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, check_fraction, discard_smallest, divide, is_skipped, start_row, through
from patchlight.tracing.trace import Steps, Trace


def taps(settings: Mapping[str, Any], layout: Layout) -> Taps:
    return Taps("logit", frozenset({"attention"}), first=block_index(layout, settings["start_block"], method="grad_rollout"))


@method(
    paper="Gildenblat 2020, vit-explain (gradient attention rollout), in its intended form",
    equation="F_l = [mean_h (A_l ⊙ ∇A_l)]^+; R = Π_l rownorm((F_l + I) / 2); M = R[cls, :]",
    needs=("chain",),
    cost=Cost(1, 1),
    taps=taps,
)
def grad_rollout(trace: Trace, *, start_block: int = 0, discard: float = 0.0, readout: Readout = None) -> Steps:
    """Rollout of gradient-weighted attention: the heads are averaged first, then the positive part is taken.

    The published code pairs the attention of block l with the gradient of block L - 1 - l, takes the gradient in front of the
    softmax, divides columns by row sums and keeps maps between calls; this is the form that its text describes.
    """
    check_fraction("grad_rollout: discard", discard)
    layout, row = trace.layout, None
    start = block_index(layout, start_block, method="grad_rollout")
    while (seen := (yield)) is not None:
        if seen.index < start or is_skipped(seen.block, readout):
            continue
        fused = (seen.gradient() * seen.attention).mean(1).clamp_min(0)
        step = 0.5 * discard_smallest(fused, discard, protect=0)
        total = step.sum(-1, keepdim=True) + (0.5 if seen.block.kind != "pool" else 0.0)
        if row is None:
            row = start_row(layout, readout, fused)
        row = through(divide(row, total, seen, tokens=layout.tokens), seen, step, tokens=layout.tokens, keep=0.5)
        trace.keep("partial product", seen.index, row)
    assert row is not None
    return row
