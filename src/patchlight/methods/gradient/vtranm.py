from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.layout import Layout, block_index
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, is_skipped, start_row, through, trunk_readout
from patchlight.tracing.seen import Seen
from patchlight.tracing.trace import Steps, Trace


def taps(settings: Mapping[str, Any], layout: Layout) -> Taps:
    gradients = frozenset({"attention"})
    if settings["aggregate"]:
        return Taps(settings["gradient"], gradients)
    at = block_index(layout, settings["block"], method="vtranm")
    return Taps(settings["gradient"], gradients, first=at, last=at)


@method(
    paper="Wu et al. 2024, Token Transformation Matters (TokenTM), also called VTranM",
    equation="C = U_2L ... U_1 C_0; attention: U = I + mean_h([∇A]^+ ⊙ A W), MLP: U = I + W; "
    "W = diag(|Ẽ| / |E| · softmax_j cos(E_j, Ẽ_j))",
    needs=("chain",),
    cost=Cost(1, 1),
    taps=taps,
)
def vtranm(
    trace: Trace,
    *,
    gradient: Literal["probability", "logit"] = "probability",  # noqa: ARG001  read by the taps above
    lengths: bool = True,
    directions: bool = True,
    init: Literal["lengths", "identity"] | None = None,
    reference: Literal["residual", "norm"] = "residual",
    aggregate: bool = True,
    block: int = 0,
    readout: Readout = None,
) -> Steps:
    """Attention joined with how each token's vector is transformed, in length and direction, through attention and MLP.

    E is the residual stream (`reference="norm"`: what the norm makes of it), Ẽ a head's value behind its slice of the output
    projection, without that layer's bias, or the MLP's output. Ablations: `lengths`, `directions`, `init` (default: lengths when
    they are on), and `aggregate=False`, the attention and gradient of one `block` alone. No code of the authors is public.
    """
    layout = trace.layout
    transform = Transform(trace, lengths=lengths, directions=directions, reference=reference)
    row: Tensor | None = None
    start: Tensor | None = None
    updates: dict[int, tuple[Tensor, Tensor]] = {}
    chosen = block_index(layout, block, method="vtranm")
    while (seen := (yield)) is not None:
        if is_skipped(seen.block, readout) or (not aggregate and seen.index != chosen):
            continue
        positive = seen.positive  # (b, h, q, k)
        if not aggregate:
            whole = start_row(layout, trunk_readout(layout, readout), positive)
            row = through(whole, seen, positive.mean(1), tokens=layout.tokens, keep=0.0)
            continue
        mlp = transform.mlp(seen)  # (b, n)
        update = (positive * transform.attention(seen)).mean(1)  # (b, q, k)
        row = start_row(layout, readout, update) if row is None else row
        if seen.block.kind == "global":
            row = row[:, -layout.tokens :] * (1 + mlp)
        row = through(row, seen, update, tokens=layout.tokens)
        if seen.index == 0:
            start = seen.stream("entering").norm(dim=-1)
        if trace.kept is not None:
            updates[seen.index] = (update, mlp)
    assert row is not None
    if (init or ("lengths" if lengths else "identity")) == "lengths" and start is not None:
        row = row * start
    else:
        start = torch.ones_like(row)
    keep_insides(trace, updates, start)
    return row


class Transform:
    """The diagonal of W for each block: (b, h, 1, n) for the attention, (b, n) for the MLP; 1 and 0 where both parts are off."""

    def __init__(self, trace: Trace, *, lengths: bool, directions: bool, reference: str) -> None:
        self.trace, self.lengths, self.directions, self.reference = trace, lengths, directions, reference
        self.off = not (lengths or directions)

    def attention(self, seen: Seen) -> Tensor:
        if self.off or seen.block.kind != "global":
            return torch.ones((), device=seen.attention.device, dtype=seen.attention.dtype)
        return self.weights(seen.index, "attention", seen.attention_update(self.reference))[:, :, None]

    def mlp(self, seen: Seen) -> Tensor:
        if self.off or seen.block.kind != "global":
            return torch.zeros((), device=seen.attention.device, dtype=seen.attention.dtype)
        return self.weights(seen.index, "mlp", seen.mlp_update(self.reference))

    def weights(self, index: int, part: str, vectors: tuple[Tensor, Tensor]) -> Tensor:
        ratio, cosine = vectors
        direction = cosine.softmax(-1)  # NECC, over all tokens
        self.trace.keep(f"{part} length ratio", index, ratio)
        self.trace.keep(f"{part} direction", index, direction)
        one = torch.ones_like(ratio)
        return (ratio if self.lengths else one) * (direction if self.directions else one)


def keep_insides(trace: Trace, updates: Mapping[int, tuple[Tensor, Tensor]], start: Tensor) -> None:
    """Update maps U (b, n, n) of both halves of each block, and the running contribution C, which grows from the first block."""
    if trace.kept is None or not updates:
        return
    eye = torch.eye(start.shape[-1], dtype=start.dtype, device=start.device)
    running = torch.diag_embed(start)
    for index in sorted(i for i in updates if trace.layout.blocks[i].kind == "global"):
        update, mlp = updates[index]
        halves = (eye + update, eye + torch.diag_embed(mlp.expand_as(start)))
        trace.keep("update", index, torch.stack(halves, 1))
        running = halves[1] @ (halves[0] @ running)
        trace.keep("contribution", index, running)
