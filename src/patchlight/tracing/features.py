"""Feature maps of one layer: of a block of a transformer, of a module by name, or of a CNN's last convolution."""

from __future__ import annotations

from contextlib import closing
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from patchlight.core.errors import LayoutError, ModelError, nearest
from patchlight.core.layout import Layout, block_index
from patchlight.core.registry import Taps
from patchlight.tracing.as_found import as_found
from patchlight.tracing.ask import Ask
from patchlight.tracing.attention import at_least_float
from patchlight.tracing.seen import Seen, as_tokens
from patchlight.tracing.trace import Recorder, block_hooks, first_tensor
from patchlight.tracing.watch import Watch

At = Literal["norm", "attention", "output", "input"]


def feature_maps(ask: Ask, *, block: int | None, at: At, layer: str | None, method: str) -> Tensor:
    """(b, d, h, w) in float32 or better, from the pass that also tells logits and target.

    `block` None: the last one; where patches are merged on the way, the last one before the last merge. `at`: what the attention
    reads (the norm in front of it), what it adds to the stream, what leaves or what enters the block.
    """
    layout = ask.layout()
    if layer is None and prod(layout.grid) > 1:
        index = default_block(layout) if block is None else block_index(layout, block, method=method)
        return of_block(ask, layout, index, at)
    return of_layer(ask, layout, layer or last_convolution(ask, method))


def default_block(layout: Layout) -> int:
    """The last block; of a hierarchical model the last of the last stage but one."""
    stages = layout.stages
    return len(layout.trunk) - 1 - (stages[-1][1] if len(stages) > 1 else 0)


class One(Recorder):
    """Keeps the tensors of one block and drops those of the others as they leave."""

    only: int = 0

    def leave(self, module: nn.Module, args: Any, out: Any) -> None:
        super().leave(module, args, out)
        if self.seen and self.seen[-1].index != self.only:
            self.seen[-1].drop()


def of_block(ask: Ask, layout: Layout, index: int, at: At) -> Tensor:
    recorder = One(layout, [Taps()])
    recorder.only = index
    with closing(recorder):
        with as_found(ask.model), torch.no_grad(), block_hooks(ask.model, layout, recorder), Watch(recorder):
            logits = ask.forward(ask.images.detach().clone())
        learn(ask, logits)
        seen = next((s for s in recorder.seen if s.index == index), None)
        tensor = None if seen is None else part(seen, at)
        if seen is None or tensor is None:
            raise ModelError(
                f"block {layout.trunk[index].name} shows no features at {at!r}: expected a residual block with a norm in front "
                "of its attention. Use features='output', or name a module by layer=."
            )
        return on_grid(at_least_float(tensor), seen.block.grid)


def part(seen: Seen, at: At) -> Tensor | None:
    if at == "attention":  # as it joins the stream: projected, windows put together again
        return None if seen.middle is None or seen.entering is None else seen.middle - seen.entering
    if at == "norm":
        return seen.entering if seen.normed is None else seen.normed
    return seen.leaving if at == "output" else seen.entering


def learn(ask: Ask, logits: Tensor) -> None:
    if ask.logits is None or ask.target is None:
        ask.learn(logits)


def on_grid(tensor: Tensor, grid: tuple[int, int]) -> Tensor:
    """(b, d, h, w) from tokens (b, n, d) with prefix tokens in front, or from a grid of either order."""
    tokens = as_tokens(tensor, grid)
    return tokens[:, tokens.shape[1] - prod(grid) :].transpose(1, 2).unflatten(2, grid)


# -- by name ----------------------------------------------------------------------------------------------------------


def of_layer(ask: Ask, layout: Layout, name: str) -> Tensor:
    """What the module of this name put out last."""
    modules = dict(ask.model.named_modules())
    if name not in modules:
        raise ModelError(f"layer: the model has no module {name!r}.{nearest_modules(name, modules)}")
    held: list[Tensor | None] = [None]

    def hold(_module: nn.Module, _args: Any, out: Any) -> None:
        held[0] = first_tensor(out)

    handle = modules[name].register_forward_hook(hold)
    try:
        learn(ask, ask.score(ask.images))
    finally:
        handle.remove()
    if held[0] is None:
        raise ModelError(f"layer: the module {name!r} put out no tensor in the forward pass. Name one that is called.")
    return spatial(at_least_float(held[0].detach()), layout, name, len(ask.images))


def spatial(tensor: Tensor, layout: Layout, name: str, count: int) -> Tensor:
    """(b, d, h, w) of whatever a layer puts out."""
    grids = [layout.grid, *(grid for grid, _ in layout.stages)]
    if tensor.dim() == 4 and len(tensor) == count:
        known = [g for g in grids if tuple(tensor.shape[1:3]) == g]
        return on_grid(tensor, known[0]) if known else tensor
    if tensor.dim() == 3 and len(tensor) == count:
        for grid in grids:
            if prod(grid) > 1 and tensor.shape[1] in (prod(grid), prod(grid) + layout.prefix):
                return on_grid(tensor, grid)
    raise LayoutError(
        f"layer: {name!r} puts out {tuple(tensor.shape)}, but feature maps (b, d, h, w) or tokens (b, n, d) on the grid were "
        "expected. Name a block, a norm or a convolution."
    )


def last_convolution(ask: Ask, method: str) -> str:
    """The last convolution of a network without patch tokens."""
    found = [name for name, module in ask.model.named_modules() if isinstance(module, nn.Conv2d)]
    if not found:
        raise ModelError(
            f"{method} needs feature maps, but no block and no convolution can be seen in this model. "
            "Name a module by layer=, or use a method that needs scores only: rise, occlusion."
        )
    return found[-1]


def nearest_modules(name: str, modules: dict[str, nn.Module]) -> str:
    """The nearest name; long lists are not printed."""
    return nearest(name, [m for m in modules if m]).split(" Known:")[0] + " See model.named_modules()."
