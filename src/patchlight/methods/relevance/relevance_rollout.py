from __future__ import annotations

from typing import Literal

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods._chain import Readout
from patchlight.methods.relevance._attention import chained
from patchlight.methods.relevance._tables import chefer
from patchlight.methods.relevance._walk import Precision
from patchlight.tracing.ask import Ask


@method(
    paper="Chefer et al. 2021, in their code: rollout of attention relevance",
    equation="C = Π_l (I + mean_h [R_l]^+), R_l the relevance of A_l; M = C[cls, :]",
    needs=("chain",),
    cost=Cost(1, 1),
)
def relevance_rollout(
    ask: Ask,
    *,
    start_block: int = 0,
    rules: Literal["joint", "separate"] = "joint",
    readout: Readout = None,
    precision: Precision = "float64",
) -> Tensor:
    """Transformer Attribution without its gradients: the positive relevance of each map alone."""
    table = chefer("relevance_rollout", rules)
    return chained(ask, table, start_block=start_block, gradients=False, readout=readout, precision=precision)
