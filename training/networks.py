"""The networks, and what is watched in them: the outputs of blocks, what the head reads, and the logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file, save_file
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from patchlight.core.errors import ModelError
from patchlight.core.preprocess import Preprocess
from patchlight.models.subject import Subject
from training.recipes import Network

PREPROCESS = Preprocess(size=(224, 224), resize=248, interpolation="bicubic")


@dataclass(frozen=True, eq=False)
class Outputs:
    """blocks: (b, n, d) with the class token first, or (b, h, w, d) without one; feature: (b, d); logits: (b, k)."""

    blocks: tuple[Tensor, ...]
    feature: Tensor
    logits: Tensor


def build(network: Network, **arguments: Any) -> nn.Module:
    return timm.create_model(network.architecture, pretrained=False, **{**network.arguments, **arguments})


def outputs(model: nn.Module, x: Tensor) -> Outputs:
    """One forward pass, with what is watched in it."""
    if isinstance(model, VisionTransformer):
        return of_vit(model, x)
    if isinstance(model, SwinTransformer):
        return of_swin(model, x)
    raise ModelError(
        f"Function matching knows timm's VisionTransformer and SwinTransformer, but a {type(model).__name__} came. "
        "Add a function that gives its Outputs to training/networks.py."
    )


def of_vit(model: VisionTransformer, x: Tensor) -> Outputs:
    x = model.norm_pre(model._pos_embed(model.patch_embed(x)))
    found = []
    for block in model.blocks:
        found.append(x := block(x))
    feature = model.norm(x)[:, 0]
    return Outputs(tuple(found), feature, model.head(feature))


def of_swin(model: SwinTransformer, x: Tensor) -> Outputs:
    """The blocks of the last two stages: the others see more finely than a teacher with patches of 16 pixels."""
    x = model.patch_embed(x)
    found = []
    stages: Any = model.layers
    for number, stage in enumerate(stages):
        x = stage.downsample(x)
        for block in stage.blocks:
            x = block(x)
            if number >= len(stages) - 2:
                found.append(x)
    feature = model.head.global_pool(model.norm(x))
    return Outputs(tuple(found), feature, model.head.fc(feature))


def subject(model: nn.Module, name: str) -> Subject:
    """The network as patchlight takes it, to be measured."""
    return Subject(model, name, PREPROCESS)


def load(network: Network, path: Path) -> nn.Module:
    """A network filled with a file, strictly."""
    model = build(network)
    model.load_state_dict({name: t.float() for name, t in load_file(path).items()})
    return model


def frozen(model: nn.Module) -> nn.Module:
    return model.eval().requires_grad_(requires_grad=False)


def save(model: nn.Module, path: Path, about: Mapping[str, str]) -> None:
    """The weights in half precision, as they ship; written aside and renamed."""
    tensors = {n: t.detach().to("cpu", torch.float16).contiguous() for n, t in model.state_dict().items()}
    aside = path.with_name(f".{path.name}.part")
    save_file(tensors, aside, metadata=dict(about))
    aside.replace(path)
