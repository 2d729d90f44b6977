from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, method
from patchlight.tracing.ask import Ask


@method(
    paper="Smilkov et al. 2017, SmoothGrad: removing noise by adding noise",
    equation="M = max_c |mean_k ∂y/∂x_c(x + σ (max x - min x) ε_k)|",
    cost=lambda s: Cost((len_of(s["noise"]) or s["samples"]) + 1, len_of(s["noise"]) or s["samples"]),
    returns="pixels",
    stochastic=True,
)
def smooth_grad(
    ask: Ask,
    *,
    samples: int = 50,
    sigma: float = 0.15,
    noise: torch.Tensor | None = None,
    channels: Literal["max", "square", "sum"] = "max",
) -> Tensor:
    """The gradient averaged over noisy copies of the picture.

    `sigma` is a share of the picture's range of normalised values. `noise` (m, 3, H, W) or (b, m, 3, H, W) is added as it is, in
    place of drawn noise. `channels`: the largest absolute value, the mean of squares over copies and channels, or the signed sum.
    """
    if noise is None and samples < 1:
        raise SettingError(f"smooth_grad: samples takes 1 or more, but {samples} came.")
    if not sigma >= 0:
        raise SettingError(f"smooth_grad: sigma takes 0 or more, but {sigma} came.")
    count = len_of(noise) or samples
    variant = given_noise(ask, noise) if noise is not None else drawn_noise(ask, sigma)
    total = torch.zeros_like(ask.images, dtype=torch.promote_types(ask.images.dtype, torch.float32))
    for gradient in ask.gradients(variant, count):
        total += gradient.square() if channels == "square" else gradient
    mean = total / count  # (b, 3, H, W)
    ask.keep("gradient", mean)
    return mean.abs().amax(1) if channels == "max" else mean.sum(1)


def len_of(noise: Tensor | None) -> int:
    return 0 if noise is None or noise.dim() < 4 else noise.shape[-4]


def given_noise(ask: Ask, noise: Tensor) -> Callable[[int], Tensor]:
    expected = tuple(ask.images.shape[1:])
    if noise.dim() not in (4, 5) or tuple(noise.shape[-3:]) != expected or (noise.dim() == 5 and len(noise) != ask.count):
        size = ", ".join(map(str, expected))
        raise SettingError(f"smooth_grad: noise takes (m, {size}) or ({ask.count}, m, {size}), but {tuple(noise.shape)} came.")
    noise = (noise[ask.start : ask.start + len(ask.images)] if noise.dim() == 5 else noise).to(ask.images)
    return lambda k: ask.images + noise[..., k, :, :, :]


def drawn_noise(ask: Ask, sigma: float) -> Callable[[int], Tensor]:
    """Each picture draws from its own generator, one copy after the other."""
    generators = ask.generators()
    flat = ask.images.flatten(1)
    spread = (sigma * (flat.amax(1) - flat.amin(1)))[:, None, None, None]
    shape = tuple(ask.images.shape[1:])

    def variant(_: int) -> Tensor:
        drawn = torch.stack([torch.randn(shape, generator=g) for g in generators])
        return ask.images + spread * drawn.to(ask.images)

    return variant
