from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._estimate import estimate, report, rounds
from patchlight.methods.masking._grids import random_masks
from patchlight.methods.masking._variants import Make, Score, each_variant, every_pair, wide
from patchlight.tracing.ask import Ask

CHECK = 250  # samples between two looks at the error


def cost(settings: Mapping[str, Any]) -> Cost:
    drawn = settings["drawn"]
    count = settings["samples"] if drawn is None or drawn.dim() < 3 else drawn.shape[-3]
    return Cost(1 + count, 0, "" if settings["until"] is None else "at most")


@method(
    paper="Petsiuk, Das and Saenko 2018, RISE: randomized input sampling for explanation of black-box models",
    equation="M = 1/(N p) Σ_k y(x ⊙ M_k) M_k, M_k a random s x s grid of zeros and ones with P(1) = p, enlarged and shifted",
    cost=cost,
    returns="pixels",
    stochastic=True,
)
def rise(
    ask: Ask,
    *,
    samples: int = 4000,
    cells: int = 7,
    keep: float = 0.5,
    score: Score = "probability",
    until: float | None = None,
    drawn: torch.Tensor | None = None,
) -> Tensor:
    """The mean of random masks, weighted by the score of the picture seen through each.

    `cells` x `cells` grids with a share `keep` of ones are enlarged bilinearly and cut out at a random place, as the authors do;
    4000 of them is what they use for VGG-16 (8000 for ResNet-50). Hidden pixels become 0 in normalised units: the mean colour.
    `until` ends the sampling of a picture when the standard error is that share of the map's range (looked at after every 250
    masks). `drawn` (m, H, W) or (b, m, H, W) are masks to use as they are, in place of drawn ones; `keep` only scales then.
    """
    if drawn is None and (samples < 2 or cells < 2):
        raise SettingError(f"rise: samples and cells take 2 or more, but {samples} and {cells} came.")
    if not 0 < keep < 1:
        raise SettingError(f"rise: keep takes a share between 0 and 1, but {keep} came.")
    masks, count = (random_masks(ask, samples, cells, keep), samples) if drawn is None else given_masks(ask, drawn)
    found = estimate(ask, *ask.images.shape[-2:])
    latest: dict[str, Tensor] = {}

    def make(picture: Tensor, number: Tensor) -> Tensor:
        latest["masks"] = masks(picture, number)
        return ask.images[picture] * latest["masks"][:, None]

    def use(picture: Tensor, _: Tensor, value: Tensor) -> None:
        found.add(picture, value[:, None, None] * latest["masks"] / keep)

    for opened, start, stop in rounds(ask, count, found, until, every=CHECK):
        each_variant(ask, every_pair(ask, [stop] * len(ask.images), start=start, pictures=opened), make, use, score=score)
    return report(ask, found, count=count, until=until, unit="masks")


def given_masks(ask: Ask, drawn: Tensor) -> tuple[Make, int]:
    height, width = ask.images.shape[-2:]
    if drawn.dim() not in (3, 4) or tuple(drawn.shape[-2:]) != (height, width) or (drawn.dim() == 4 and len(drawn) != ask.count):
        raise SettingError(
            f"rise: drawn takes masks (m, {height}, {width}) or ({ask.count}, m, {height}, {width}), "
            f"but {tuple(drawn.shape)} came."
        )
    if not drawn.isfinite().all():
        raise SettingError("rise: drawn takes masks of finite numbers, but some of these are not. Look at how they were made.")
    own = drawn[ask.start : ask.start + len(ask.images)] if drawn.dim() == 4 else drawn.expand(len(ask.images), *drawn.shape)

    def masks(picture: Tensor, number: Tensor) -> Tensor:
        return own[picture.to(own.device), number.to(own.device)].to(ask.images.device, wide(ask))

    return masks, drawn.shape[-3]
