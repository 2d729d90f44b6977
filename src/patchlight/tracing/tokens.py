"""What a model makes of each patch before its head reads it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from torch import Tensor, nn

from patchlight.core.errors import TraceError
from patchlight.core.layout import Layout
from patchlight.tracing.seen import as_tokens
from patchlight.tracing.trace import first_tensor


def last_tokens(model: nn.Module, forward: Callable[[Tensor], Tensor], layout: Layout, images: Tensor) -> Tensor:
    """(b, n, d) the patches that leave the last block, without the prefix tokens; with a graph where gradients are on."""
    block, found = layout.trunk[-1].name, []

    def keep(_m: nn.Module, _a: Any, out: Any) -> None:
        tensor = first_tensor(out)
        if tensor is not None:
            found.append(as_tokens(tensor, layout.grid))

    handle = model.get_submodule(block).register_forward_hook(keep)
    try:
        forward(images)
    finally:
        handle.remove()
    patches = prod(layout.grid)
    if not found or found[-1].dim() != 3 or found[-1].shape[1] < patches:
        came = tuple(found[-1].shape) if found else "no tensor"
        raise TraceError(
            f"block {block} should give tokens (b, {layout.tokens}, d), but {came} came. Give load(..., layout=) with the block "
            "that the head reads."
        )
    return found[-1][:, -patches:]
