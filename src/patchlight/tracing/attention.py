"""What fused attention hides: its map, and the gradient at its map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.errors import TraceError

HALF_SCALE = 1024.0  # a gradient of 1e-8 is 0 in float16: the scalar is scaled up and the gradients down again


@dataclass(frozen=True, eq=False)
class Fused:
    """The arguments of one fused attention: its map and the map's gradient are computed from them when a method asks.

    So the fast kernel stays in use, and no n x n tensor outlives the block that is being looked at.
    """

    query: Tensor  # (b, h, q, e)
    key: Tensor  # (b, h, k, e)
    value: Tensor  # (b, h, k, e)
    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.query.shape[:-1], self.key.shape[-2])

    def scores(self) -> Tensor:
        """S = q kᵀ scale + mask, in float32 or better."""
        query, key = at_least_float(self.query, packed=True), at_least_float(self.key, packed=True)
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = (query * scale) @ key.transpose(-2, -1)
        if self.is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~allowed, float("-inf"))
        if self.mask is None:
            return scores
        return scores.masked_fill(~self.mask, float("-inf")) if self.mask.dtype == torch.bool else scores + self.mask

    def map_gradient(self, context: Tensor) -> Tensor:
        """∂y/∂A = ∂y/∂(A v) vᵀ"""
        return context @ at_least_float(self.value, packed=True).transpose(-2, -1)


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001  the model is in eval mode: no dropout
    is_causal: bool = False,  # noqa: FBT001, FBT002  the signature of torch
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> Fused:
    """The call `F.scaled_dot_product_attention(...)` with grouped heads spread out."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    return Fused(query, key, value, attn_mask, is_causal, scale)


def at_least_float(tensor: Tensor, *, packed: bool = False) -> Tensor:
    """Half precision is widened: products over many blocks underflow in it. `packed`: contiguous, in the same copy."""
    layout = torch.contiguous_format if packed else torch.preserve_format
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32), memory_format=layout)


def multi_head(
    attend: Callable[..., Tensor],
    linear: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,  # noqa: ARG001
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,  # noqa: FBT001
    dropout_p: float,  # noqa: ARG001
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,  # noqa: FBT001, FBT002
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,  # noqa: FBT001, FBT002
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    average_attn_weights: bool = True,  # noqa: FBT001, FBT002
    is_causal: bool = False,  # noqa: ARG001, FBT001, FBT002  a hint that comes with attn_mask
    **other: Any,
) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward` on (n, b, d) inputs, with the pictures first inside.

    The function itself cannot be entered under a function mode.
    """
    rare = {"bias_k": bias_k, "bias_v": bias_v, "static_k": other.get("static_k"), "static_v": other.get("static_v")}
    if add_zero_attn or any(v is not None for v in rare.values()):
        raise TraceError(
            "nn.MultiheadAttention with bias_k, bias_v, add_zero_attn or static keys cannot be traced: "
            "expected plain keys and values. Build the model without these options, or use a method of the pixel family."
        )
    unbatched = query.dim() == 2
    query, key, value = (t.unsqueeze(0) if unbatched else t.transpose(0, 1) for t in (query, key, value))  # (b, n, d)
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    biases = in_proj_bias.chunk(3) if in_proj_bias is not None else (None, None, None)
    projected = (F.linear(t, w, b) for t, w, b in zip((query, key, value), weights, biases, strict=True))  # pyright: ignore
    q, k, v = (t.unflatten(-1, (num_heads, -1)).transpose(1, 2) for t in projected)  # (b, n, d) -> (b, h, n, e)
    mask = joint_mask(attn_mask, key_padding_mask, q)
    context = attend(q, k, v, attn_mask=mask)
    merged = context.transpose(1, 2).flatten(2)  # (b, n, d)
    out = linear(merged, out_proj_weight, out_proj_bias)
    maps = None
    if need_weights:
        maps = fused(q, k, v, mask).scores().softmax(-1).to(q.dtype)
        maps = maps.mean(1) if average_attn_weights else maps
    if unbatched:
        return out[0], maps if maps is None else maps[0]
    return out.transpose(0, 1), maps


def joint_mask(attn_mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """One additive mask (b | 1, h | 1, n, n) from an attention mask and a key padding mask."""
    batch, heads = query.shape[:2]
    mask = additive(attn_mask, query)
    if mask is not None:
        mask = mask.unflatten(0, (batch, heads)) if mask.dim() == 3 else mask[None, None]
    if padding is not None:
        hidden = additive(padding, query)
        assert hidden is not None
        mask = hidden[:, None, None] if mask is None else mask + hidden[:, None, None]
    return mask


def additive(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """True means hidden here, as in nn.MultiheadAttention."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))
