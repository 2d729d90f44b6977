from __future__ import annotations

from typing import Literal

import torch

from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, check_fraction, discard_smallest, is_skipped, start_row, through
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
    while (seen := (yield)) is not None:
        if seen.index < start_block or is_skipped(seen.block, readout):
            continue
        maps = seen.attention  # (b, h, q, k)
        fused = list(maps.unbind(1)) if head_fusion == "separate" else [FUSE[head_fusion](maps)]
        if rows is None:
            rows = [start_row(layout, readout, maps)] * len(fused)
        steps = [(1 - residual) * discard_smallest(m, discard, protect=layout.prefix) for m in fused]
        total = [m.sum(-1, keepdim=True) + (residual if seen.block.kind != "pool" else 0.0) for m in steps]
        # rownorm(U) = (r I + (1 - r) F) / (r + row sums of (1 - r) F); the row vector is divided before it meets U
        rows = [
            through(divide(row, t, seen.block.kind, layout.tokens), seen, m, tokens=layout.tokens, keep=residual)
            for row, t, m in zip(rows, total, steps, strict=True)
        ]
        trace.keep("partial product", seen.index, lambda: torch.stack(rows).mean(0))  # noqa: B023  called at once
    assert rows is not None  # noqa: S101
    return torch.stack(rows).mean(0)


FUSE = {"mean": lambda m: m.mean(1), "max": lambda m: m.amax(1), "min": lambda m: m.amin(1)}


def divide(row: torch.Tensor, total: torch.Tensor, kind: str, tokens: int) -> torch.Tensor:
    """row_i / sum_i for the tokens that attend."""
    sums = total[..., 0]
    if kind == "class":
        return torch.cat([row[:, :1] / sums, row[:, 1:]], 1)
    return row / sums if kind == "pool" else row[:, -tokens:] / sums
