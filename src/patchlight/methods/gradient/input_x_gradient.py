from __future__ import annotations

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.tracing.ask import Ask


@method(
    paper="Shrikumar et al. 2016, Not Just a Black Box",
    equation="M = Σ_c x_c ∂y/∂x_c",
    cost=Cost(1, 1),
    returns="pixels",
)
def input_x_gradient(ask: Ask) -> Tensor:
    """Gradient times input, signed, summed over the colour channels; the input is the normalised picture."""
    product = ask.gradient() * ask.images  # (b, 3, H, W)
    ask.keep("product", product)
    return product.sum(1)
