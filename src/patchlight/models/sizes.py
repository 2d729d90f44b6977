"""The input size of a module, and preprocessing at another size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from patchlight.core.preprocess import Preprocess

USUAL = 224


def pair(size: Any) -> tuple[int, int] | None:
    """(h, w) from a number or a pair of numbers; None from anything else."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(s, int) and s > 0 for s in size):
        return size[0], size[1]
    return None


def input_size(module: nn.Module) -> tuple[int, int]:
    """The input size that a module tells in `patch_embed.img_size`, `img_size` or `image_size`; else 224 x 224."""
    told = (
        getattr(getattr(module, "patch_embed", None), "img_size", None),
        *(getattr(module, n, None) for n in ("img_size", "image_size")),
    )
    return next((found for size in told if (found := pair(size))), (USUAL, USUAL))


def resized(preprocess: Preprocess, size: tuple[int, int]) -> Preprocess:
    """The same preprocessing for another input size: the crop takes the same part of the picture."""
    if size == preprocess.size or preprocess.resize is None:
        return replace(preprocess, size=size)
    whole = isinstance(preprocess.resize, int)
    before = (preprocess.resize,) * 2 if isinstance(preprocess.resize, int) else preprocess.resize
    height, width = (round(r * new / old) for r, new, old in zip(before, size, preprocess.size, strict=True))
    if whole and height == width:
        return replace(preprocess, size=size, resize=height)
    return replace(preprocess, size=size, resize=(height, width), fit="cover" if whole else preprocess.fit)
