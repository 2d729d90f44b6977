from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from patchlight.core.errors import ModelError, SettingError
from patchlight.core.registry import Cost, method
from patchlight.methods.masking._causal import Masks, Trial, causal_map, sigma_of
from patchlight.methods.masking._channels import bank, cosine_distances, of_pictures
from patchlight.methods.masking._cluster import partition
from patchlight.methods.masking._grids import random_masks
from patchlight.methods.masking._variants import Score
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask
from patchlight.tracing.features import At, feature_maps

USUAL = {"clustered": 70, "features": 768}  # masks of a ViT-B
CELLS, KEEP = 7, 0.5  # of the random masks that the paper compares with: RISE's
REASON = 100  # draws of noise that `until` may take
FLAT, STAGED = 0.1, 0.05  # the paper's thresholds for ViT and DeiT, and for Swin


def most_draws(draws: int | None, until: float | None) -> int:
    """Once as in the paper; with `until`, as often as it takes, within reason."""
    return draws if draws is not None else (1 if until is None else REASON)


def cost(settings: Mapping[str, Any]) -> Cost:
    passes = (2 if settings["debias"] and settings["sigma"] > 0 else 1) * most_draws(settings["draws"], settings["until"])
    if settings["masks"] != "random":
        return Cost(1 + passes * USUAL[settings["masks"]], 0, "about")
    return Cost(1 + passes * settings["samples"], 0, "at most" if settings["until"] else "")


@method(
    paper="Xie, Li, Cao and Zhang 2023, ViT-CX: causal explanation of vision transformers",
    equation="M_i: scaled sums of clustered, scaled feature maps; s_i = p(x ⊙ M_i + ε_i) - p(x + ε_i) + p(x), "
    "ε_i = σ Z_i (1 - M_i); M(u) = 1/K Σ_i s_i M_i(u) / Σ_j M_j(u)",
    cost=cost,
    returns="pixels",
    stochastic=True,
)
def vit_cx(
    ask: Ask,
    *,
    masks: Literal["clustered", "features", "random"] = "clustered",
    features: At = "norm",
    block: int | None = None,
    layer: str | None = None,
    threshold: float | None = None,
    debias: bool = True,
    sigma: float = 0.1,
    unit: Literal["normalised", "raw"] = "normalised",
    coverage: bool = True,
    noise: torch.Tensor | None = None,
    samples: int = 5000,
    draws: int | None = None,
    until: float | None = None,
    score: Score = "probability",
) -> Tensor:
    """Clustered feature maps as masks, weighted by their causal scores and by how much each pixel was shown.

    `masks`: the channels of a layer clustered by complete linkage on their cosine distance, cut at `threshold` (None: the paper's
    0.1, and 0.05 where patches are merged on the way); every channel as it is; or `samples` random masks of RISE. `features` of
    which `block` (None: the last one; where patches are merged, the last one of the last stage but one), or a module by name.
    `debias=False` takes p(x ⊙ M_i) as the score. `sigma` is in normalised units as in the authors' code, or `raw`, of pixels from
    0 to 1. `coverage=False` is the plain sum of s_i M_i. `noise` (K, 3, H, W) or (b, K, 3, H, W) stands in for Z.

    The paper draws the noise once for each mask. With 2 `draws` or more a standard error comes with the map, and `until` ends
    them when it is that share of the map's range (of at most `draws`, by default 100). Insides: masks, clusters, distances,
    impact, its mean and variance, overdetermined (a mean impact over 0.9), coverage, and the mean similarity of the masks.
    """
    most = most_draws(draws, until)
    if samples < 2 or most < 1 or (until is not None and (most < 2 or not until > 0)):
        raise SettingError(f"vit_cx: samples takes 2 or more, draws 1 (2 with until), but {samples} and {draws} came.")
    if noise is not None and most > 1:
        raise SettingError(
            f"vit_cx: noise holds one draw, which tells nothing of others, but {most} draws came. Leave one of them out."
        )
    with no_autocast(ask.images):
        if masks == "random":
            chosen = Masks(random_masks(ask, samples, CELLS, KEEP), [samples] * len(ask.images), random=True)
        else:
            maps = feature_maps(ask, block=block, at=features, layer=layer, method="vit_cx")
            chosen = clustered(ask, maps, cut(ask, threshold) if masks == "clustered" else None)
    spread = sigma_of(ask, sigma, unit)
    return causal_map(Trial(ask, chosen, spread, debias, score, noise), draws=most, until=until, coverage=coverage)


def cut(ask: Ask, threshold: float | None) -> float:
    """The distance at which clusters are cut."""
    if threshold is not None and not threshold > 0:
        raise SettingError(
            f"vit_cx: threshold takes a cosine distance above 0, but {threshold} came. For none, masks='features'."
        )
    return threshold or (STAGED if len(ask.layout().stages) > 1 else FLAT)


def clustered(ask: Ask, maps: Tensor, threshold: float | None) -> Masks:
    """One mask for each cluster of channels (b, d, h, w), or for each channel; constant channels make none."""
    size = ask.images.shape[-2], ask.images.shape[-1]
    channels = bank(maps.flatten(0, 1), size)
    constant = channels.constant.view(maps.shape[:2])
    if constant.all(1).any():
        raise ModelError("vit_cx: every channel of the feature maps is constant, so they make no masks. Choose another block.")
    scaled = channels.on_grid.view_as(maps)
    labels = torch.arange(maps.shape[1], device=maps.device).repeat(len(maps), 1)
    if threshold is not None:
        distances = cosine_distances(scaled.double() if maps.device.type != "mps" else scaled, size)
        ask.keep("distances", distances)
        labels = partition(distances, threshold)
    labels = renumbered(labels, constant)
    ask.keep("clusters", labels)
    counts = (labels.amax(1) + 1).tolist()
    sums = [one_hot(own, k, scaled) @ some.flatten(1) for own, k, some in zip(labels, counts, scaled, strict=True)]
    made = bank(torch.cat(sums).unflatten(1, maps.shape[2:]), size)
    return Masks(of_pictures(made, counts), counts)


def renumbered(labels: Tensor, constant: Tensor) -> Tensor:
    """(b, d) clusters 0 ... K - 1 of the channels that are not constant, -1 for those."""
    found = torch.full_like(labels, -1)
    for row, own, out in zip(labels, constant, found, strict=True):
        out[~own] = row[~own].unique(return_inverse=True)[1]
    return found


def one_hot(labels: Tensor, count: int, like: Tensor) -> Tensor:
    """(K, d)"""
    return (labels[None] == torch.arange(count, device=labels.device)[:, None]).to(like.dtype)
