"""Random crops on the device: drawn once, and then cut the same for teacher and student."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.preprocess import IMAGENET_MEAN, IMAGENET_STD
from training.recipes import Crops

SIZE = 224
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True, eq=False)
class Draw:
    """What was drawn for a batch.

    where: (b, 2, 3), from the crop's [-1, 1] to pixels (x, y) of the canvas; colour: (b, 3, 3); contrast: (b,);
    partner: (b,), the picture that is mixed in; share: (b,), what stays of the picture itself.
    """

    where: Tensor
    colour: Tensor
    contrast: Tensor
    partner: Tensor
    share: Tensor

    def to(self, device: torch.device) -> Draw:
        fields = (self.where, self.colour, self.contrast, self.partner, self.share)
        return Draw(*(t.to(device, non_blocking=True) for t in fields))


def draw(sizes: Tensor, crops: Crops) -> Draw:
    """Random numbers for pictures of these sizes (b, 2), drawn on the CPU so that every device cuts the same."""
    count = len(sizes)
    share = torch.where(torch.rand(count) < crops.mixed, torch.rand(count), torch.ones(count))
    contrast = between(count, 1 - crops.jitter, 1 + crops.jitter)
    return Draw(place(sizes.cpu(), crops), colours(count, crops), contrast, torch.randperm(count), share)


def between(count: int, low: float, high: float) -> Tensor:
    return torch.empty(count).uniform_(low, high)


def place(sizes: Tensor, crops: Crops) -> Tensor:
    """A crop of some area and shape, somewhere in the picture, perhaps turned and mirrored: (b, 2, 3)."""
    (height, width), count = sizes.unbind(1), len(sizes)
    area = between(count, *crops.area) * height * width
    shape = between(count, math.log(3 / 4), math.log(4 / 3)).exp()
    across, down = torch.minimum((area * shape).sqrt(), width) / 2, torch.minimum((area / shape).sqrt(), height) / 2
    x = across + torch.rand(count) * (width - 2 * across)
    y = down + torch.rand(count) * (height - 2 * down)
    angle = between(count, -crops.degrees, crops.degrees).deg2rad() * (torch.rand(count) < crops.turned)
    mirror = torch.where(torch.rand(count) < 0.5, -1.0, 1.0)
    cos, sin = angle.cos(), angle.sin()
    rows = torch.stack([cos * across * mirror, -sin * down, x]), torch.stack([sin * across * mirror, cos * down, y])
    return torch.stack(rows).permute(2, 0, 1)


def colours(count: int, crops: Crops) -> Tensor:
    """Brightness times a turn of the hue about the grey axis times saturation, as one matrix for each picture: (b, 3, 3)."""
    saturation = between(count, 1 - crops.jitter, 1 + crops.jitter) * (torch.rand(count) >= crops.grey)
    grey = torch.tensor(LUMINANCE).expand(3, 3)
    saturated = grey + saturation[:, None, None] * (torch.eye(3) - grey)
    # Rodrigues: R = cos I + sin K + (1 - cos) k k^T with k = (1, 1, 1) / √3
    hue = between(count, -crops.hue, crops.hue)[:, None, None] * 2 * math.pi
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
    turned = hue.cos() * torch.eye(3) + hue.sin() * cross + (1 - hue.cos()) / 3
    return between(count, 1 - crops.jitter, 1 + crops.jitter)[:, None, None] * (turned @ saturated)


def cut(pixels: Tensor, sizes: Tensor, drawn: Draw, *, size: int = SIZE) -> Tensor:
    """The crops, normalised as the networks take them: (b, 3, size, size) from canvases uint8 (b, 3, side, side)."""
    x = F.grid_sample(pixels.float() / 255, grid(drawn.where, sizes, pixels.shape[-1], size), align_corners=False)
    luminance = torch.tensor(LUMINANCE, device=x.device)
    middle = (x.mean((2, 3)) @ luminance)[:, None, None, None]  # the pivot of contrast: mean grey
    x = torch.einsum("bij,bjhw->bihw", drawn.colour, drawn.contrast[:, None, None, None] * (x - middle) + middle).clamp(0, 1)
    share = drawn.share[:, None, None, None]
    return normalised(share * x + (1 - share) * x[drawn.partner])


def grid(where: Tensor, sizes: Tensor, side: int, size: int) -> Tensor:
    """Where each pixel of the crop lies on the canvas, kept inside the picture: (b, size, size, 2) in [-1, 1]."""
    line = torch.linspace(-1 + 1 / size, 1 - 1 / size, size, device=where.device)
    y, x = torch.meshgrid(line, line, indexing="ij")
    points = torch.einsum("bij,hwj->bhwi", where, torch.stack([x, y, torch.ones_like(x)], -1))
    return torch.minimum(points.clamp_min(0), sizes.flip(1)[:, None, None]) * (2 / side) - 1


def normalised(x: Tensor) -> Tensor:
    mean, std = (torch.tensor(v, device=x.device)[:, None, None] for v in (IMAGENET_MEAN, IMAGENET_STD))
    return (x - mean) / std
