"""A plan small enough to run in seconds: a two-block ViT with weights in a file, on drawn scenes."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from patchlight.bench.plan import Plan, read_plan

pytest.importorskip("pyarrow", reason="needs the extra bench")

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 4}
TEXT = """
title = "small"
batch = 4
shard = 3
[models.small]
load = "timm:vit_tiny_patch16_224"
weights = "{weights}"
{small}
[data.scenes]
count = 7
size = 32
[methods.random]
[methods.rollout]
[methods.transformer_mm]
[methods.cam]
[metrics.deletion]
steps = 4
[metrics.pointing_game]
"""


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, **SMALL)
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save_file({n: (t * 3).contiguous() for n, t in model.state_dict().items()}, path)
    return path


@pytest.fixture(scope="session")
def text(weights) -> str:
    return TEXT.format(weights=weights.as_posix(), small="\n".join(f"{k} = {v}" for k, v in SMALL.items()))


@pytest.fixture
def plan(text) -> Plan:
    return read_plan(text, name="small")
