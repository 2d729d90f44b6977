from __future__ import annotations

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods._chain import Readout
from patchlight.methods.relevance._attention import chained
from patchlight.methods.relevance._tables import chefer
from patchlight.methods.relevance._walk import Precision
from patchlight.tracing.ask import Ask


@method(
    paper="Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization",
    equation="C = Π_{l >= s} (I + mean_h [∇A_l ⊙ R_l]^+), R_l the relevance of A_l; M = C[cls, :]",
    needs=("chain",),
    cost=Cost(1, 2),
)
def transformer_attribution(
    ask: Ask,
    *,
    start_block: int = 1,
    normalise: bool = False,
    readout: Readout = None,
    precision: Precision = "float64",
) -> Tensor:
    """Relevance of the attention maps, weighted by their gradients, positive part, multiplied through the blocks.

    `start_block=1` as in the authors' evaluation (their function's own default is 0). `normalise` divides each row of
    I + update by its sum, as TAM's copy does. The review's "LRP" is this method from block 0.
    """
    return chained(
        ask,
        chefer("transformer_attribution", "joint"),
        start_block=start_block,
        gradients=True,
        normalise=normalise,
        readout=readout,
        precision=precision,
    )
