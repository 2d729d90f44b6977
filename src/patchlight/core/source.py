"""The pictures of a run: anything a user has, read when a batch needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from patchlight.core.errors import PictureError
from patchlight.core.pictures import Picture, find_pictures, read_picture
from patchlight.core.preprocess import Preprocess

Box = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Source:
    """Pictures by number: `items` are paths, PIL images or arrays; `tensor` is input that is already preprocessed."""

    preprocess: Preprocess
    items: tuple[Any, ...] = ()
    tensor: Tensor | None = None

    def __len__(self) -> int:
        return len(self.items) if self.tensor is None else len(self.tensor)

    def batch(self, start: int, stop: int, *, like: Tensor) -> Tensor:
        """(b, 3, H, W) on the device and in the precision of `like`."""
        if self.tensor is not None:
            return self.tensor[start:stop].to(like.device, like.dtype)
        return torch.stack([self.preprocess(self.picture(i).image) for i in range(start, stop)]).to(like.device, like.dtype)

    def picture(self, index: int) -> Picture:
        """The picture as a photo; for a tensor, what the model saw, with the normalisation undone."""
        if self.tensor is not None:
            return Picture(self.preprocess.undo(self.tensor[index].detach().float().cpu()), f"picture {index}", ())
        return read_picture(self.items[index])

    def name(self, index: int) -> str:
        item = self.items[index] if self.items else None
        return Path(item).name if isinstance(item, (str, Path)) else f"picture {index}"

    def box(self, size: tuple[int, int]) -> Box:
        """The part of a picture of this size (width, height) that the model saw, in its pixels."""
        width, height = size
        return (0.0, 0.0, float(width), float(height)) if self.tensor is not None else self.preprocess.box(width, height)


def open_source(images: Any, preprocess: Preprocess) -> Source:
    """A path, folder or glob, PIL image, uint8 array, a list of these, or a float tensor (B, 3, H, W) used as it is."""
    if isinstance(images, Source):
        return images
    images = stacked(images)
    if isinstance(images, Tensor) and images.is_floating_point():
        return Source(preprocess, tensor=checked(images))
    items = tuple(item for image in as_list(images) for item in expand(image))
    if not items:
        raise PictureError(
            "no pictures came. Give a path, a list of paths, PIL images, uint8 arrays or a float tensor (B, 3, H, W)."
        )
    return Source(preprocess, items=items)


def stacked(images: Any) -> Any:
    """A list of float tensors (3, H, W) of one size is a batch; anything else stays as it is."""
    if not isinstance(images, (list, tuple)) or not all(isinstance(i, Tensor) and i.is_floating_point() for i in images):
        return images
    alike = len({tuple(i.shape) for i in images}) == 1 and images[0].dim() == 3
    return torch.stack(list(images)) if alike else images


def as_list(images: Any) -> Sequence[Any]:
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
        images = np.moveaxis(images, -3, -1) if images.ndim >= 3 and images.shape[-3] in (1, 3) else images
    if isinstance(images, np.ndarray) and images.ndim == 4:
        return list(images)
    return list(images) if isinstance(images, (list, tuple)) else [images]


def expand(image: Any) -> list[Any]:
    if isinstance(image, (str, Path)):
        found = any(c in str(image) for c in "*?[") and not Path(image).exists()
        return list(find_pictures([image])) if found or Path(image).is_dir() else [image]
    if isinstance(image, Tensor):
        return list(as_list(image))
    if isinstance(image, (Image.Image, np.ndarray)):
        return [image]
    raise PictureError(
        f"a picture of the type {type(image).__name__} came. "
        "Expected a path, a PIL image, a uint8 array (H, W, 3), or one float tensor (B, 3, H, W) for all."
    )


def checked(tensor: Tensor) -> Tensor:
    """Four axes, three channels, finite numbers."""
    tensor = tensor[None] if tensor.dim() == 3 else tensor
    if tensor.dim() != 4 or tensor.shape[1] != 3 or not len(tensor):
        raise PictureError(f"expected a float tensor (B, 3, H, W), but {tuple(tensor.shape)} came. Channels go second.")
    if not tensor.isfinite().all():
        bad = (~tensor.isfinite()).flatten(1).any(1).nonzero()[:, 0].tolist()
        raise PictureError(f"pictures {bad[:5]} hold NaN or infinite numbers. Check how they were normalised.")
    return tensor
