from __future__ import annotations

from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, is_skipped, start_row, through
from patchlight.tracing.trace import Steps, Trace


@method(
    paper="Chefer et al. 2021, Generic Attention-model Explainability (also called GAE)",
    equation="R = Π_l (I + mean_h [∇A_l ⊙ A_l]^+); M = R[cls, :]",
    needs=("chain",),
    cost=Cost(1, 1),
    taps=lambda settings, _: Taps("logit", frozenset({"attention"}), first=settings["start_block"]),
)
def transformer_mm(trace: Trace, *, start_block: int = 0, readout: Readout = None) -> Steps:
    """Attention weighted by its gradient, positive part, added up through all blocks.

    No row is normalised. The product is taken as a row from the top, so gradients are used up in the order in which they come.
    """
    row = None
    while (seen := (yield)) is not None:
        if seen.index < start_block or is_skipped(seen.block, readout):
            continue
        update = (seen.gradient() * seen.attention).clamp_min_(0).mean(1)  # (b, q, k)
        if row is None:
            row = start_row(trace.layout, readout, update)
        row = through(row, seen, update, tokens=trace.layout.tokens)
        trace.keep("update", seen.index, lambda: update)  # noqa: B023  called at once
        trace.keep("row", seen.index, lambda: row)  # noqa: B023  # pyright: ignore
    assert row is not None  # noqa: S101
    return row
