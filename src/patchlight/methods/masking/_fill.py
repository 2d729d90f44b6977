"""What hidden pixels become."""

from __future__ import annotations

from math import isfinite
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.preprocess import column
from patchlight.core.seeds import normals
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask

Fill = float | Literal["mean", "black", "blur", "noise"]
SIGMA, SIDE = 5.0, 11  # the blur of the insertion test: a Gaussian of 5 pixels on 11 x 11


def filling(ask: Ask, fill: Fill, *, method: str) -> Tensor:
    """(b, 3, H, W) or what stretches to it: 0 in normalised units is the mean colour, black is -mean / std."""
    images = ask.images
    if fill == "mean":
        return images.new_zeros(1, 1, 1, 1)
    if fill == "black":
        assert ask.preprocess is not None
        return (-column(ask.preprocess.mean) / column(ask.preprocess.std)).to(images)[None]
    if fill == "blur":
        return blurred(images)
    if fill == "noise":
        return normals(ask.seeds, tuple(images.shape[1:]), images.dtype)
    if not isinstance(fill, float) or not isfinite(fill):
        raise SettingError(f"{method}: fill takes a finite number in normalised units, but {fill} came.")
    return images.new_full((1, 1, 1, 1), fill)


def blurred(images: Tensor) -> Tensor:
    """Each picture through a Gaussian, mirrored at the border where it is wide enough."""
    at = torch.arange(SIDE, dtype=torch.float64) - SIDE // 2
    line = (-0.5 * (at / SIGMA).square()).exp()
    line = (line / line.sum()).to(images)
    half, mode = SIDE // 2, "reflect" if min(images.shape[-2:]) > SIDE // 2 else "replicate"
    with no_autocast(images):
        rows = F.pad(images.flatten(0, 1)[:, None], (half, half, half, half), mode=mode)  # (3 b, 1, H + 10, W + 10)
        rows = F.conv2d(F.conv2d(rows, line.view(1, 1, -1, 1)), line.view(1, 1, 1, -1))
    return rows[:, 0].unflatten(0, images.shape[:2])
