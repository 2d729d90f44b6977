from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchlight.core.layout import Layout, block_index
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, is_skipped, start_row, through
from patchlight.tracing.trace import Steps, Trace


def taps(settings: Mapping[str, Any], layout: Layout) -> Taps:
    return Taps("logit", frozenset({"attention"}), first=block_index(layout, settings["start_block"], method="transformer_mm"))


@method(
    paper="Chefer et al. 2021, Generic Attention-model Explainability (also called GAE)",
    equation="R = Π_l (I + mean_h [∇A_l ⊙ A_l]^+); M = R[cls, :]",
    needs=("chain",),
    cost=Cost(1, 1),
    taps=taps,
)
def transformer_mm(trace: Trace, *, start_block: int = 0, readout: Readout = None) -> Steps:
    """Attention weighted by its gradient, positive part, added up through all blocks.

    No row is normalised. The product is taken as a row from the top, so gradients are used up in the order in which they come.
    """
    row, start = None, block_index(trace.layout, start_block, method="transformer_mm")
    while (seen := (yield)) is not None:
        if seen.index < start or is_skipped(seen.block, readout):
            continue
        update = seen.positive.mean(1)  # (b, q, k)
        if row is None:
            row = start_row(trace.layout, readout, update)
        row = through(row, seen, update, tokens=trace.layout.tokens)
        trace.keep("update", seen.index, update)
        trace.keep("row", seen.index, row)
    assert row is not None
    return row
