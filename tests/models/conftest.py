"""Small models, and a world without a network."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import nn

TINY: dict[str, Any] = {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": 32, "patch_size": 8}


@pytest.fixture
def tiny() -> dict:
    """Arguments of a tiny ViT of timm: 4 x 4 patches."""
    return dict(TINY)


@pytest.fixture
def vit() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", num_classes=5, **TINY).eval()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host answers, and the hub's cache is empty."""
    for module in ("timm", "torchvision"):
        monkeypatch.setattr(f"patchlight.models.{module}.answers", lambda _: False)
    for module in ("timm", "hf"):
        monkeypatch.setattr(f"patchlight.models.{module}.hub_answers", lambda: False)
    monkeypatch.setattr("patchlight.models.timm.hub_folder", lambda _: None)
    monkeypatch.setattr("patchlight.models.torchvision.torch_cached", lambda _: False)
