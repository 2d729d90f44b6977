from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._channels import bank
from patchlight.methods.masking._variants import Score, all_values
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask
from patchlight.tracing.features import At, feature_maps

USUAL = 768  # channels of a ViT-B


def cost(settings: Mapping[str, Any]) -> Cost:
    return Cost(1 + (settings["top"] or USUAL), 0, "about")


@method(
    paper="Wang et al. 2020, Score-CAM: score-weighted visual explanations for convolutional neural networks",
    equation="H_k = F_k enlarged and scaled to 0 ... 1; original: [Σ_k p(x ⊙ H_k) F_k]^+; "
    "softmax_logit: [Σ_k softmax_k(y(x ⊙ H_k)) F_k]^+; vit_cx: Σ_k p(x ⊙ H_k) H_k",
    cost=cost,
)
def score_cam(
    ask: Ask,
    *,
    variant: Literal["original", "softmax_logit", "vit_cx"] = "original",
    features: At = "norm",
    block: int = -1,
    layer: str | None = None,
    top: int | None = None,
    relu: bool = True,
) -> Tensor:
    """Feature maps weighted by the score of the picture seen through each of them.

    `variant`: the authors' code (probabilities weigh the maps as they are; constant ones are left out), pytorch-grad-cam's (the
    softmax over channels of the logits; masks enlarged with aligned corners), or the account in the ViT-CX paper (probabilities
    weigh the scaled maps, no ReLU). `features` of which `block`, or a module by name (`layer`); a CNN's last convolution.
    `top` takes only that many, those that vary most over the picture (Faster-Score-CAM).
    """
    size = ask.images.shape[-2], ask.images.shape[-1]
    maps = feature_maps(ask, block=block, at=features, layer=layer, method="score_cam")  # (b, d, h, w)
    if top is not None:
        maps = most_varying(maps, top)
    corners = variant == "softmax_logit"
    with no_autocast(ask.images):
        masks = bank(maps.flatten(0, 1), size, corners=corners)
    count = maps.shape[1]

    def make(picture: Tensor, number: Tensor) -> Tensor:
        return ask.images[picture] * masks.pixels(picture * count + number)[:, None]

    score: Score = "logit" if corners else "probability"
    values = all_values(ask, count, make, score=score)
    weights = values.softmax(1) if corners else values * ~masks.constant.view_as(values)
    ask.keep("weights", weights)
    ask.samples = torch.full_like(ask.look()[1].index, count)
    scaled = variant == "vit_cx"
    summed = (weights[:, :, None, None] * (masks.on_grid.view_as(maps) if scaled else maps)).sum(1)
    return summed.clamp_min(0) if relu and not scaled else summed


def most_varying(maps: Tensor, top: int) -> Tensor:
    """The channels (b, m, h, w) with the largest variance over the grid, the first of equals."""
    if top < 1:
        raise SettingError(f"score_cam: top takes 1 or more, or None for all, but {top} came.")
    order = maps.flatten(2).var(2).sort(stable=True, dim=1, descending=True).indices[:, :top]
    return maps.gather(1, order[:, :, None, None].expand(-1, -1, *maps.shape[2:]))
