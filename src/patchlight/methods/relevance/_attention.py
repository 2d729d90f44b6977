"""What is read off the relevance of attention maps."""

from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.grid import to_grid
from patchlight.core.layout import Layout, block_index
from patchlight.methods._chain import Readout, divide, is_skipped, map_index, read, start_row, through
from patchlight.methods.relevance._tables import Table
from patchlight.methods.relevance._walk import Precision, Walk, walked
from patchlight.tracing.ask import Ask
from patchlight.tracing.seen import Seen


def chained(
    ask: Ask,
    table: Table,
    *,
    start_block: int,
    gradients: bool,
    readout: Readout,
    precision: Precision,
    normalise: bool = False,
) -> Tensor:
    """M = the row that feeds the head times Π_l (I + mean_h [∇A_l ⊙ R_l]^+), on the patch grid."""
    layout = ask.layout()
    start = block_index(layout, start_block, method=table.name)
    row: Tensor | None = None
    with walked(ask, table, precision, layout=layout) as walk:
        found = updates(walk, ask, start, gradients=gradients)
        for index in sorted(found, reverse=True):
            block, update = Seen(index, layout.blocks[index]), found[index]
            if is_skipped(block.block, readout):
                continue
            if row is None:
                row = start_row(layout, readout, update)
            keep = 0.0 if block.block.kind == "pool" else 1.0
            if normalise:
                row = divide(row, update.sum(-1, keepdim=True) + keep, block, tokens=layout.tokens)
            row = through(row, block, update, tokens=layout.tokens)
    assert row is not None
    return to_grid(row, layout.grid)


def updates(walk: Walk, ask: Ask, first: int, *, gradients: bool) -> dict[int, Tensor]:
    """block -> mean_h [∇A ⊙ R]^+ (b, q, k), or mean_h [R]^+; the account goes to `ask`."""
    blocks, maps = walk.places(first)
    weights = walk.slopes(maps) if gradients else (None,) * len(maps)
    relevance = walk.back(maps)
    ask.conservation = in_transit(walk)
    found = {}
    for index, slope, message in zip(blocks, weights, relevance, strict=True):
        product = message if slope is None else slope * message
        found[index] = product.clamp_min(0).mean(1)
        keep(ask, "relevance", index, message)
        keep(ask, "update", index, found[index])
    return found


def keep(ask: Ask, name: str, block: int, value: Tensor) -> None:
    if ask.kept is not None:
        ask.kept.setdefault(name, {})[block] = value.detach().clone()  # type: ignore[union-attr]


def in_transit(walk: Walk) -> dict[str, Tensor]:
    """The account of a walk that ends at attention maps: what nothing kept back was still on its way."""
    account = walk.account(walk.logits.new_zeros(walk.pictures))
    lost = [v for name, v in account.items() if name not in ("received", "arrived")]
    account["arrived"] = account["received"] - sum(lost, torch.zeros_like(account["received"]))
    return account


def single(ask: Ask, table: Table, *, block: int, gradients: bool, readout: Readout, precision: Precision) -> Tensor:
    """mean_h [R]^+ of one block, read as raw attention is."""
    layout: Layout = ask.layout()
    index = map_index(layout, block, method=table.name)
    with walked(ask, table, precision, layout=layout) as walk:
        blocks, maps = walk.places(index)
        chosen = maps[blocks.index(index)]
        slope = walk.slopes([chosen])[0] if gradients else None
        (message,) = walk.back([chosen])
        ask.conservation = in_transit(walk)
        keep(ask, "relevance", index, message)
        product = (message if slope is None else slope * message).clamp_min(0)
        scores = read(start_row(layout, readout, product), product).mean(1)
    return to_grid(scores, layout.grid)
