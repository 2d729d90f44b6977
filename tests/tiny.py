"""Tiny random networks of every library, re-drawn so that each block matters: what the laws are checked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import timm.models as tm
import torch
import torchvision.models as tv
import transformers as hf
from torch import Tensor, nn

import patchlight as pl
from patchlight.api import why_not
from patchlight.core.registry import Method, discover

CLASSES = 7
WIDTH = {"embed_dim": 24, "depth": 3, "num_heads": 2, "num_classes": CLASSES, "patch_size": 8}
HF = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48, "num_labels": CLASSES}


def redrawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in float64 and eval mode with every parameter drawn anew: matrices keep the scale, norms stay near 1.

    Every value is one that bfloat16 holds, so that the same network can be had in any precision.
    """
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=draw, dtype=torch.float64)
            if "token" in name or "pos" in name or "latent" in name or "bias_table" in name:
                p.copy_(0.7 * noise)
            elif p.dim() >= 2:
                p.copy_(1.3 * noise / (p[0].numel()) ** 0.5)
            else:
                p.copy_((0.0 if name.endswith("bias") else 1.0) + 0.2 * noise)
            p.copy_(p.bfloat16())
    return model.double().eval()


def vit(**options: Any) -> nn.Module:
    return tm.VisionTransformer(**{**WIDTH, "img_size": 32, **options})


def distilled() -> nn.Module:
    return tm.deit.VisionTransformerDistilled(**WIDTH, img_size=32)


def cait() -> nn.Module:
    return tm.Cait(**WIDTH, img_size=32, depth_token_only=2)


def timm_swin() -> nn.Module:
    return tm.SwinTransformer(
        img_size=32, patch_size=4, embed_dim=12, depths=(2, 1), num_heads=(2, 3), window_size=2, num_classes=CLASSES
    )


def torchvision_vit() -> nn.Module:
    return tv.VisionTransformer(
        image_size=32, patch_size=8, num_layers=3, num_heads=2, hidden_dim=24, mlp_dim=48, num_classes=CLASSES
    )


def torchvision_swin() -> nn.Module:
    swin = tv.SwinTransformer(
        patch_size=[4, 4], embed_dim=12, depths=[2, 1], num_heads=[2, 3], window_size=[4, 4], num_classes=CLASSES
    )
    swin.image_size = 32
    return swin


def hf_model(name: str, **options: Any) -> nn.Module:
    config = getattr(hf, f"{name}Config")(image_size=32, **{"patch_size": 8, **HF, **options})
    return getattr(hf, f"{name}ForImageClassification")(config)


def hf_swin() -> nn.Module:
    config = hf.SwinConfig(
        image_size=32, patch_size=4, embed_dim=12, depths=[2, 1], num_heads=[2, 3], window_size=4, num_labels=CLASSES
    )
    return hf.SwinForImageClassification(config)


def cnn() -> nn.Module:
    layers = (nn.Conv2d(3, 8, 5, 2), nn.GELU(), nn.Conv2d(8, 8, 3, 2), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(32, CLASSES))
    model.image_size = 32
    return model


@dataclass(frozen=True)
class Kind:
    """How to make a network, and what a reader of its code knows about it."""

    make: Callable[[], nn.Module]
    grid: tuple[int, int] = (4, 4)
    prefix: int = 1
    pool: str = "class"
    blocks: int = 3
    needs: frozenset[str] = frozenset({"attention", "tokens", "last attention", "chain"})
    size: tuple[int, int] = (32, 32)


