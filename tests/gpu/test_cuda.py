"""On a CUDA device: the same numbers as on the CPU, half precision, compiled models, memory that runs out."""

from __future__ import annotations

import gc

import pytest
import timm
import torch

import patchlight as pl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TRACED = ["raw_attention", "rollout", "transformer_mm", "vtranm", "grad_cam", "ag_cam", "attcat", "grad_rollout"]
OTHERS = ["tam", "saliency", "input_x_gradient", "smooth_grad", "integrated_gradients", "random", "centre"]


def net(**options):
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, **options).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) / p[0].numel() ** 0.5 if p.dim() > 1 else p + 0.05 * torch.randn_like(p))
    return model


@pytest.fixture(scope="module")
def images():
    return torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(1))


def correlation(a, b):
    pair = torch.stack([a.double().cpu().flatten(), b.double().cpu().flatten()])
    return torch.corrcoef(pair)[0, 1].item()


@pytest.mark.parametrize("method", TRACED + OTHERS)
def test_the_gpu_gives_the_numbers_of_the_cpu(method, images):
    model = net().double()
    settings = {"samples": 4} if method == "smooth_grad" else {}
    cpu = pl.explain(model, images.double(), method, target=3, **settings).scores
    gpu = pl.explain(model.cuda(), images.double(), method, target=3, **settings).scores
    assert gpu.is_cuda
    assert (gpu.cpu() - cpu).abs().max() <= 1e-9 * cpu.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", TRACED)
def test_half_precision_keeps_the_order_of_patches(method, dtype, images):
    whole = pl.explain(net().cuda(), images, method, target=3).tokens
    half = pl.explain(net().cuda().to(dtype), images, method, target=3).tokens
    with torch.autocast("cuda", dtype):
        cast = pl.explain(net().cuda(), images, method, target=3).tokens
    assert half.isfinite().all()
    assert correlation(half, whole) > 0.95
    assert correlation(cast, whole) > 0.95


def test_compiled_and_parallel_models_are_read_through(images):
    model = net().cuda()
    plain = pl.explain(model, images, "transformer_mm", target=1).tokens
    whole = torch.compile(model)
    whole(images.cuda())
    assert torch.allclose(pl.explain(whole, images, "transformer_mm", target=1).tokens, plain, atol=1e-4)
    assert torch.allclose(pl.explain(torch.nn.DataParallel(model), images, "transformer_mm", target=1).tokens, plain, atol=1e-5)
    model.blocks[2].compile()
    model(images.cuda())
    assert torch.allclose(pl.explain(model, images, "transformer_mm", target=1).tokens, plain, atol=1e-4)


def test_memory_that_runs_out_halves_the_batch_and_says_so():
    model = net().double().cuda()  # in float32 another batch size rounds otherwise
    images = torch.randn(256, 3, 224, 224, dtype=torch.float64)
    whole = pl.explain(model, images, "transformer_mm", target=1, batch_size=256).tokens
    gc.collect()
    torch.cuda.empty_cache()
    share = (torch.cuda.memory_reserved() + 1500 * 2**20) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        tight = pl.explain(model, images, "transformer_mm", target=1, batch_size=256)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("out of memory: continued in batches of" in n for n in tight.notes)
    assert (tight.tokens - whole).abs().max() <= 1e-9 * whole.abs().max()


def test_nothing_stays_on_the_device(images):
    model = net().cuda()
    pl.explain(model, images, "vtranm", target=1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        pl.explain(model, images, "vtranm", target=1)
    assert torch.cuda.memory_allocated() <= before + 2**20
