"""What one block left behind in a forward pass, and what a backward pass brought to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from patchlight.core.errors import TraceError
from patchlight.core.layout import Block
from patchlight.tracing.attention import Fused, at_least_float


@dataclass(eq=False)
class Seen:
    """One block of one batch: b pictures, h heads, n tokens, d width."""

    index: int
    block: Block
    entering: Tensor | None = None  # (b, n, d) the residual stream in front of the block, or a grid
    middle: Tensor | None = None  # the stream between attention and MLP
    summed: Tensor | None = None  # middle + MLP: the same as `leaving` where no norm follows
    leaving: Tensor | None = None
    normed: Tensor | None = None  # what the attention reads: the norm of `entering`
    normed_middle: Tensor | None = None
    calls: list[Fused] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)  # (b, h, q, k) after an explicit softmax
    score_maps: list[Tensor] = field(default_factory=list)  # in front of it
    value: Tensor | None = None  # (b, h, k, d / h)
    projection: Tensor | None = None  # (d, d) weight of the linear behind the attention
    projected: Tensor | None = None
    layer_scale: Tensor | None = None  # (d,) gamma on the attention's output
    between: bool = False  # a norm stands between attention and projection
    gradients: dict[str, Tensor] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)

    def drop(self) -> None:
        """Forget the tensors: autograd frees its own as the backward pass goes by."""
        self.calls, self.maps, self.score_maps, self.gradients = [], [], [], {}
        self.value = self.entering = self.middle = self.summed = self.leaving = self.normed = self.normed_middle = (
            self.projected
        ) = None
        self.refresh()

    def refresh(self) -> None:
        """Forget what was worked out for the methods of one pass."""
        for name in ("attention", "scores", "slope", "mean_attention", "positive"):
            self.__dict__.pop(name, None)

    @property
    def count(self) -> int:
        """How many maps the block has shown."""
        return len(self.calls) + len(self.maps)

    @cached_property
    def attention(self) -> Tensor:
        """A (b, h, q, k) in float32 or better."""
        return self.scores.softmax(-1) if self.calls else plain_map(at_least_float(self.maps[0]))

    @cached_property
    def scores(self) -> Tensor:
        """S (b, h, q, k), before softmax."""
        return plain_map(self.calls[0].scores() if self.calls else at_least_float(self.score_maps[0]))

    @cached_property
    def slope(self) -> Tensor:
        """∂y/∂A (b, h, q, k)"""
        found = self.gradients["attention"]
        return plain_map(self.calls[0].map_gradient(found) if self.calls else found)

    @cached_property
    def mean_attention(self) -> Tensor:
        """mean_h A (b, q, k), which several methods read."""
        return self.attention.mean(1)

    @cached_property
    def positive(self) -> Tensor:
        """[∂y/∂A]^+ ⊙ A = [∂y/∂A ⊙ A]^+ (b, h, q, k), which several methods read."""
        return (self.slope * self.attention).clamp_min_(0)

    def gradient(self, name: str = "attention") -> Tensor:
        return self.slope if name == "attention" else self.gradients[name]

    def stream(self, name: str) -> Tensor:
        """A token tensor by name, (b, n, d)."""
        tensor = getattr(self, name)
        if tensor is None or (name == "leaving" and tensor is not self.summed):
            raise TraceError(
                f"block {self.block.name} shows no {name!r} tokens: expected a pre-norm residual block "
                "(x + attention(norm(x)), then x + mlp(norm(x))). Use a method that reads attention only, such as transformer_mm."
            )
        return at_least_float(tensor)

    def attention_update(self, reference: str) -> tuple[Tensor, Tensor]:
        """|Ẽ|/|E| and cos(E, Ẽ), both (b, h, n), where Ẽʰ_j = v_j W_h is what head h would add for token j.

        Ẽ is never built: |vW|² = v (W Wᵀ) vᵀ and E·(vW) = (E Wᵀ)·v, one head at a time.
        """
        base = self.stream("entering" if reference == "residual" else "normed")  # (b, n, d)
        value, weight = self.value, self.projection
        if value is None or weight is None or self.between or weight.shape[-1] != value.shape[1] * value.shape[-1]:
            raise TraceError(
                f"block {self.block.name} does not show how a head's values reach the residual stream: expected one linear "
                "layer right behind the attention. Use transformer_mm, which needs attention and gradients only."
            )
        heads = at_least_float(weight)
        if self.layer_scale is not None:
            heads = heads * at_least_float(self.layer_scale).reshape(-1, 1)
        projected = base.to(value.dtype) @ heads.to(value.dtype)  # (b, n, h e), the one large product, in the model's precision
        value = at_least_float(value)
        split = heads.unflatten(1, (value.shape[1], -1))  # (d, h, e)
        gram = torch.einsum("dhe,dhf->hef", split, split)
        lengths = ((value @ gram) * value).sum(-1).clamp_min(0).sqrt()
        dots = torch.einsum("bnhe,bhne->bhn", projected.unflatten(-1, (value.shape[1], -1)).to(value.dtype), value)
        return compare_vectors(base.norm(dim=-1)[:, None], lengths, dots)

    def mlp_update(self, reference: str) -> tuple[Tensor, Tensor]:
        """|Ẽ|/|E| and cos(E, Ẽ), both (b, n), for what the MLP adds to each token."""
        middle = self.stream("middle")
        base = middle if reference == "residual" else self.stream("normed_middle")
        update = self.stream("leaving") - middle
        return compare_vectors(base.norm(dim=-1), update.norm(dim=-1), (base * update).sum(-1))


def compare_vectors(base: Tensor, update: Tensor, dots: Tensor) -> tuple[Tensor, Tensor]:
    """Length ratio and cosine, 0 where a vector is 0."""
    tiny = torch.finfo(base.dtype).tiny
    ratio = torch.where(base > tiny, update / base.clamp_min(tiny), 0.0)
    product = base * update
    return ratio, torch.where(product > tiny, dots / product.clamp_min(tiny), 0.0)


def plain_map(maps: Tensor) -> Tensor:
    """(b, h, q, k) also where a model keeps an axis for windows, (b, h, 1, q, k)."""
    return maps[:, :, 0] if maps.dim() == 5 and maps.shape[2] == 1 else maps


def as_tokens(tensor: Tensor, grid: tuple[int, int]) -> Tensor:
    """(b, n, d) from (b, n, d), (b, h, w, d) or (b, d, h, w)."""
    if tensor.dim() == 4 and tuple(tensor.shape[1:3]) == grid:
        return tensor.flatten(1, 2)
    if tensor.dim() == 4 and tuple(tensor.shape[2:]) == grid:
        return tensor.flatten(2).transpose(1, 2)
    return tensor
