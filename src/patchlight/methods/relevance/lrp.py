from __future__ import annotations

from typing import Literal

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods.relevance._tables import chefer
from patchlight.methods.relevance._walk import At, Precision, read_off
from patchlight.tracing.ask import Ask


@method(
    paper="Bach et al. 2015; for ViT as the baseline in Chefer et al. 2021",
    equation="linear: R_i = Σ_j x_i^+ w_ij^+ / Σ_k x_k^+ w_kj^+ R_j + the same of x^- w^-; sums and products: R_k = x_k / z R; "
    "norms, activations and softmax: R_in = R_out; pixels: z^B",
    cost=Cost(1, 1),
    returns=lambda settings: settings["at"],
)
def lrp(
    ask: Ask,
    *,
    rules: Literal["separate", "joint"] = "separate",
    at: At = "pixels",
    precision: Precision = "float64",
) -> Tensor:
    """Relevance from the class score down to the pixels, or to the tokens in front of the first block, signed.

    `rules="separate"` is the baseline that the literature calls LRP: positive and negative halves each take all of the relevance,
    so that it doubles in every linear layer and conserves nothing. `"joint"` has the rules of Transformer Attribution. Both
    divide by sums that may cancel: they are computed in float64, and even so react to changes of 1e-6 in the picture.
    """
    return read_off(ask, chefer("lrp", rules), at, precision)
