"""The sanity metrics on a CUDA device: the numbers of the CPU, and the device's random numbers left alone."""

from __future__ import annotations

import copy

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.metrics.sanity._randomise import fresh

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    "metric", ["cascading_randomisation", "class_sensitivity", "max_sensitivity", "sparseness", "entropy", "effective_size"]
)
def test_the_gpu_gives_the_numbers_of_the_cpu(metric):
    values = []
    for device in ("cpu", "cuda"):
        model, images = copy.deepcopy(tiny.fresh("vit")).to(device), tiny.pictures("vit").to(device)
        maps = pl.explain(model, images, "transformer_mm")
        values.append(pl.evaluate(model, images, maps, metric=metric).values.cpu())
    assert torch.allclose(*values, rtol=1e-6)


def test_new_weights_leave_the_devices_random_numbers_alone():
    model = tiny.fresh("vit").cuda()
    before = torch.cuda.get_rng_state()
    new, _ = fresh(model, 0)
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert all(t.is_cuda and t.isfinite().all() for t in new.values())
    assert all(torch.equal(t.cpu(), new_cpu) for t, new_cpu in zip(new.values(), fresh(model.cpu(), 0)[0].values(), strict=True))
