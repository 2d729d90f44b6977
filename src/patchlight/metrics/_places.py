"""What the metrics of place share: truth from masks or boxes, in the pixels of the model's input."""

from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.metric import Case


def inside(case: Case) -> Tensor:
    """(b, H, W) int8: 1 object, 0 background, -1 not labelled; masks where there are any, else the union of the boxes."""
    return case.masks if case.masks is not None else in_boxes(case)


def in_boxes(case: Case) -> Tensor:
    """A pixel is in a box when its centre is."""
    assert case.boxes is not None
    height, width = case.pixels.shape[-2:]
    device = case.pixels.device
    down, across = (torch.arange(n, device=device, dtype=torch.float64) + 0.5 for n in (height, width))
    found = torch.zeros(case.pixels.shape, dtype=torch.int8, device=device)
    for truth, boxes in zip(found, case.boxes, strict=True):
        x0, y0, x1, y1 = boxes.T[:, :, None]
        columns, rows = (across >= x0) & (across < x1), (down >= y0) & (down < y1)  # (n, W), (n, H)
        truth |= (rows[:, :, None] & columns[:, None, :]).any(0).to(torch.int8)
    return found


def unit(pixels: Tensor) -> Tensor:
    """(m - min) / (max - min); a constant map becomes zeros."""
    flat = pixels.flatten(1)
    low, high = flat.amin(1)[:, None, None], flat.amax(1)[:, None, None]
    span = high - low
    return torch.where(span > 0, (pixels - low) / torch.where(span > 0, span, 1), 0)


def unlabelled(truth: Tensor) -> tuple[str, ...]:
    """Says how many pictures have nothing labelled in the model's input, and so no value."""
    count = int((truth < 0).flatten(1).all(1).sum())
    return (f"{count} pictures without any labelled pixel in what the model sees: no value",) if count else ()


def where_told(values: Tensor, truth: Tensor, notes: list[str]) -> Tensor:
    """NaN where nothing of the object is to be seen in the model's input; said in `notes`."""
    told = (truth == 1).flatten(1).any(1)
    if not told.all():
        notes.append(f"{int((~told).sum())} pictures without any object in what the model sees: no value")
    return torch.where(told, values.double(), torch.nan)
