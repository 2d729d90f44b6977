from __future__ import annotations

from typing import Literal

import torch

from patchlight.core.layout import block_index
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, check_fraction, discard_smallest, divide, is_skipped, start_row, through
from patchlight.tracing.trace import Steps, Trace


@method(
    paper="Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers",
    equation="R = Â_L ... Â_s, Â = rownorm((1 - r) fuse_h A + r I); M = R[cls, :]",
    needs=("chain",),
    cost=Cost(1, 0),
    taps=Taps(),
    class_blind=True,
)
def rollout(
    trace: Trace,
    *,
    start_block: int = 0,
    head_fusion: Literal["mean", "max", "min", "separate"] = "mean",
    discard: float = 0.0,
    residual: float = 0.5,
    readout: Readout = None,
) -> Steps:
    """Attention multiplied through all blocks, with the skip connection as half of each step.

    `head_fusion="separate"` rolls each head out by itself and averages at the end (TAM's variant). `discard` drops that
    share of the smallest entries of each fused map before the skip is added; the columns of prefix tokens are kept. The
    widely copied version of vit-explain divides columns, not rows, by the row sums: the same only for discard 0 and the mean.
    """
    check_fraction("rollout: discard", discard)
    check_fraction("rollout: residual", residual)
    layout, rows = trace.layout, None
    start = block_index(layout, start_block, method="rollout")
    while (seen := (yield)) is not None:
        if seen.index < start or is_skipped(seen.block, readout):
            continue
        fused = FUSE[head_fusion](seen)
        if rows is None:
            rows = [start_row(layout, readout, fused[0])] * len(fused)
        steps = [(1 - residual) * discard_smallest(m, discard, protect=layout.prefix) for m in fused]
        total = [m.sum(-1, keepdim=True) + (residual if seen.block.kind != "pool" else 0.0) for m in steps]
        # rownorm(U) = (r I + (1 - r) F) / (r + row sums of (1 - r) F); the row vector is divided before it meets U
        rows = [
            through(divide(row, t, seen, tokens=layout.tokens), seen, m, tokens=layout.tokens, keep=residual)
            for row, t, m in zip(rows, total, steps, strict=True)
        ]
        trace.keep("partial product", seen.index, torch.stack(rows).mean(0))
    assert rows is not None
    return torch.stack(rows).mean(0)


FUSE = {
    "mean": lambda seen: [seen.mean_attention],
    "max": lambda seen: [seen.attention.amax(1)],
    "min": lambda seen: [seen.attention.amin(1)],
    "separate": lambda seen: list(seen.attention.unbind(1)),
}
