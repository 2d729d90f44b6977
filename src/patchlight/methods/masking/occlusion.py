from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._fill import Fill, filling
from patchlight.methods.masking._variants import Score, all_values, whole, wide
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask


@method(
    paper="Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks",
    equation="M(u) = mean of y(x) - y(x with window w filled) over the windows w that hide pixel u",
    cost=lambda settings, layout: Cost(1 + prod(len(corners(n, settings)) for n in layout.size), 0),
    returns="pixels",
)
def occlusion(
    ask: Ask,
    *,
    window: int = 32,
    stride: int = 16,
    fill: Fill = "mean",
    score: Score = "probability",
) -> Tensor:
    """How much the score falls when a window slides over the picture.

    `window` and `stride` are in pixels; a last window at the edge covers what the stride leaves over. `fill`: the mean colour (0
    in normalised units), black, the blurred picture, noise, or a number in normalised units. The paper watches the class's
    probability behind a grey square and gives no size; 32 by 16 hides whole patches of 16.
    """
    if window < 1 or stride < 1:
        raise SettingError(f"occlusion: window and stride take 1 or more pixels, but {window} and {stride} came.")
    height, width = ask.images.shape[-2:]
    tops, lefts = (torch.tensor(corners(n, {"window": window, "stride": stride})) for n in (height, width))
    rows, columns = (covers(at, n, window).to(ask.images.device) for at, n in ((tops, height), (lefts, width)))
    filler = filling(ask, fill, method="occlusion")

    def make(picture: Tensor, number: Tensor) -> Tensor:
        hidden = rows[number // len(lefts), :, None] & columns[number % len(lefts), None]  # (n, H, W)
        own = filler[picture] if len(filler) > 1 else filler
        return torch.where(hidden[:, None], own, ask.images[picture])

    values = all_values(ask, len(tops) * len(lefts), make, score=score)
    falls = (whole(ask, score=score).to(values)[:, None] - values).unflatten(1, (len(tops), len(lefts)))
    ask.keep("fall", falls)
    rows, columns = rows.to(wide(ask)), columns.to(wide(ask))
    with no_autocast(ask.images):  # the windows over a pixel are a product of rows and columns, so their mean is one of means
        return mean_over(rows).mT @ falls @ mean_over(columns)


def mean_over(covered: Tensor) -> Tensor:
    """(windows, pixels) weights that sum to one over the windows of a pixel."""
    return covered / covered.sum(0).clamp_min(1)


def corners(length: int, settings: Any) -> list[int]:
    """Where windows begin: every stride, and one more that covers the rest; a window larger than the picture covers it all."""
    last = max(0, length - settings["window"])
    steps = -(-last // settings["stride"])
    return [i * settings["stride"] for i in range(steps + 1)]


def covers(starts: Tensor, length: int, window: int) -> Tensor:
    """(windows, pixels) which pixels each window hides."""
    at = torch.arange(length)
    return (at >= starts[:, None]) & (at < starts[:, None] + window)
