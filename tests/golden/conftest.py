"""What the authors' own code computed, and the model and pictures that it ran on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import patchlight as pl

Case = tuple[int, int | None, np.ndarray]  # picture, class, map


@dataclass
class Golden:
    """The folder of golden numbers, its pictures and DeiT-tiny in float32 and float64."""

    folder: Path
    images: Tensor
    subject: pl.Subject
    wide: pl.Subject

    def file(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{name}.npz") as arrays:
            return dict(arrays)

    def cases(self, name: str, suffix: str = "") -> Iterator[Case]:
        """The maps whose key is imgNN or imgNN_clsC, and the suffix."""
        found = 0
        for key, values in self.file(name).items():
            if key.startswith("img") and key.endswith(suffix):
                parts = key[: len(key) - len(suffix)].split("_")
                if len(parts) <= 2 and all(p[3:].isdigit() for p in parts):
                    found += 1
                    yield int(parts[0][3:]), (int(parts[1][3:]) if len(parts) > 1 else None), values.astype(np.float64)
        assert found, f"no case in {name} ends in {suffix!r}"

    def explain(self, method: str, picture: int, target: Any, *, wide: bool = False, **settings: Any) -> pl.Explanation:
        image = self.images[picture : picture + 1]
        if wide:
            return pl.explain(self.wide, image.double(), method, target, **settings)
        return pl.explain(self.subject, image, method, target, **settings)


@pytest.fixture(scope="session")
def golden(shared: Path) -> Golden:
    weights = shared / "weights" / "deit_tiny_patch16_224.safetensors"
    subject = pl.load("timm:deit_tiny_patch16_224", weights=weights)
    wide = replace(subject, model=copy.deepcopy(subject.model).double())
    with np.load(shared / "golden" / "inputs.npz") as inputs:
        images = torch.tensor(inputs["x"])
    return Golden(shared / "golden", images, subject, wide)


@pytest.fixture(scope="session")
def agree() -> Callable[[Any, np.ndarray, float], None]:
    """The largest difference, as a share of the golden map's maximum, stays below the tolerance of golden/README.md."""

    def check(found: Any, expected: np.ndarray, tolerance: float) -> None:
        found = found.detach().double().numpy() if isinstance(found, Tensor) else found
        assert found.size == expected.size
        gap = np.abs(found.reshape(-1) - expected.reshape(-1)).max() / np.abs(expected).max()
        assert gap < tolerance, f"differs by {gap:.2e} of the maximum, allowed {tolerance:.0e}"

    return check
