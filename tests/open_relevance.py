"""Relevance through a timm ViT a second time, slowly and in the open: one picture, one rule after the other, by plain torch.

Shapes: n tokens, d width, h heads, i inputs, o outputs. Written from the equations of the papers: every contribution of every
layer stands in a tensor of its own, and the network is walked by hand, without hooks, modes or autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from open_vit import Case, norm

SHIFT = 1e-9  # of the authors' code; it is part of their numbers
Pair = tuple[Tensor, Tensor]


def over(numerator: Tensor, denominator: Tensor) -> Tensor:
    return torch.where(denominator == 0, 0.0, numerator / (denominator + SHIFT))


# -- linear layers: x (n, i), w (o, i), R (n, o) -> (n, i) ------------------------------------------------------------------


def shares(contributions: Tensor, relevance: Tensor) -> Tensor:
    """R_i = Σ_j c_ij / Σ_k c_kj R_j of contributions (n, o, i)."""
    return (contributions * over(relevance, contributions.sum(-1))[..., None]).sum(1)


def joint(x: Tensor, w: Tensor, relevance: Tensor) -> Tensor:
    """The positive contributions x_i w_ij share all of R_j."""
    return shares((x[:, None] * w).clamp_min(0), relevance)


def separate(x: Tensor, w: Tensor, relevance: Tensor) -> Tensor:
    """x^+ w^+ shares all of R_j, and x^- w^- shares all of R_j once more."""
    return sum((shares((s * x).clamp_min(0)[:, None] * (s * w).clamp_min(0), relevance) for s in (1, -1)), torch.zeros_like(x))


def aligned(x: Tensor, w: Tensor, relevance: Tensor) -> Tensor:
    """The contributions with the sign of the output share R_j."""
    c = x[:, None] * w
    return shares(torch.where((c.sign() == c.sum(-1, keepdim=True).sign()), c.abs(), 0.0), relevance)


# -- sums ---------------------------------------------------------------------------------------------------------------


def proportional(one: Tensor, other: Tensor, relevance: Tensor) -> Pair:
    return one * over(relevance, one + other), other * over(relevance, one + other)


def balanced(one: Tensor, other: Tensor, relevance: Tensor) -> Pair:
    a, b = proportional(one, other, relevance)
    size, total = a.sum().abs() + b.sum().abs(), relevance.sum()
    return a * over(over(a.sum().abs(), size) * total, a.sum()), b * over(over(b.sum().abs(), size) * total, b.sum())


def by_size(one: Tensor, other: Tensor, relevance: Tensor) -> Pair:
    return proportional(one.abs(), other.abs(), relevance)


def clone(x: Tensor, relevance: Tensor) -> Tensor:
    """What two readers send to one tensor."""
    return x * over(relevance, x)


# -- products: a (h, n, m) and b (h, m, e), R (h, n, e) -----------------------------------------------------------------------


def halves(a: Tensor, b: Tensor, relevance: Tensor) -> Pair:
    contributions = a[..., None] * b[:, None]  # (h, n, m, e)
    each = contributions * over(relevance, contributions.sum(2))[:, :, None]
    return each.sum(3) / 2, each.sum(1) / 2


def aligned_halves(a: Tensor, b: Tensor, relevance: Tensor) -> Pair:
    c = a[..., None] * b[:, None]
    c = torch.where(c.sign() == c.sum(2, keepdim=True).sign(), c.abs(), 0.0)
    each = c * over(relevance, c.sum(2))[:, :, None]
    return each.sum(3) / 2, each.sum(1) / 2


@dataclass(frozen=True)
class Rules:
    linear: Callable[[Tensor, Tensor, Tensor], Tensor]
    add: Callable[[Tensor, Tensor, Tensor], Pair]
    product: Callable[[Tensor, Tensor, Tensor], Pair]
    clones: bool = True
    sizes: bool = False  # pooling shares by size

    def copy(self, x: Tensor, relevance: Tensor) -> Tensor:
        return clone(x, relevance) if self.clones else relevance


JOINT = Rules(joint, balanced, halves)
SEPARATE = Rules(separate, proportional, halves)
ALIGNED = Rules(aligned, by_size, aligned_halves, clones=False, sizes=True)


@dataclass
class Found:
    maps: list[Tensor]  # R_A (h, n, n), block after block
    tokens: Tensor  # (n, d)
    pixels: Tensor  # (H, W)


def relevance(case: Case, rules: Rules) -> Found:
    """From 1 at the target down to the pixels."""
    model, seen = case.model, case.open()
    prefix, final = seen.prefix, seen.final.detach()
    pooled = final[:1] if model.global_pool == "token" else final[prefix:].mean(0, keepdim=True)
    start = F.one_hot(torch.tensor([case.target]), len(seen.logits)).double()
    r = rules.linear(norm(pooled, model.fc_norm), model.head.weight, start)  # norms pass it on
    found = torch.zeros_like(final)
    if model.global_pool == "token":
        found[:1] = r
    else:
        parts = final[prefix:].abs() if rules.sizes else final[prefix:]
        found[prefix:] = parts / len(parts) * over(r, parts.mean(0, keepdim=True))
    r, maps = found, []
    for index in reversed(range(len(model.blocks))):
        r, r_map = through_block(model.blocks[index], index, seen, r, rules)
        maps.insert(0, r_map)
    tokens = r
    entering = seen.entering[0].detach()
    position = model.pos_embed[0]
    r = rules.add(entering - position, position, rules.copy(entering, r))[0][prefix:]
    return Found(maps, tokens, box(case.image, model.patch_embed.proj, r))


def through_block(block: nn.Module, index: int, seen: object, r: Tensor, rules: Rules) -> Pair:
    x, middle, maps = (getattr(seen, name)[index].detach() for name in ("entering", "middle", "maps"))
    normed, normed_middle, mlp = (getattr(seen, name)[index].detach() for name in ("normed", "normed_middle", "mlp_updates"))
    if index + 1 < len(seen.entering):  # the output is read by the skip and by the norm of the next block
        r = rules.copy(middle + mlp, r)
    skip, r = rules.add(middle, mlp, r)
    hidden = normed_middle @ block.mlp.fc1.weight.T + block.mlp.fc1.bias
    r = rules.linear(F.gelu(hidden), block.mlp.fc2.weight, r)
    r = skip + rules.linear(normed_middle, block.mlp.fc1.weight, r)
    skip, r = rules.add(x, middle - x, rules.copy(middle, r))
    attention, heads = block.attn, maps.shape[0]
    qkv = normed @ attention.qkv.weight.T + attention.qkv.bias
    q, k, v = qkv.unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)  # (h, n, e)
    context = maps @ v
    r = rules.linear(context.transpose(0, 1).flatten(1), attention.proj.weight, r).unflatten(1, (heads, -1)).transpose(0, 1)
    r_map, r_v = rules.product(maps, v, r)
    r_q, r_k = rules.product(q, k.transpose(1, 2), r_map)  # softmax and scale pass it on
    r = torch.stack([r_q, r_k.transpose(1, 2), r_v]).permute(2, 0, 1, 3).flatten(1)  # (n, 3d)
    return skip + rules.linear(normed, attention.qkv.weight, r), r_map


def box(image: Tensor, layer: nn.Module, r: Tensor) -> Tensor:
    """z^B: R_i = Σ_j (x_i w_ij - l w_ij^+ - h w_ij^-) / Σ_k (...) R_j for each patch, l and h of the whole picture."""
    size = layer.weight.shape[-1]
    patches = F.unfold(image[None], size, stride=size)[0].T  # (N, 3 p p)
    w = layer.weight.flatten(1)
    contributions = patches[:, None] * w - image.min() * w.clamp_min(0) - image.max() * w.clamp_max(0)  # (N, o, 3 p p)
    parts = (contributions * (r / (contributions.sum(-1) + SHIFT))[..., None]).sum(1)
    return F.fold(parts.T[None], image.shape[1:], size, stride=size)[0].sum(0)
