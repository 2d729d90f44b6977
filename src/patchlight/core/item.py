"""What a data set gives, and how boxes and masks go through the same resize and crop as their picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from patchlight.core.errors import PictureError
from patchlight.core.preprocess import Preprocess

Box = tuple[float, float, float, float]
IGNORED = -1


@dataclass(frozen=True, eq=False)
class Item:
    """One picture of a data set with what is known of it; boxes and masks are in the picture's own pixels.

    `picture` is a path or a PIL image. A box is (x0, y0, x1, y1) in continuous coordinates: the pixel in column j and row i is
    in it when x0 <= j + 0.5 < x1 and y0 <= i + 0.5 < y1. `mask` is an array (height, width), or a function that reads one when
    it is needed: above 0 the object, 0 the background, below 0 not labelled (a data set turns its own void value into -1).
    Label, boxes and mask belong to the class of `label`; None and () where they are not known.
    """

    name: str
    picture: Path | Image.Image
    label: int | None = None
    boxes: tuple[Box, ...] = ()
    mask: np.ndarray | Callable[[], np.ndarray] | None = None
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Masks of other things in the picture, by name, where a data set knows them."""

    def read_mask(self) -> np.ndarray | None:
        return self.mask() if callable(self.mask) else self.mask


def seen_boxes(preprocess: Preprocess, size: tuple[int, int], boxes: Sequence[Sequence[float]]) -> Tensor:
    """(n, 4) boxes of a picture of `size` (width, height) in the pixels of the model's input; what the crop cut off is gone.

    x' = x w' / w - left for the resized width w' and the crop's left edge; boxes that lie outside the crop are left out.
    """
    given = box_rows(boxes)
    width, height = size
    across, down = preprocess.scaled(width, height)
    left, top = preprocess.corner(across, down)
    scale = torch.tensor([across / width, down / height] * 2, dtype=torch.float64)
    moved = given * scale - torch.tensor([left, top] * 2, dtype=torch.float64)
    return clipped(moved, preprocess.size)


def clipped(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes cut at the edges of the input (h, w); those with nothing left are dropped."""
    height, width = size
    cut = torch.stack([boxes[:, k].clamp(0, (width, height)[k % 2]) for k in range(4)], 1)
    return cut[(cut[:, 2] > cut[:, 0]) & (cut[:, 3] > cut[:, 1])]


def box_rows(boxes: Any) -> Tensor:
    """(n, 4) in float64, or an error."""
    try:
        found = torch.as_tensor(boxes, dtype=torch.float64).reshape(-1, 4)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PictureError(
            f"boxes of a picture are [[x0, y0, x1, y1], ...], but {str(boxes)[:80]!r} came. Give a list of four numbers each."
        ) from error
    bad = (~found.isfinite()).any(1) | (found[:, 2] <= found[:, 0]) | (found[:, 3] <= found[:, 1])
    if bad.any():
        raise PictureError(
            f"the box {found[bad][0].tolist()} is empty: expected x0 < x1 and y0 < y1. "
            "Give corners [x0, y0, x1, y1], not a corner with a width and a height."
        )
    return found


def seen_mask(preprocess: Preprocess, mask: np.ndarray) -> Tensor:
    """(H, W) int8 in the pixels of the model's input: 1 object, 0 background, -1 not labelled or beyond the picture.

    Resized to the nearest pixel, never blended, and cropped where the picture is cropped.
    """
    labels = mask_rows(mask).numpy()
    across, down = preprocess.scaled(labels.shape[1], labels.shape[0])
    resized = Image.fromarray((labels + 1).astype(np.uint8)).resize((across, down), Image.Resampling.NEAREST)
    height, width = preprocess.size
    canvas = Image.new("L", (width, height), IGNORED + 1)
    left, top = preprocess.corner(across, down)
    canvas.paste(resized, (-left, -top))
    return torch.from_numpy(np.array(canvas).astype(np.int8)) - 1


def mask_rows(mask: Any) -> Tensor:
    """(h, w) int8 of 1, 0 and -1, or an error. Floats count where they are whole: a blended mask has no edge to be read."""
    rows = torch.as_tensor(np.array(mask) if isinstance(mask, Image.Image) else mask).detach().cpu()
    if (
        rows.dim() != 2
        or rows.is_complex()
        or not rows.numel()
        or (rows.is_floating_point() and not (rows == rows.round()).all())
    ):
        raise PictureError(
            f"a mask is an array (height, width) of whole numbers or truth values, but {rows.dtype} {tuple(rows.shape)} came. "
            "Give 1 for the object, 0 for the background and -1 for what is not labelled."
        )
    return (rows > 0).to(torch.int8) - (rows < 0).to(torch.int8) if rows.dtype != torch.bool else rows.to(torch.int8)
