from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.methods.baseline.centre import grid_of
from patchlight.tracing.ask import Ask


@method(
    paper="baseline",
    equation="M_i ~ U(0, 1)",
    cost=Cost(1, 0),
    class_blind=True,
    stochastic=True,
)
def random(ask: Ask) -> Tensor:
    """Noise, one number for each patch, from the picture's own seed: what any method must beat."""
    ask.look()
    shape = grid_of(ask)
    return torch.stack([torch.rand(shape, generator=g) for g in ask.generators()]).to(ask.images.device)
