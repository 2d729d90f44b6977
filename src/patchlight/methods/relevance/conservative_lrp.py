from __future__ import annotations

from typing import Literal

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods.relevance._tables import detached
from patchlight.methods.relevance._walk import At, Precision, checked_gamma, read_off
from patchlight.tracing.ask import Ask


@method(
    paper="Ali et al. 2022, XAI for Transformers: Better Explanations through Conservative Propagation",
    equation="R = x ⊙ ∂y/∂x of the network whose attention maps, norm scales and f(x)/x of activations are held constant",
    cost=Cost(1, 1),
    returns=lambda settings: settings["at"],
)
def conservative_lrp(
    ask: Ask,
    *,
    activation: Literal["identity", "gradient"] = "identity",
    at: At = "pixels",
    gamma_conv: float = 0.0,
    gamma_linear: float = 0.0,
    precision: Precision = "float64",
) -> Tensor:
    """Input times gradient with attention and the scale of norms held constant, so that only biases keep relevance back.

    `activation`: f(x)/x held constant (nothing is lost there), or the plain gradient; the paper's network has no MLP, and the
    choice matters. `gamma_conv`, `gamma_linear`: the gamma rule in convolutions and in the linear layers of MLP and head; the
    projections around attention keep the plain rule, as in the published example for ViT.
    """
    checked_gamma("conservative_lrp", gamma_conv, gamma_linear)
    table = detached("conservative_lrp", activation=activation, gamma_conv=gamma_conv, gamma_linear=gamma_linear)
    return read_off(ask, table, at, precision)
