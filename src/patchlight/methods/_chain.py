"""Walking a row of contributions from the head back to the first block: a vector times a matrix for each block, n² not n³."""

from __future__ import annotations

from math import prod
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import ModelError, SettingError
from patchlight.core.layout import Block, Layout, block_index, not_global
from patchlight.tracing.seen import Seen

Readout = int | tuple[int, int] | Literal["class", "mean"] | None


def readout_weights(layout: Layout, readout: Readout, like: Tensor) -> Tensor:
    """(n,) how much each token counts: what feeds the head (None), one token, a patch (row, column), `class` or `mean`."""
    weights = torch.zeros(layout.tokens, dtype=like.dtype, device=like.device)
    if readout is None:
        return weights.new_tensor(layout.readout)
    if readout == "mean":
        weights[layout.prefix :] = 1 / prod(layout.grid)
        return weights
    weights[token_index(layout, readout)] = 1
    return weights


def token_index(layout: Layout, readout: Readout) -> int:
    if readout == "class":
        if not layout.prefix:
            raise SettingError(
                "readout='class': the model has no class token. Use readout=None, 'mean', a token or a patch (row, column)."
            )
        return 0
    if isinstance(readout, tuple) and len(readout) == 2:
        (row, column), (height, width) = readout, layout.grid
        if not (0 <= row < height and 0 <= column < width):
            raise SettingError(f"readout: patch ({row}, {column}) lies outside the grid of {height} x {width} patches.")
        return layout.prefix + row * width + column
    if isinstance(readout, int) and 0 <= readout < layout.tokens:
        return readout
    raise SettingError(
        f"readout takes None, 'class', 'mean', a token 0 to {layout.tokens - 1} or a patch (row, column), but {readout!r} came."
    )


def trunk_readout(layout: Layout, readout: Readout) -> Readout:
    """For methods that read the trunk only: behind it a pooling attention reads all patches, which the mean stands for."""
    return "mean" if readout is None and layout.pool == "attention" else readout


def map_index(layout: Layout, block: int, *, method: str) -> int:
    """The index of a block (-1: the very last) whose one map joins all tokens, or an error before any work."""
    index = len(layout.blocks) - 1 if block == -1 else block_index(layout, block, method=method)
    chosen = layout.blocks[index]
    if chosen.kind not in ("global", "class", "pool") or chosen.maps != 1:
        raise ModelError(f"{method}: {not_global(chosen)}. Choose a block that does, or a method that reads tokens: grad_cam.")
    return index


def start_row(layout: Layout, readout: Readout, like: Tensor) -> Tensor:
    """The row behind the last block, (b, n): what the head reads; behind a class-attention or pooling block its query."""
    batch, last = like.shape[0], layout.blocks[-1]
    if readout is None and last.kind in ("class", "pool"):
        row = like.new_zeros(batch, last.keys if last.kind == "class" else last.queries)
        row[:, : last.queries] = 1 / last.queries
        return row
    return readout_weights(layout, readout, like).expand(batch, -1)


def is_skipped(block: Block, readout: Readout) -> bool:
    """Class-attention and pooling blocks play no part when a token of the trunk is asked for."""
    return readout is not None and block.kind in ("class", "pool")


def through(row: Tensor, block: Seen, update: Tensor, *, tokens: int, keep: float = 1.0) -> Tensor:
    """row U with U = keep I + update, (b, q, k); from class-attention blocks to the trunk the class token is left behind."""
    kind = block.block.kind
    if kind == "pool":
        return (row[:, None] @ update)[:, 0]
    if kind == "class":  # the other tokens are passed on as they are
        return torch.cat([keep * row[:, :1], row[:, 1:]], 1) + row[:, :1] * update[:, 0]
    return keep * row[:, -tokens:] + (row[:, None, -tokens:] @ update)[:, 0]


def read(row: Tensor, maps: Tensor) -> Tensor:
    """(b, h, k): the rows of the maps (b, h, q, k), weighted by the row (b, n); queries of class and pooling blocks in full."""
    queries = maps.shape[-2]
    return torch.einsum("bq,bhqk->bhk", row[:, :queries] if queries < row.shape[1] else row, maps)


def share(row: Tensor, sums: Tensor) -> Tensor:
    """row / sums, and 0 where a row of the map holds nothing."""
    return torch.where(sums != 0, row / sums.where(sums != 0, 1.0), 0.0)


def divide(row: Tensor, total: Tensor, block: Seen, *, tokens: int) -> Tensor:
    """row_i / sum_i for the tokens that attend: what makes rownorm(U) of U for the row in front of it."""
    sums = total[..., 0]
    if block.block.kind == "class":
        return torch.cat([share(row[:, :1], sums), row[:, 1:]], 1)
    return share(row if block.block.kind == "pool" else row[:, -tokens:], sums)


def discard_smallest(maps: Tensor, fraction: float, *, protect: int) -> Tensor:
    """Set the floor(n² fraction) smallest entries of each (b, n, n) map to 0; the first `protect` columns stay."""
    if fraction <= 0:
        return maps
    open_to_drop = maps.clone()
    open_to_drop[:, :, :protect] = float("inf")
    flat = open_to_drop.flatten(1)
    index = flat.argsort(dim=1, stable=True)[:, : int(flat.shape[1] * fraction)]
    return maps.flatten(1).scatter(1, index, 0.0).view_as(maps).where(~open_to_drop.isinf(), maps)


def check_fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise SettingError(f"{name} takes a share from 0 up to (not including) 1, but {value!r} came.")
