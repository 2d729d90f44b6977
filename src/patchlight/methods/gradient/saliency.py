from __future__ import annotations

from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.tracing.ask import Ask


@method(
    paper="Simonyan et al. 2014, Deep Inside Convolutional Networks",
    equation="M = max_c |∂y/∂x_c|",
    cost=Cost(1, 1),
    returns="pixels",
)
def saliency(ask: Ask) -> Tensor:
    """How steeply the score changes with each pixel: the largest absolute gradient over the colour channels."""
    gradient = ask.gradient()  # (b, 3, H, W)
    ask.keep("gradient", gradient)
    return gradient.abs().amax(1)
