from __future__ import annotations

from typing import Literal

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods._chain import Readout
from patchlight.methods.relevance._attention import single
from patchlight.methods.relevance._tables import chefer
from patchlight.methods.relevance._walk import Precision
from patchlight.tracing.ask import Ask


@method(
    paper="Voita et al. 2019, Analyzing Multi-Head Self-Attention; for ViT as the baseline in Chefer et al. 2021",
    equation="M = mean_h [R_l]^+[cls, :], R_l the relevance of A_l; with gradient: mean_h [∇A_l ⊙ R_l]^+",
    needs=("last attention",),
    cost=lambda settings: Cost(1, 2 if settings["gradient"] else 1),
)
def partial_lrp(
    ask: Ask,
    *,
    rules: Literal["separate", "joint"] = "separate",
    block: int = -1,
    gradient: bool = False,
    readout: Readout = None,
    precision: Precision = "float64",
) -> Tensor:
    """The relevance of one block's attention map, read like raw attention: LRP that stops at the last block.

    `block=1` is the second-layer variant of the authors' code, `gradient=True` its variant weighted by ∇A.
    """
    table = chefer("partial_lrp", rules)
    return single(ask, table, block=block, gradients=gradient, readout=readout, precision=precision)
