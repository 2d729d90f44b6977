"""The key of a cell: everything that decides a number, as JSON, and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch import Tensor, nn

PACKAGES = ("patchlight", "torch", "torchvision", "timm", "transformers", "numpy", "scipy")


@dataclass(frozen=True)
class Cell:
    """One method put to one metric on one model: what a number depends on, but for the pictures."""

    model: str
    weights: str
    preprocess: str
    method: str
    method_version: int
    method_settings: str
    metric: str
    metric_version: int
    metric_settings: str
    target: str
    seed: int
    precision: str
    batch: int
    packages: str

    @cached_property
    def key(self) -> str:
        return digest(asdict(self))


def digest(value: Any) -> str:
    """16 hexadecimal digits of anything that JSON can hold."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=8).hexdigest()


def canonical(value: Any) -> str:
    """One text for equal values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def weights_digest(model: nn.Module) -> str:
    """Of all parameters and buffers, by name, shape and content."""
    found = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):
            found.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            found.update(tensor.detach().cpu().contiguous().reshape(-1).view(dtype_bytes(tensor)).numpy().tobytes())
    return found.hexdigest()


def dtype_bytes(tensor: Tensor) -> Any:
    """Bytes, since numpy knows no bfloat16."""
    import torch

    return torch.uint8 if tensor.dtype != torch.bool else torch.bool


def packages() -> Mapping[str, str]:
    """The versions of what takes part in a number."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
