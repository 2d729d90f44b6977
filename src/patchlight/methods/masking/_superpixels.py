"""Superpixels by SLIC, of scikit-image."""

from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.errors import PatchlightError, SettingError
from patchlight.core.preprocess import column
from patchlight.tracing.ask import Ask


def superpixels(ask: Ask, count: int, compactness: float) -> Tensor:
    """(b, H, W) numbers of about `count` regions of like colour, from 0 without a gap in each picture."""
    if count < 2 or not compactness > 0:
        raise SettingError(f"lime: count takes 2 or more, compactness more than 0, but {count} and {compactness} came.")
    try:
        from skimage.segmentation import slic
    except ImportError as error:
        raise PatchlightError(
            "lime: segments='superpixels' needs scikit-image, which is not installed. "
            "Run: pip install 'patchlight[lime]', or use segments='patches'."
        ) from error
    found = []
    for image in ask.images:
        rows = colours(ask, image).permute(1, 2, 0).numpy()
        labels = torch.from_numpy(slic(rows, n_segments=count, compactness=compactness, start_label=0, channel_axis=-1)).long()
        found.append(labels.unique(return_inverse=True)[1].view(labels.shape))
    regions = torch.stack(found).to(ask.images.device)
    if int(regions.flatten(1).amax(1).min()) < 1:
        raise PatchlightError("lime: a picture has only one superpixel. Give a larger count, or segments='patches'.")
    return regions


def colours(ask: Ask, image: Tensor) -> Tensor:
    """(3, H, W) from 0 to 1: with the normalisation undone, or stretched where nobody knows it."""
    x = image.detach().to("cpu", torch.float64)
    if ask.preprocess is not None:
        return (x * column(ask.preprocess.std) + column(ask.preprocess.mean)).clamp(0, 1)
    return (x - x.min()) / (x.max() - x.min()).clamp_min(1e-12)
