from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.registry import Cost, method
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask


@method(
    paper="baseline; an edge detector as in Adebayo et al. 2018, arXiv:1810.03292",
    equation="M = sqrt(g_x^2 + g_y^2), g = Sobel of the mean over channels",
    cost=Cost(1, 0),
    returns="pixels",
    class_blind=True,
)
def edge(ask: Ask) -> Tensor:
    """Where the picture has edges, by Sobel, whatever the model does: a map that only looks sharp is no better than this one."""
    ask.look()
    grey = ask.images.to(torch.promote_types(ask.images.dtype, torch.float32)).mean(1, keepdim=True)
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]).to(grey) / 8
    kernels = torch.stack([across, across.T])[:, None]  # (2, 1, 3, 3)
    with no_autocast(ask.images):
        return F.conv2d(F.pad(grey, (1, 1, 1, 1), mode="replicate"), kernels).square().sum(1).sqrt()
