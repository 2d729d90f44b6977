from __future__ import annotations

from typing import Literal

from patchlight.core.registry import Cost, Taps, method
from patchlight.tracing.seen import as_tokens
from patchlight.tracing.trace import Steps, Trace


@method(
    paper="Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens",
    equation="M = Σ_l mean_h,i(A_l[i, :]) ⊙ Σ_d (X_l ⊙ ∂y/∂X_l), X_l = tokens entering block l",
    needs=("chain",),
    cost=Cost(1, 1),
    taps=Taps("logit", frozenset({"entering"})),
)
def attcat(trace: Trace, *, sign: Literal["signed", "positive", "absolute"] = "signed") -> Steps:
    """Gradient times token, weighted by the attention each token receives, summed over blocks.

    As the authors' code for BERT does, the tokens are those entering a block, and the attention is averaged over heads and
    over all queries. `sign` is applied to each block's part.
    """
    total = None
    while (seen := (yield)) is not None:
        if seen.block.kind != "global":
            continue
        tokens, slope = (as_tokens(t, seen.block.grid) for t in (seen.stream("entering"), seen.gradient("entering")))
        part = SIGN[sign]((tokens * slope).sum(-1) * seen.mean_attention.mean(1))  # (b, n)
        total = part if total is None else total + part
        trace.keep("block map", seen.index, part)
    assert total is not None
    return total


SIGN = {"signed": lambda p: p, "positive": lambda p: p.clamp_min(0), "absolute": lambda p: p.abs()}
