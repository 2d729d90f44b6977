from __future__ import annotations

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods.relevance._tables import detached
from patchlight.methods.relevance._walk import At, Precision, checked_gamma, read_off
from patchlight.tracing.ask import Ask


@method(
    paper="Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers",
    equation="softmax: R_i = x_i (R_i - s_i Σ_j R_j); products: half to each factor; norms, activations: identity; linear: gamma",
    cost=Cost(1, 1),
    returns=lambda settings: settings["at"],
)
def attn_lrp(
    ask: Ask,
    *,
    at: At = "pixels",
    gamma_conv: float = 0.25,
    gamma_linear: float = 0.05,
    precision: Precision = "float64",
) -> Tensor:
    """Relevance that also passes through the softmax of attention, to queries and keys.

    `gamma_conv`, `gamma_linear`: the gamma rule in convolutions and in the linear layers of MLP and head, which the paper needs
    against noise in ViTs; 0 is the plain rule, as in the projections around attention.
    """
    checked_gamma("attn_lrp", gamma_conv, gamma_linear)
    table = detached("attn_lrp", softmax=True, gamma_conv=gamma_conv, gamma_linear=gamma_linear)
    return read_off(ask, table, at, precision)
