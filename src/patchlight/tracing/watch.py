"""One function mode that sees attention, projections, norms and residual sums, whichever library wrote the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from patchlight.tracing.attention import Fused, fused, multi_head


class Sink(Protocol):
    """Who is told what was seen."""

    def fused(self, call: Fused, out: Tensor) -> None: ...
    def attention(self, scores: Tensor, weights: Tensor, value: Tensor) -> None: ...
    def linear(self, given: Tensor, weight: Tensor, out: Tensor) -> None: ...
    def norm(self, given: Tensor, out: Tensor) -> None: ...
    def add(self, left: Any, right: Any, out: Tensor) -> None: ...
    def multiply(self, left: Any, right: Any, out: Tensor) -> None: ...
    def convolution(self, out: Tensor) -> None: ...


class Watch(TorchFunctionMode):
    """Hands every attention of a forward pass to a sink; what is computed stays as it is.

    Of fused attention the sink gets the arguments. An explicit softmax becomes an attention map when it, or what shape
    changes, casts, dropout and head mixing made of it, is multiplied with values.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink
        self.candidates: dict[int, tuple[Tensor, Tensor]] = {}  # id of a map -> (map, scores): holding the map keeps the id

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        if self.candidates and func in CARRIERS:
            self.carry(args, out)
        return out

    def carry(self, args: Any, out: Any) -> None:
        if args and isinstance(out, Tensor) and id(args[0]) in self.candidates:
            self.candidates[id(out)] = (out, self.candidates[id(args[0])][1])

    def fused(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        self.sink.fused(fused(*args, **kwargs), out)
        return out

    def multi_head(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        def linear(given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return self.linear(F.linear, (given, weight, bias), {})

        def attend(*args: Tensor, **kwargs: Tensor | None) -> Tensor:
            return self.fused(F.scaled_dot_product_attention, args, kwargs)

        return multi_head(attend, linear, *args, **kwargs)

    def softmax(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if out.dim() >= 3 and dim in (-1, out.dim() - 1):
            self.candidates[id(out)] = (out, args[0] if args else kwargs["input"])
        return out

    def product(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        left, *rest = args
        if id(left) in self.candidates and len(rest) == 1 and not kwargs:
            weights, scores = self.candidates[id(left)]
            self.candidates.clear()
            self.sink.attention(scores, weights, rest[0])
        return func(*args, **kwargs)

    def einsum(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        if len(args) == 3 and id(args[1]) in self.candidates and contracts_last(args[0]):
            weights, scores = self.candidates[id(args[1])]
            self.candidates.clear()
            self.sink.attention(scores, weights, args[2])
        return func(*args, **kwargs)

    def linear(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        self.carry(args, out)  # talking heads mix maps through a linear
        weight = args[1] if len(args) > 1 else kwargs["weight"]
        self.sink.linear(args[0] if args else kwargs["input"], weight, out)
        return out

    def norm(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        self.sink.norm(args[0], out)
        return out

    def add(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        left = args[0]
        out = func(*args, **kwargs)
        if len(args) > 1:
            self.sink.add(left, args[1], out)
        return out

    def multiply(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        self.carry(args, out)
        if len(args) > 1:
            self.sink.multiply(args[0], args[1], out)
        return out

    def dropout(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        self.carry(args, out)
        return out

    def convolution(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        out = func(*args, **kwargs)
        self.sink.convolution(out)
        return out


def contracts_last(equation: Any) -> bool:
    """True for `bhij,bhjd->bhid`: the last axis of the first operand is summed over."""
    if not isinstance(equation, str) or "->" not in equation:
        return False
    operands, _, out = equation.replace(" ", "").partition("->")
    first, _, second = operands.partition(",")
    return bool(first) and first[-1] in second and first[-1] not in out


T = torch.Tensor
HANDLERS: dict[Any, Callable[[Watch, Any, Any, Any], Any]] = {
    F.scaled_dot_product_attention: Watch.fused,
    F.multi_head_attention_forward: Watch.multi_head,
    F.linear: Watch.linear,
    F.layer_norm: Watch.norm,
    F.rms_norm: Watch.norm,
    F.conv2d: Watch.convolution,
    torch.conv2d: Watch.convolution,
    F.dropout: Watch.dropout,
    torch.einsum: Watch.einsum,
    torch.functional.einsum: Watch.einsum,
    **dict.fromkeys((torch.softmax, F.softmax, T.softmax), Watch.softmax),
    **dict.fromkeys((torch.matmul, T.matmul, T.__matmul__, torch.bmm, T.bmm), Watch.product),
    **dict.fromkeys((torch.add, T.add, T.__add__, T.add_, T.__iadd__, T.__radd__), Watch.add),
    **dict.fromkeys((torch.mul, T.mul, T.__mul__, T.mul_, T.__imul__, T.__rmul__), Watch.multiply),
}
CARRIERS = {
    T.to, T.float, T.half, T.bfloat16, T.double, T.type, T.type_as, T.contiguous, T.clone, torch.clone, T.permute,
    torch.permute, T.transpose, torch.transpose, T.reshape, torch.reshape, T.view, T.flatten, torch.flatten, T.unflatten,
    T.masked_fill, torch.nan_to_num, T.nan_to_num, T.unsqueeze, T.squeeze,
}  # fmt: skip
