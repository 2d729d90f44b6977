from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from patchlight.core.layout import Layout, block_index
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, map_index, read, start_row
from patchlight.tracing.seen import Seen, as_tokens
from patchlight.tracing.trace import Steps, Trace


def taps(settings: Mapping[str, Any], layout: Layout) -> Taps:
    at = where(settings["features"], settings["block"], layout)
    names = {"attention"} if settings["features"] == "attention" else {"entering", "normed"}
    return Taps("logit", frozenset(names), first=at, last=at)


@method(
    paper="Selvaraju et al. 2017; on attention as in Chefer et al. 2021, on tokens as in pytorch-grad-cam",
    equation="tokens: M = [Σ_k mean_i(∂y/∂F_ik) F_k]^+, F = norm before the attention; "
    "attention: M = [mean_h mean_j(∇A[cls, j]) A[cls, :]]^+",
    needs=("tokens",),
    cost=Cost(1, 1),
    taps=taps,
)
def grad_cam(
    trace: Trace,
    *,
    features: Literal["tokens", "attention"] = "tokens",
    block: int = -1,
    relu: bool = True,
    readout: Readout = None,
) -> Steps:
    """Feature maps of one block weighted by their mean gradient.

    `features="tokens"` takes what the last attention reads (behind it the gradient of a class-token head is zero on patches);
    `features="attention"` takes the class token's attention, one map for each head.
    """
    layout = trace.layout
    at, scores = where(features, block, layout), None
    while (seen := (yield)) is not None:
        if seen.index == at:
            weigh = weighted_attention if features == "attention" else weighted_tokens
            scores = weigh(seen, layout, readout)
            if features == "attention":
                trace.keep("attention", at, seen.attention)
    assert scores is not None
    return scores.clamp_min(0) if relu else scores


def where(features: str, block: int, layout: Layout) -> int:
    if features == "attention":
        return map_index(layout, block, method="grad_cam")
    return block_index(layout, block, method="grad_cam")


def weighted_tokens(seen: Seen, layout: Layout, readout: Readout) -> Tensor:  # noqa: ARG001
    name = "entering" if seen.normed is None else "normed"
    grid = seen.block.grid
    features, gradient = (as_tokens(t, grid)[:, -grid[0] * grid[1] :] for t in (seen.stream(name), seen.gradient(name)))
    return (features * gradient.mean(1, keepdim=True)).sum(-1)  # (b, n)


def weighted_attention(seen: Seen, layout: Layout, readout: Readout) -> Tensor:
    patches = seen.block.grid[0] * seen.block.grid[1]
    whole = start_row(layout, readout, seen.attention)
    rows, slopes = (read(whole, t)[..., -patches:] for t in (seen.attention, seen.gradient()))  # (b, h, n)
    return (slopes.mean(-1, keepdim=True) * rows).mean(1)
