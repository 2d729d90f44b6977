"""saliency, input_x_gradient, integrated_gradients and smooth_grad by autograd alone, on networks with and without attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import patchlight as pl
import tiny
from open_vit import Case, agree, pixel_gradient

NETWORKS = ["vit", "vit_map", "cait", "torchvision_vit", "swin", "cnn"]


def gradient(case: Case, image: Tensor | None = None) -> Tensor:
    return pixel_gradient(case.model, case.image if image is None else image, case.target)


def saliency(case: Case) -> Tensor:
    return gradient(case).abs().amax(0)


def input_x_gradient(case: Case) -> Tensor:
    return (case.image * gradient(case)).sum(0)


def integrated_gradients(
    case: Case, *, steps: int = 50, baseline: float = 0.0, quadrature: str = "gauss", channels: str = "sum"
) -> Tensor:
    start = torch.full_like(case.image, baseline)
    if quadrature == "gauss":
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        points, weights = (nodes + 1) / 2, weights / 2
    else:  # captum's weights
        points = np.arange(steps) / (steps - 1)
        weights = np.array([0.5, *[1.0] * (steps - 2), 0.5]) / steps
    total = sum(w * gradient(case, start + t * (case.image - start)) for t, w in zip(points, weights, strict=True))
    parts = (case.image - start) * total
    return parts.sum(0) if channels == "sum" else parts.abs().sum(0)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("reference", [saliency, input_x_gradient, integrated_gradients], ids=lambda r: r.__name__)
def test_equals_autograd(network, reference):
    settings = {"steps": 4} if reference is integrated_gradients else {}
    agree(reference, reference.__name__, network, **settings)


PATHS = [{"baseline": -1.5}, {"quadrature": "trapezoid"}, {"channels": "absolute"}, {"steps": 2, "quadrature": "trapezoid"}]


@pytest.mark.parametrize("settings", PATHS, ids=str)
def test_integrated_gradients_settings(settings):
    agree(integrated_gradients, "integrated_gradients", "vit", **{"steps": 5, **settings})


def test_completeness_gap_falls_as_steps_double():
    images, model = tiny.pictures(count=2), tiny.subject("vit").model
    gaps = []
    for steps in (4, 8, 16, 32):
        found = tiny.explain("vit", "integrated_gradients", images, 1, steps=steps, insides=True)
        difference = (model(images) - model(0 * images))[:, 1].detach()
        gap = found.pixels.sum((1, 2)) - difference
        # a difference of two sums: both round by a share of the sums, not of what is left of them
        assert (found.insides["completeness gap"] - gap).abs().max() <= 1e-13 * difference.abs().max()
        gaps.append(gap.abs().max().item())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.05 * gaps[0]


# -- smooth_grad ------------------------------------------------------------------------------------------------------


def test_smooth_grad_without_noise_is_saliency():
    found = tiny.explain("vit", "smooth_grad", sigma=0.0, samples=3).pixels
    tiny.close(found, tiny.explain("vit", "saliency").pixels, 1e-10)


REDUCE = {
    "max": lambda g: g.mean(0).abs().amax(0),
    "square": lambda g: g.square().mean(0).sum(0),
    "sum": lambda g: g.mean(0).sum(0),
}


@pytest.mark.parametrize("channels", REDUCE)
def test_smooth_grad_with_given_noise(channels):
    noise = 0.3 * torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def reference(case: Case, **_: object) -> Tensor:
        return REDUCE[channels](torch.stack([gradient(case, case.image + n) for n in noise]))

    agree(reference, "smooth_grad", "vit", noise=noise, channels=channels)


def test_smooth_grad_takes_noise_for_each_picture():
    images = tiny.pictures(count=2)
    noise = 0.3 * torch.randn(2, 4, 3, 32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = tiny.explain("vit", "smooth_grad", images, 1, noise=noise).pixels
    for i in range(2):
        tiny.close(found[i], tiny.explain("vit", "smooth_grad", images[i : i + 1], 1, noise=noise[i]).pixels[0], 1e-10)


# -- closed forms on a linear model -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear() -> tuple[pl.Subject, Tensor]:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 5)).double()
    return pl.load(model, preprocess=pl.Preprocess(size=(8, 8))), model[1].weight[2].detach().view(3, 8, 8)


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
CLOSED = {
    "saliency": ({}, lambda w: w.abs().amax(0).expand(2, 8, 8)),
    "input_x_gradient": ({}, lambda w: (w * X).sum(1)),
    "integrated_gradients": ({"steps": 3, "baseline": 0.5}, lambda w: (w * (X - 0.5)).sum(1)),
    "smooth_grad": ({"samples": 3}, lambda w: w.abs().amax(0).expand(2, 8, 8)),
}


@pytest.mark.parametrize("method", CLOSED)
def test_closed_form_on_a_linear_model(linear, method):
    subject, weight = linear
    settings, expected = CLOSED[method]
    tiny.close(pl.explain(subject, X, method, 2, **settings).pixels, expected(weight), 1e-12)
