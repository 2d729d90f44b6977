"""A plain ViT without some of its patches: their tokens are left out, or (slower, the same numbers) hidden from attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from patchlight.core.layout import READS, Layout
from patchlight.tracing.as_found import as_found
from patchlight.tracing.attention import additive, multi_head

ALIKE = {torch.float64: 1e-9, torch.float32: 1e-3}  # of the largest logit; half precision is compared loosely


@contextmanager
def dropped(model: nn.Module, layout: Layout, present: Tensor) -> Iterator[None]:
    """Inside, the first block gets the prefix tokens and the patches in `present` (b, n).

    Where pictures keep different numbers of them, the shorter ones are filled up with tokens that are hidden from attention.
    """
    counts = present.sum(1)
    longest = int(counts.max())
    order = (~present).to(torch.uint8).sort(dim=1, stable=True).indices[:, :longest]  # (b, m) those that stay come first
    first = torch.arange(layout.prefix, device=present.device).expand(len(present), -1)
    kept = torch.cat([first, order + layout.prefix], 1)
    filled = torch.arange(longest, device=present.device) < counts[:, None]

    def leave_out(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        done = [False]

        def short(value: Any) -> Any:
            if done[0] or not isinstance(value, Tensor) or value.dim() != 3 or value.shape[1] != layout.tokens:
                return value
            done[0] = True
            return value.gather(1, kept[..., None].expand(-1, -1, value.shape[2]))

        return tuple(map(short, args)), {name: short(value) for name, value in kwargs.items()}

    handle = model.get_submodule(layout.trunk[0].name).register_forward_pre_hook(leave_out, with_kwargs=True)
    try:
        with nullcontext() if bool(filled.all()) else Hidden(layout, filled):
            yield
    finally:
        handle.remove()


class Hidden(TorchFunctionMode):
    """Inside, no token takes anything from the patches that are not in `present` (b, n): their scores are -inf in every map."""

    def __init__(self, layout: Layout, present: Tensor) -> None:
        super().__init__()
        prefix = present.new_ones(len(present), layout.prefix)
        self.hidden = ~torch.cat([prefix, present], 1)[:, None, None]  # (b, 1, 1, tokens), True: not there

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self.attend(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return multi_head(self.attend, F.linear, *args, **kwargs)
        if func in SOFTMAX and args and self.is_map(args[0]):
            args = (args[0].masked_fill(self.hidden, float("-inf")), *args[1:])
        return func(*args, **kwargs)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *more: Any, **kwargs: Any
    ) -> Tensor:
        mask = additive(self.hidden, query)
        if attn_mask is not None and mask is not None:
            mask = mask.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else mask + attn_mask
        return F.scaled_dot_product_attention(query, key, value, mask, *more, **kwargs)

    def is_map(self, scores: Tensor) -> bool:
        return scores.dim() == 4 and scores.shape[-1] == self.hidden.shape[-1]


SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax}


def undroppable(model: nn.Module, forward: Callable[[Tensor], Tensor], layout: Layout, images: Tensor) -> str | None:
    """Why patches cannot be left out of this model, as the rest of a sentence; None where leaving out equals hiding."""
    if reason := layout.missing("chain"):
        return reason
    if layout.pool != "class":  # without any patch there would be nothing to read
        return f"its head reads {READS[layout.pool]}, not a class token"
    image = images[:1].detach()
    patches = prod(layout.grid)
    present = (torch.arange(patches, device=image.device) % 3 != 1)[None]
    try:
        with as_found(model), torch.no_grad():
            with dropped(model, layout, present):
                left_out = forward(image.clone())
            with Hidden(layout, present):
                hidden = forward(image.clone())
            whole = forward(image.clone())
    except RuntimeError as error:  # position information inside the blocks has the length of all tokens
        return f"its blocks need all of its tokens ({str(error).splitlines()[0]})"
    scale = whole.abs().max().clamp_min(1e-12)
    gap = float((left_out - hidden).abs().max() / scale)
    narrow = image.dtype not in ALIKE or torch.is_autocast_enabled(image.device.type)
    if gap > (0.05 if narrow else ALIKE[image.dtype]):
        return (
            f"its output without tokens is not its output with the same tokens hidden (they differ by {gap:.0e} of the largest)"
        )
    return None