MEAN = Kind(vit).needs | {"mean pooling"}
WINDOWS = frozenset({"attention", "tokens", "mean pooling"})
SWIN = Kind(timm_swin, prefix=0, pool="mean", needs=WINDOWS)
ONE_WINDOW = WINDOWS | {"last attention"}  # the last stage fits into one window
KINDS: dict[str, Kind] = {
    "vit": Kind(vit),
    "vit_non_square": Kind(partial(vit, img_size=(32, 48)), grid=(4, 6), size=(32, 48)),
    "vit_no_prefix": Kind(partial(vit, class_token=False, global_pool="avg"), prefix=0, pool="mean", needs=MEAN),
    "vit_mean": Kind(partial(vit, global_pool="avg"), pool="mean", needs=MEAN),
    "vit_map": Kind(partial(vit, class_token=False, global_pool="map"), prefix=0, pool="attention", blocks=4),
    "vit_layer_scale": Kind(partial(vit, init_values=0.5)),
    "vit_registers": Kind(partial(vit, reg_tokens=4), prefix=5),
    "deit_distilled": Kind(distilled, prefix=2),
    "cait": Kind(cait, prefix=0, pool="attention", blocks=5),
    "hf_vit": Kind(partial(hf_model, "ViT")),
    "hf_deit": Kind(partial(hf_model, "DeiT"), prefix=2),
    "hf_dinov2_registers": Kind(partial(hf_model, "Dinov2WithRegisters", mlp_ratio=2), prefix=5, pool="class and mean"),
    "torchvision_vit": Kind(torchvision_vit),
    "swin": SWIN,
    "hf_swin": replace(SWIN, make=hf_swin, needs=ONE_WINDOW),
    "torchvision_swin": replace(SWIN, make=torchvision_swin, needs=ONE_WINDOW),
    "cnn": Kind(cnn, grid=(0, 0), prefix=0, pool="unknown", blocks=0, needs=frozenset()),
}


@cache
def subject(name: str) -> pl.Subject:
    """One network for all tests, with its layout found: explaining leaves it as it was."""
    return pl.load(fresh(name))


@dataclass
class Passes:
    """How many pictures went through a network, forward and backward."""

    forwards: int = 0
    backwards: int = 0

    def seen(self, _module: nn.Module, given: tuple[Tensor, ...], out: Any) -> None:
        logits = getattr(out, "logits", out)
        self.forwards += len(given[0])
        if logits.requires_grad:
            logits.register_hook(self.back)

    def back(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[Passes]:
        handle = model.register_forward_hook(self.seen)
        yield self
        handle.remove()


@cache
def counted(name: str, method: str) -> tuple[pl.Explanation, Passes]:
    """The three pictures explained once for all laws, with quick settings in float64; and the passes that it took."""
    subject(name).layout()
    with Passes().of(subject(name).model) as passes:
        return explain(name, method), passes


def known(name: str, method: str) -> pl.Explanation:
    return counted(name, method)[0]


def fresh(name: str, seed: int = 0) -> nn.Module:
    """A network of one's own, to change."""
    return redrawn(KINDS[name].make(), seed)


def pictures(name: str = "vit", count: int = 3, seed: int = 0) -> Tensor:
    """Values that bfloat16 holds, in float64."""
    drawn = torch.randn(count, 3, *KINDS[name].size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.bfloat16().double()


def served(name: str) -> list[Method]:
    """The methods that say they can explain a network."""
    layout = subject(name).layout()
    return [m for m in discover().values() if why_not(m, layout) is None]


def pairs(*names: str) -> list[tuple[str, str]]:
    """(network, method) for every method that says it works there."""
    return [(name, method.name) for name in names or KINDS for method in served(name)]


QUICK = {"steps": 3, "samples": 3, "window": 16, "stride": 8, "threshold": 0.6}
OWN = {
    "score_cam": {"relu": False},  # of random channels nothing may be left above 0
    "shapley": {"samples": 24, "grid": (2, 3)},  # the fewest for so many cells
    "lime": {"samples": 24, "grid": (2, 3)},
}


def quick(method: str) -> dict[str, Any]:
    """Settings that keep a law fast: few steps, few samples, few places. A new method that is slow by default adds its own."""
    return {name: value for name, value in QUICK.items() if name in discover()[method].settings} | OWN.get(method, {})


def explain(name: str, method: str, images: Tensor | None = None, target: Any = None, **options: Any) -> pl.Explanation:
    """`patchlight.explain` on a tiny network by name, with quick settings."""
    images = pictures(name) if images is None else images
    return pl.explain(subject(name), images, method, target, **{**quick(method), **options})


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """The largest difference, as a share of the largest expected value, stays within the tolerance."""
    assert found.shape == expected.shape
    scale = expected.abs().max().clamp_min(1e-300)
    gap = ((found.double() - expected.double()).abs().max() / scale).item()
    assert gap <= tolerance, f"differs by {gap:.2e} of the maximum, allowed {tolerance:.0e}"
