"""Where every patch attends, at every block and head: seen in one forward pass, for pages that are clicked."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patchlight.core.layout import Block, Layout
from patchlight.core.registry import Taps
from patchlight.core.targets import resolve
from patchlight.models.subject import Subject
from patchlight.render.pack import packed_attention
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.trace import Steps, trace

BUDGET = 1_500_000  # values of attention in one file, about 0.75 MB


@dataclass(frozen=True, eq=False)
class Seen:
    """The maps of one picture: block number -> (h, q, k), or (windows, h, q, k) where it attends within windows."""

    layout: Layout
    maps: dict[int, Tensor]


def row_of(block: Block, maps: Tensor, patch: tuple[int, int]) -> Tensor:
    """(h, rows, columns): where a patch, named on the grid of that block, attends."""
    patches, width = prod(block.grid), block.grid[1]
    if block.kind == "window":
        return window_row(block, maps, patch)
    return maps[:, patch[0] * width + patch[1] - patches, -patches:].unflatten(1, block.grid)


def read_row(block: Block, maps: Tensor) -> Tensor:
    """(h, rows, columns) of a global block: the class token's row, or the mean of all where there is none."""
    patches = prod(block.grid)
    row = maps[:, 0] if maps.shape[1] > patches else maps.mean(1)
    return row[:, -patches:].unflatten(1, block.grid)


def window_row(block: Block, maps: Tensor, patch: tuple[int, int]) -> Tensor:
    """The row of a patch within its window, laid out on the whole grid; windows are cut from the grid rolled by the shift."""
    assert block.window is not None
    (height, width), (tall, wide), (down, right) = block.grid, block.window, block.shift or (0, 0)
    row, column = (patch[0] - down) % height, (patch[1] - right) % width
    window = row // tall * (width // wide) + column // wide
    found = maps[window, :, row % tall * wide + column % wide].unflatten(1, (tall, wide))
    whole = found.new_zeros(found.shape[0], height, width)
    top, left = row // tall * tall, column // wide * wide
    whole[:, top : top + tall, left : left + wide] = found
    return whole.roll((down, right), (1, 2))


def is_shown(block: Block) -> bool:
    """Blocks in which patches attend to patches of the same grid."""
    if block.kind == "window":
        height, width = block.grid
        return block.window is not None and not height % block.window[0] and not width % block.window[1] and block.maps == 1
    return block.kind == "global" and block.maps == 1


def see(subject: Subject, image: Tensor) -> Seen:
    """All maps of one picture (3, H, W); half precision on the CPU is enough to look at."""
    layout = subject.layout((image.shape[1], image.shape[2]))
    found: dict[int, Tensor] = {}

    def steps() -> Steps:
        while (seen := (yield)) is not None:
            if is_shown(seen.block):
                attention = seen.attention if seen.block.kind == "window" else seen.attention[0]
                found[seen.index] = attention.detach().to("cpu", torch.float16)
        return torch.zeros(())

    images = image[None].to(subject.device, subject.dtype)
    shared = trace(subject.model, subject.forward, images, layout, taps=[Taps()], target=lambda y: resolve(None, y, ()))
    with closing(shared.recorder), no_autocast(images):
        shared.feed([(Taps(), steps())])
    return Seen(layout, dict(sorted(found.items())))


def packed(seen: Seen, budget: int = BUDGET) -> dict[str, Any] | None:
    """As many whole blocks as the budget allows, spread over the depth; None where no block joins all tokens.

    Heads are kept where all blocks fit with them; else half the budget goes to the mean over heads of each block.
    """
    whole = [i for i, m in seen.maps.items() if seen.layout.blocks[i].kind == "global" and m.dim() == 3]
    if not whole:
        return None
    sizes = {i: seen.maps[i].numel() for i in whole}
    kept = spread(whole, budget // max(sizes.values()))
    heads = len(kept) == len(whole)
    if not heads:
        kept = spread(whole, budget * max(seen.maps[i].shape[0] for i in whole) // max(sizes.values()))
    blocks = [one(seen, i, heads=heads) for i in kept]
    return {"blocks": blocks, "total": len(whole), "heads": heads} if blocks else None


def one(seen: Seen, index: int, *, heads: bool) -> dict[str, Any]:
    block, maps = seen.layout.blocks[index], seen.maps[index].float()
    maps = maps if heads else maps.mean(0, keepdim=True)
    about = {"index": index, "name": block.name, "grid": list(block.grid), "heads": maps.shape[0], "tokens": maps.shape[-1]}
    return about | packed_attention(maps.numpy())


def spread(items: list[int], count: int) -> list[int]:
    """At most `count` of the items, the first and the last among them."""
    if count >= len(items):
        return items
    return [items[round(k)] for k in np.linspace(len(items) - 1, 0, count)][::-1] if count > 0 else []
