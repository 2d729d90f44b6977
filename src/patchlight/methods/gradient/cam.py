from __future__ import annotations

from patchlight.core.registry import Cost, Taps, method
from patchlight.tracing.trace import Steps, Trace


@method(
    paper="Zhou et al. 2016, Learning Deep Features for Discriminative Localization",
    equation="M_i = Σ_k w_ck F_ik, F = tokens in front of the mean, w = the head's weights",
    needs=("mean pooling",),
    cost=Cost(1, 1),
    taps=Taps("logit", frozenset({"final"})),
)
def cam(trace: Trace) -> Steps:
    """Class activation map, for heads that average patch tokens (Swin included).

    Computed as F ⊙ ∂y/∂F in front of the mean: exactly w_c·F / n for a linear head; where a norm stands between mean and head,
    its linearisation at the picture.
    """
    while (yield) is not None:
        pass
    final, gradient = trace.final  # (b, n, d)
    return (final * gradient).sum(-1)
