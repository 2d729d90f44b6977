"""Labels, boxes and masks of the pictures of a call, carried to the pixels of the model's input batch by batch.

What is not known of a single picture is None: such a picture has no value in metrics that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from patchlight.core.errors import PictureError, TargetError
from patchlight.core.item import IGNORED, Item, box_rows, clipped, mask_rows, seen_boxes, seen_mask
from patchlight.core.source import Source
from patchlight.core.targets import label_index

UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Annotations:
    """One entry for each picture, None where the whole kind did not come; labels that are not known are -1."""

    source: Source
    labels: tuple[int, ...] | None = None
    masks: Sequence[Any] | None = None
    boxes: Sequence[Any] | None = None

    @classmethod
    def of(cls, images: Any, source: Source, *, labels: Any, masks: Any, boxes: Any, names: Sequence[str]) -> Annotations:
        """What came beside the pictures, else what their Items bring."""
        items = [images] if isinstance(images, Item) else images if isinstance(images, (list, tuple)) else []
        if items and all(isinstance(i, Item) for i in items):
            labels = every(items, lambda i: i.label) if labels is None else labels
            masks = every(items, lambda i: i.mask) if masks is None else masks
            boxes = every(items, lambda i: i.boxes or None) if boxes is None else boxes
        count = len(source)
        numbers = None if labels is None else tuple(class_number(v, names) for v in entries(labels, count, "labels") or ())
        return cls(source, numbers, entries(masks, count, "masks"), entries(boxes, count, "boxes"))

    def part(self, start: int, stop: int, *, size: tuple[int, int], device: torch.device) -> dict[str, Any]:
        """labels (b,), masks (b, H, W) and boxes (n, 4) each, of some of the pictures."""
        numbers = range(start, stop)
        labels = None if self.labels is None else torch.tensor(self.labels[start:stop], device=device)
        masks = None if self.masks is None else torch.stack([self.mask(i, size) for i in numbers]).to(device)
        boxes = None if self.boxes is None else tuple(self.box(i, size).to(device) for i in numbers)
        return {"labels": labels, "masks": masks, "boxes": boxes}

    def mask(self, index: int, size: tuple[int, int]) -> Tensor:
        assert self.masks is not None
        given = self.masks[index]
        if given is None:
            return torch.full(size, IGNORED, dtype=torch.int8)
        mask = mask_rows(given() if callable(given) else given)
        own = size if self.source.tensor is not None else self.source.extent(index)[::-1]
        if self.source.tensor is None and tuple(mask.shape) == own:
            return seen_mask(self.source.preprocess, mask.numpy())
        if tuple(mask.shape) == size:
            return mask
        raise PictureError(
            f"the mask of {self.source.name(index)} is {tuple(mask.shape)}, but the picture is {own} (height, width). "
            "Give the mask in the picture's own pixels."
        )

    def box(self, index: int, size: tuple[int, int]) -> Tensor:
        assert self.boxes is not None
        given = () if self.boxes[index] is None else self.boxes[index]
        if self.source.tensor is not None:
            return clipped(box_rows(given), size)
        return seen_boxes(self.source.preprocess, self.source.extent(index), given)


def every(items: Sequence[Item], get: Callable[[Item], Any]) -> list[Any] | None:
    """Of all items, or None where none has anything to give."""
    found = [get(i) for i in items]
    return None if all(f is None for f in found) else found


def entries(given: Any, count: int, kind: str) -> Sequence[Any] | None:
    """One entry for each picture; a single number serves all, and a single picture needs no list around its mask or boxes."""
    if given is None:
        return None
    if isinstance(given, (int, str)) or getattr(given, "ndim", None) == 0:
        return [given] * count
    if callable(given) or isinstance(given, Image.Image) or (kind == "masks" and getattr(given, "ndim", 3) == 2):
        given = (given,)
    found = list(given)
    if kind == "boxes" and count == 1 and len(found) != 1:
        return [given]
    if len(found) != count:
        raise PictureError(f"{kind}: {count} pictures need {count} entries, but {len(found)} came. Give one for each picture.")
    return found


def class_number(value: Any, names: Sequence[str]) -> int:
    if value is None:
        return UNKNOWN
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        return label_index(value, names)
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TargetError(f"labels: expected class numbers or names, but {value!r} came. Give one for each picture.") from error
    if number < 0 or not number.is_integer():
        raise TargetError(
            f"labels: {value!r} came, but classes are whole numbers from 0. Give None for a picture whose label is not known."
        )
    return int(number)
