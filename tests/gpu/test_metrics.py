"""Metrics on a CUDA device: the numbers of the CPU, and the cost that the CPU has."""

from __future__ import annotations

import pytest
import timm
import torch

import patchlight as pl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
FAITHFULNESS = [m.name for m in pl.metrics().values() if m.family == "faithfulness"]
LOCALISATION = [m.name for m in pl.metrics().values() if m.family == "localisation"]


def evaluated(device: str) -> dict[str, pl.Score]:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10).double().eval().to(device)
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(3, 3, 224, 224, generator=draw, dtype=torch.float64)
    maps = torch.rand(3, 224, 224, generator=draw, dtype=torch.float64)
    boxes = [[[10.0, 20.0, 90.0, 120.0]]] * 3
    masks = torch.rand(3, 14, 14, generator=draw).repeat_interleave(16, 1).repeat_interleave(16, 2) > 0.5
    return pl.evaluate_many(model, images, maps, [*FAITHFULNESS, *LOCALISATION], [1, 2, 3], masks, boxes)


def test_the_gpu_gives_the_numbers_of_the_cpu():
    cpu, gpu = evaluated("cpu"), evaluated("cuda")
    for name, score in gpu.items():
        assert score.values.is_cuda
        torch.testing.assert_close(score.values.cpu(), cpu[name].values, rtol=1e-7, atol=1e-9, msg=name)
        assert score.mean == pytest.approx(cpu[name].mean, rel=1e-7, abs=1e-9)
