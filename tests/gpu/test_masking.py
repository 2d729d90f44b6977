"""Masking on a CUDA device: the numbers of the CPU, half precision that is declared, the batch found once, clusters by rounds."""

from __future__ import annotations

import pytest
import timm
import torch

import patchlight as pl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
METHODS = {
    "occlusion": {"window": 64, "stride": 32},
    "patch_intervention": {"grid": (4, 4)},
    "rise": {"samples": 20},
    "score_cam": {"channels": 16},
    "vit_cx": {},
}


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) / p[0].numel() ** 0.5 if p.dim() > 1 else p + 0.05 * torch.randn_like(p))
    return model


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", METHODS)
def test_the_gpu_gives_the_numbers_of_the_cpu(method, images):
    model, settings = net().double(), METHODS[method]
    cpu = pl.explain(model, images.double(), method, 3, insides=True, **settings)
    gpu = pl.explain(model.cuda(), images.double(), method, 3, insides=True, **settings)
    tolerance = 1e-5 if method == "vit_cx" else 1e-9  # its noise is made in float32, whose logarithm rounds otherwise there
    assert (gpu.scores.cpu() - cpu.scores).abs().max() <= tolerance * cpu.scores.abs().max()
    if method == "vit_cx":
        assert torch.equal(gpu.insides["clusters"].cpu(), cpu.insides["clusters"])


@pytest.mark.parametrize("method", METHODS)
def test_half_precision_is_near_and_declared(method, images):
    subject, settings = pl.load(net().cuda()), METHODS[method]
    whole = pl.explain(subject, images, method, 3, autocast=False, **settings)
    half = pl.explain(subject, images, method, 3, **settings)
    assert not any("autocast" in note for note in whole.notes)
    assert any("masked pictures were scored under autocast to float16" in note for note in half.notes)
    pair = torch.stack([whole.scores.flatten().double(), half.scores.flatten().double()])
    assert torch.corrcoef(pair)[0, 1] > 0.98


def test_the_batch_is_found_once(images):
    subject = pl.load(net().cuda())
    pl.explain(subject, images, "rise", 3, samples=3000)
    found = dict(subject.scorer.sizes)
    assert len(found) == 1
    pl.explain(subject, images, "rise", 3, samples=3000)
    assert subject.scorer.sizes == found
