"""Sizes and settings of small checkpoints, and what timm tells of its own."""

from __future__ import annotations

from typing import Any

import timm

HF: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
NAMES = {0: "cat", 1: "dog", 2: "fox"}
HALF = (0.5, 0.5, 0.5)


def timm_config(name: str) -> dict[str, Any]:
    config = timm.get_pretrained_cfg(name)
    assert config is not None
    return config.to_dict()
