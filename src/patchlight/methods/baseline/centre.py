from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.tracing.ask import Ask

CNN_GRID = (14, 14)


@method(
    paper="baseline",
    equation="M = 1 - distance from the centre, in half diagonals",
    cost=Cost(1, 0),
    class_blind=True,
)
def centre(ask: Ask) -> Tensor:
    """Highest in the middle of the picture, where photographers put things: what any localisation must beat."""
    ask.look()
    height, width = grid_of(ask)
    down, across = ((torch.arange(n).to(ask.images.device, torch.float64) + 0.5) / n - 0.5 for n in (height, width))
    distance = (down[:, None].square() + across[None].square()).sqrt()  # 0 ... sqrt(1/2)
    scores = (1 - distance / 0.5**0.5).to(torch.promote_types(ask.images.dtype, torch.float32))
    return scores.expand(ask.images.shape[0], height, width).clone()


def grid_of(ask: Ask) -> tuple[int, int]:
    """The patch grid; a network without one gets the common 14 x 14."""
    layout = ask.layout()
    return layout.grid if min(layout.grid) > 0 else CNN_GRID
