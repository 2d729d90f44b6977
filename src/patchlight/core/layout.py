"""What a network looks like: its blocks, prefix tokens, patch grid, and how the head reads the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from patchlight.core.errors import LayoutError

Kind = Literal["global", "window", "reduced", "merging", "class", "pool", "channel", "none"]
Pool = Literal["class", "mean", "class and mean", "attention", "unknown"]


@dataclass(frozen=True)
class Block:
    """One block in the order of the forward pass.

    `kind` says which tokens its attention joins: all of them (`global`), those of a window (`window`), all of them through
    fewer keys (`reduced`), fewer queries (`merging`), a class token with the rest (`class`), a pooling query with the
    rest (`pool`), channels (`channel`), or that it has no attention at all (`none`).
    """

    name: str
    kind: Kind = "global"
    heads: int = 0
    queries: int = 0
    keys: int = 0
    grid: tuple[int, int] = (0, 0)
    window: tuple[int, int] | None = None
    shift: tuple[int, int] | None = None
    maps: int = 1


@dataclass(frozen=True)
class Layout:
    """The geometry of a Vision Transformer for one input size.

    Found by `patchlight.load`; to give it by hand, `grid`, `prefix`, `blocks` (module names) and `pool` are enough.
    """

    grid: tuple[int, int]
    prefix: int = 0
    blocks: tuple[Block, ...] = ()
    pool: Pool = "unknown"
    readout: tuple[float, ...] = ()
    size: tuple[int, int] = (0, 0)
    missed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        blocks = tuple(Block(b, grid=self.grid) if isinstance(b, str) else b for b in self.blocks)
        object.__setattr__(self, "blocks", blocks)
        if not self.readout and self.grid != (0, 0):
            object.__setattr__(self, "readout", default_readout(self.pool, self.prefix, prod(self.grid)))

    @property
    def tokens(self) -> int:
        """n = prefix tokens + patches."""
        return self.prefix + prod(self.grid)

    @property
    def trunk(self) -> tuple[Block, ...]:
        """The blocks that carry patch tokens: all but class-attention and pooling blocks."""
        return tuple(b for b in self.blocks if b.kind not in ("class", "pool"))

    @property
    def stages(self) -> tuple[tuple[tuple[int, int], int], ...]:
        """((grid, number of blocks), ...): a plain ViT has one stage."""
        found: list[tuple[tuple[int, int], int]] = []
        for block in self.trunk:
            if found and found[-1][0] == block.grid:
                found[-1] = (block.grid, found[-1][1] + 1)
            else:
                found.append((block.grid, 1))
        return tuple(found)

    def missing(self, need: str) -> str | None:
        """Why this layout cannot meet a need, as the rest of a sentence; None when it can."""
        return MISSING[need](self)


def default_readout(pool: Pool, prefix: int, patches: int) -> tuple[float, ...]:
    """How much each token feeds the head, summing to one."""
    if pool == "class" and prefix:
        return (1.0,) + (0.0,) * (prefix - 1 + patches)
    if pool == "class and mean" and prefix:
        return (0.5,) + (0.0,) * (prefix - 1) + (0.5 / patches,) * patches
    return (0.0,) * prefix + (1 / patches,) * patches


def no_attention(layout: Layout) -> str | None:
    if layout.missed:
        return "its attention runs in a kernel that cannot be seen (" + ", ".join(layout.missed[:3]) + ")"
    return None if any(b.kind != "none" for b in layout.blocks) else "it has no attention"


def no_grid(layout: Layout) -> str | None:
    return None if prod(layout.grid) > 1 else "its tokens do not lie on a patch grid"


def no_last_attention(layout: Layout) -> str | None:
    if reason := no_attention(layout) or no_grid(layout):
        return reason
    last = layout.blocks[-1]
    return None if last.kind in ("global", "class", "pool") else not_global(last)


def no_chain(layout: Layout) -> str | None:
    """Rollout and its relatives multiply n x n maps: every block must join the same n tokens with one map."""
    if reason := no_attention(layout) or no_grid(layout):
        return reason
    for block in layout.trunk:
        if block.kind != "global" or block.maps != 1:
            return not_global(block)
    if len(layout.stages) > 1:
        return "its patches are merged on the way (" + ", ".join(f"{h} x {w}" for (h, w), _ in layout.stages) + ")"
    return None


def not_global(block: Block) -> str:
    return f"block {block.name} does not join all tokens with one map: {KINDS[block.kind]}"


KINDS: dict[Kind, str] = {
    "global": "it has several maps",
    "window": "it attends within windows",
    "reduced": "its keys are a reduced grid",
    "merging": "it merges patches",
    "channel": "it attends over channels",
    "class": "only a class token attends",
    "pool": "it pools the tokens",
    "none": "it has no attention",
}


def no_mean(layout: Layout) -> str | None:
    if reason := no_grid(layout):
        return reason
    return None if layout.pool == "mean" else f"its head reads {READS[layout.pool]}, not the mean of the patches"


READS = {
    "class": "the class token",
    "mean": "the mean of the patches",
    "class and mean": "the class token and the mean of the patches",
    "attention": "the tokens through attention",
    "unknown": "its tokens in an unknown way",
}
MISSING = {
    "attention": no_attention,
    "tokens": no_grid,
    "last attention": no_last_attention,
    "chain": no_chain,
    "mean pooling": no_mean,
}


def block_index(layout: Layout, block: int, *, method: str) -> int:
    """The index of a trunk block, negative ones counted from the end."""
    count = len(layout.trunk)
    if not -count <= block < count:
        raise LayoutError(
            f"{method}: block {block} was asked for, but the model has {count} blocks. "
            f"Give a number from {-count} to {count - 1}."
        )
    return block % count
