from __future__ import annotations

from typing import Literal

from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, read, start_row, trunk_readout
from patchlight.tracing.trace import Steps, Trace


@method(
    paper="Leem & Seo 2024, Attention Guided CAM",
    equation="M = Σ_l Σ_h [∇A_l[cls, :]]^+ ⊙ sigmoid(S_l[cls, :])",
    needs=("chain",),
    cost=Cost(1, 1),
    taps=lambda settings, _: Taps("skip" if settings["gradient"] == "skip" else "logit", frozenset({"attention"})),
)
def ag_cam(
    trace: Trace,
    *,
    gradient: Literal["skip", "full"] = "skip",  # noqa: ARG001  read by the taps above
    head_fusion: Literal["sum", "mean", "max"] = "sum",
    readout: Readout = None,
) -> Steps:
    """The class token's scores before softmax, squashed by a sigmoid, weighted by positive gradients, summed over blocks.

    In the authors' model the input of every attention is detached, so a gradient reaches a block only through skips and MLPs:
    `gradient="skip"` does that without touching the model, `"full"` takes the plain gradient. Where the head pools, the rows
    that feed it are averaged.
    """
    total = None
    while (seen := (yield)) is not None:
        if seen.block.kind != "global":
            continue
        product = seen.gradient().clamp_min(0) * seen.scores.sigmoid()  # (b, h, q, k)
        row = start_row(trace.layout, trunk_readout(trace.layout, readout), product)
        rows = FUSE[head_fusion](read(row, product))
        total = rows if total is None else total + rows
        trace.keep("block map", seen.index, rows)
    assert total is not None
    return total


FUSE = {"sum": lambda r: r.sum(1), "mean": lambda r: r.mean(1), "max": lambda r: r.amax(1)}
