"""A timm ViT computed a second time, slowly and in the open: every tensor of every block, for one picture, by plain torch.

Shapes: n tokens, d width, h heads, e = d / h. Written from the equations of the papers, not from timm's or patchlight's code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tiny


@dataclass
class Opened:
    """What one forward pass computed; gradients of any of it by `gradient`."""

    prefix: int
    entering: list[Tensor] = field(default_factory=list)  # X (n, d)
    normed: list[Tensor] = field(default_factory=list)  # LN(X)
    scores: list[Tensor] = field(default_factory=list)  # S (h, n, n)
    maps: list[Tensor] = field(default_factory=list)  # A = softmax(S)
    head_updates: list[Tensor] = field(default_factory=list)  # V_h W_h (h, n, d), without the output bias
    middle: list[Tensor] = field(default_factory=list)
    normed_middle: list[Tensor] = field(default_factory=list)
    mlp_updates: list[Tensor] = field(default_factory=list)
    final: Tensor = field(default_factory=lambda: torch.empty(0))  # the tokens that are pooled
    logits: Tensor = field(default_factory=lambda: torch.empty(0))

    def gradient(self, wanted: list[Tensor], target: int, *, probability: bool = False) -> list[Tensor]:
        values = self.logits.softmax(0) if probability else self.logits
        return list(torch.autograd.grad(values[target], wanted, retain_graph=True))


def norm(tokens: Tensor, layer: nn.Module) -> Tensor:
    if isinstance(layer, nn.Identity):
        return tokens
    mean = tokens.mean(-1, keepdim=True)
    variance = ((tokens - mean) ** 2).mean(-1, keepdim=True)
    return (tokens - mean) / (variance + layer.eps).sqrt() * layer.weight + layer.bias


def open_vit(model: nn.Module, image: Tensor, *, detached: bool = False) -> Opened:
    """`detached`: what the attention reads is cut off, as in AG-CAM's own model."""
    seen = Opened(model.num_prefix_tokens)
    patches = F.conv2d(image[None], model.patch_embed.proj.weight, model.patch_embed.proj.bias, stride=8)
    tokens = patches[0].flatten(1).T  # (N, d)
    extra = [t[0] for t in (model.cls_token, model.reg_token) if t is not None]
    x = torch.cat([*extra, tokens]) + model.pos_embed[0]
    x = x.detach().requires_grad_()  # the tokens are the first thing whose gradient is wanted
    for block in model.blocks:
        x = open_block(block, x, seen, detached=detached)
    x = norm(x, model.norm)
    seen.final = x
    pooled = x[0] if model.global_pool == "token" else x[seen.prefix :].mean(0)
    seen.logits = model.head.weight @ norm(pooled, model.fc_norm) + model.head.bias
    return seen


def open_block(block: nn.Module, x: Tensor, seen: Opened, *, detached: bool) -> Tensor:
    attention, width = block.attn, x.shape[1]
    heads, size = attention.num_heads, width // attention.num_heads
    normed = norm(x, block.norm1)
    read = normed.detach() if detached else normed
    qkv = read @ attention.qkv.weight.T + attention.qkv.bias  # (n, 3d)
    q, k, v = (qkv[:, i * width : (i + 1) * width].reshape(-1, heads, size).transpose(0, 1) for i in range(3))
    scores = q @ k.transpose(1, 2) / size**0.5
    maps = torch.exp(scores - scores.amax(-1, keepdim=True))
    maps = maps / maps.sum(-1, keepdim=True)
    gamma = getattr(block.ls1, "gamma", torch.ones(width, dtype=x.dtype))
    slices = [attention.proj.weight[:, h * size : (h + 1) * size].T for h in range(heads)]  # W_h (e, d)
    updates = torch.stack([v[h] @ slices[h] * gamma for h in range(heads)])  # (h, n, d)
    middle = x + sum(maps[h] @ updates[h] for h in range(heads)) + attention.proj.bias * gamma
    normed_middle = norm(middle, block.norm2)
    hidden = F.gelu(normed_middle @ block.mlp.fc1.weight.T + block.mlp.fc1.bias)
    mlp = (hidden @ block.mlp.fc2.weight.T + block.mlp.fc2.bias) * getattr(block.ls2, "gamma", 1.0)
    values = (x, normed, scores, maps, updates, middle, normed_middle, mlp)
    names = ("entering", "normed", "scores", "maps", "head_updates", "middle", "normed_middle", "mlp_updates")
    for name, value in zip(names, values, strict=True):
        getattr(seen, name).append(value)
    return middle + mlp


def pixel_gradient(model: Callable[[Tensor], Tensor], image: Tensor, target: int) -> Tensor:
    """(3, H, W), by autograd alone."""
    leaf = image.clone()[None].requires_grad_()
    return torch.autograd.grad(model(leaf)[0, target], leaf)[0][0]


@dataclass
class Case:
    """One picture and one target on one network, for a reference that is written from the equations."""

    model: nn.Module
    image: Tensor
    target: int
    readout: object = None

    def open(self, image: Tensor | None = None, *, detached: bool = False) -> Opened:
        return open_vit(self.model, self.image if image is None else image, detached=detached)

    @property
    def row(self) -> Tensor:
        """(n,) the tokens that are read behind the last block: those that feed the head, or those asked for."""
        prefix, count, columns = self.model.num_prefix_tokens, self.model.pos_embed.shape[1], self.image.shape[-1] // 8
        readout = self.readout
        if readout is None:
            readout = 0 if self.model.global_pool == "token" else "mean"
        row = torch.zeros(count, dtype=torch.float64)
        if readout == "mean":
            row[prefix:] = 1 / (count - prefix)
        elif isinstance(readout, tuple):
            row[prefix + readout[0] * columns + readout[1]] = 1
        else:
            row[0 if readout == "class" else readout] = 1
        return row


Reference = Callable[..., Tensor]


def agree(reference: Reference, method: str, network: str, /, *, tolerance: float = 1e-10, **settings: Any) -> None:
    """patchlight equals the reference (n tokens, or a grid) for two pictures and two targets.

    1e-10 of the maximum: both are float64 and differ in the order of some thousand sums.
    """
    images, model = tiny.pictures(network, 2), tiny.subject(network).model
    for target in (1, 5):
        found = tiny.explain(network, method, images, target, **settings).scores
        rest = {k: v for k, v in settings.items() if k != "readout"}
        for image, scores in zip(images, found, strict=True):
            expected = reference(Case(model, image, target, settings.get("readout")), **rest).detach()
            flat = expected.reshape(-1)[-scores.numel() :]  # prefix tokens stand in front
            tiny.close(scores.reshape(-1), flat, tolerance)


PLAIN = ("vit", "vit_non_square", "vit_mean", "vit_no_prefix", "vit_layer_scale", "vit_registers")
READOUTS = (None, "mean", "class", 2, (1, 2))
