from __future__ import annotations

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods.relevance._tables import positive
from patchlight.methods.relevance._walk import At, Precision, read_off
from patchlight.tracing.ask import Ask


@method(
    paper="Montavon et al. 2017, Explaining NonLinear Classification Decisions with Deep Taylor Decomposition",
    equation="R_i = Σ_j (x_i w_ij)^± / Σ_k (x_k w_kj)^± R_j, ± the sign of z_j, also for A v and q k; "
    "sums: |x_k| / Σ |x| R; pixels: z^B",
    cost=Cost(1, 1),
    returns=lambda settings: settings["at"],
)
def deep_taylor(ask: Ask, *, at: At = "pixels", precision: Precision = "float64") -> Tensor:
    """The z-plus rule everywhere: only contributions with the sign of the output count, so no relevance turns negative.

    The paper is about ReLU networks, where a negative sum carries nothing; here it does, and is shared by its negative
    contributions. Skip connections, which the paper does not treat, share by size. Nothing cancels in a denominator, so the map
    is stable where `lrp` is not; it depends on the class less.
    """
    return read_off(ask, positive("deep_taylor"), at, precision)
