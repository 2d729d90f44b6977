"""A picture's own random numbers: the same whatever the batch, its order or the device."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def picture_seed(image: Tensor, seed: int) -> int:
    """63 bits from the picture's content and the user's seed."""
    content = image.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()
    digest = hashlib.blake2b(content, digest_size=8, salt=seed.to_bytes(8, "little", signed=True))
    return int.from_bytes(digest.digest(), "little") >> 1


def generator(image: Tensor, seed: int) -> torch.Generator:
    """On the CPU, so that every device draws the same numbers."""
    return torch.Generator().manual_seed(picture_seed(image, seed))
