"""A picture's own random numbers: the same whatever the batch, its order or the device."""

from __future__ import annotations

import hashlib
from math import pi, prod

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


def normals(seeds: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """(n, *shape) normal numbers on the device of the seeds (n,) int64: each row depends on its own seed only.

    Counters are hashed (splitmix64), which every device does alike, and a pair of uniform numbers makes a pair of normal ones
    (Box and Muller). So nothing is drawn in an order, and noise is made where it is used.
    """
    count = prod(shape)
    pairs = torch.arange((count + 1) // 2, device=seeds.device)
    bits = mixed(mixed(seeds)[:, None] + pairs * GOLDEN)  # (n, pairs) of 64 bits
    high, low = ((bits >> 32) & MASK32, bits & MASK32)
    radius = ((high.to(torch.float32) + 0.5) * 2.0**-32).log_().mul_(-2).sqrt_()
    angle = (low.to(torch.float32)) * (2 * pi * 2.0**-32)
    found = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten(1)[:, :count]
    return found.reshape(-1, *shape).to(dtype)


GOLDEN = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed number; products wrap around
MASK32 = 0xFFFFFFFF


def mixed(x: Tensor) -> Tensor:
    """The last steps of splitmix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & (2**33 - 1))
