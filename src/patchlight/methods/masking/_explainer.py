"""The explainer of ViT-Shapley: the model's own last tokens, and a head that says what each patch is worth for each class."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.errors import ModelError, SettingError
from patchlight.core.layout import Layout
from patchlight.methods.masking._without import Remove, cells
from patchlight.tracing.as_found import as_found, replaced
from patchlight.tracing.tokens import last_tokens

FORMAT = 1
SAMPLE = 16  # numbers of each tensor that tell one set of weights from another
ALIKE = 0.02  # of half precision, which may round them
TRAIN = "Train one: patchlight train-explainer PICTURES... --model MODEL --out FILE"


class Head(nn.Module):
    """One attention block and an MLP; its last layer begins at zero, where every patch is worth the same."""

    def __init__(self, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, n, d) -> (b, n, k)"""
        return self.out(nn.functional.gelu(self.hidden(self.norm(self.block(tokens)))))


@dataclass(frozen=True)
class About:
    """How an explainer came about; written into its file."""

    model: str
    size: tuple[int, int]
    patches: tuple[int, int]
    grid: tuple[int, int]
    """Of the players: the patches, or blocks of them."""
    width: int
    heads: int
    classes: int
    remove: Remove
    recipe: Mapping[str, Any] = field(default_factory=dict)
    pictures: int = 0
    held_out: int = 0
    explained: float = float("nan")
    """On held-out pictures: how much of what parts earn beyond their size the explainer foresees (1: all of it, 0: nothing)."""
    format: int = FORMAT


@dataclass(eq=False)
class Explainer:
    """`tuned` are the tensors of the model that training changed; `nothing` (k,) are the probabilities without any patch."""

    about: About
    head: Head
    tuned: dict[str, Tensor]
    nothing: Tensor
    sample: Tensor

    def shares(self, model: nn.Module, forward: Callable[[Tensor], Tensor], layout: Layout, images: Tensor) -> Tensor:
        """(b, n, k) before they are made efficient."""
        with replaced(model, self.tuned):
            tokens = last_tokens(model, forward, layout, images)
        return self.head(pooled(tokens.to(self.nothing.dtype), self.about.patches, self.about.grid))


def pooled(tokens: Tensor, patches: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """(b, patches, d) -> (b, n, d): the mean over the patches of each player."""
    if grid == patches:
        return tokens
    here = cells(grid, patches).flatten().to(tokens.device)
    belongs = (here == torch.arange(prod(grid), device=tokens.device)[:, None]).to(tokens.dtype)
    return (belongs / belongs.sum(1, keepdim=True)) @ tokens


def efficient(shares: Tensor, whole: Tensor, nothing: Tensor) -> Tensor:
    """φ_i + (v(all) - v(∅) - Σ φ) / n: the shares (b, n, k) then add up to what there is to share."""
    missing = whole - nothing - shares.sum(1)
    return shares + missing[:, None] / shares.shape[1]


def make_head(about: About, seed: int) -> Head:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Head(about.width, about.heads, about.classes)


# -- the file ---------------------------------------------------------------------------------------------------------


def sampled(model: nn.Module) -> Tensor:
    """A few numbers of every parameter, which tell these weights from others."""
    rows = []
    for parameter in model.parameters():
        flat = parameter.detach().flatten()
        rows.append(flat[:: max(1, len(flat) // SAMPLE)][:SAMPLE].float().cpu())
    return torch.cat(rows) if rows else torch.empty(0)


def save(explainer: Explainer, path: Path) -> None:
    """Written aside and renamed: whole or not at all."""
    from safetensors.torch import save_file

    tensors = {f"head.{n}": t for n, t in explainer.head.state_dict().items()}
    tensors |= {f"model.{n}": t for n, t in explainer.tuned.items()}
    tensors |= {"nothing": explainer.nothing, "sample": explainer.sample}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        plain = {n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()}
        save_file(plain, aside, metadata={"patchlight": json.dumps(asdict(explainer.about))})
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> Explainer:
    """An explainer from its file, on the CPU."""
    from safetensors import safe_open

    if not path.is_file():
        raise SettingError(f"vit_shapley: there is no explainer {path}. {TRAIN}")
    try:
        with safe_open(path, framework="pt") as file:
            found = json.loads((file.metadata() or {})["patchlight"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
        about = About(**{**found, **{name: tuple(found[name]) for name in ("size", "patches", "grid")}})
        head = make_head(about, 0)
        head.load_state_dict({n.removeprefix("head."): t for n, t in tensors.items() if n.startswith("head.")})
    except Exception as error:  # safetensors, json and torch raise whatever they like about a foreign file
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:100]}"
        raise SettingError(f"vit_shapley: {path} is no explainer of patchlight ({why}). {TRAIN}") from error
    tuned = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    return Explainer(about, head.eval(), tuned, tensors["nothing"], tensors["sample"])


def fitted(explainer: Explainer, model: nn.Module, layout: Layout, like: Tensor) -> Explainer:
    """The explainer in the place and precision of the model, or an error where it was trained for another one."""
    about, here = explainer.about, sampled(model)
    if about.patches != layout.grid or (layout.size != (0, 0) and about.size != layout.size):
        trained, has = (f"{s[0]} x {s[1]} pixels and {g[0]} x {g[1]} patches" for s, g in
                        ((about.size, about.patches), (layout.size, layout.grid)))  # fmt: skip
        raise ModelError(f"this explainer belongs to {trained}, but the model has {has}. {TRAIN}")
    same = here.shape == explainer.sample.shape and torch.allclose(here, explainer.sample, rtol=ALIKE, atol=1e-4)
    if not same:
        raise ModelError(f"the explainer was trained for {about.model}, and this model has other weights. {TRAIN}")
    wide = torch.promote_types(like.dtype, torch.float32)
    tuned = {n: t.to(like.device, like.dtype) for n, t in explainer.tuned.items()}
    nothing = explainer.nothing.to(like.device, wide)
    return Explainer(about, explainer.head.to(like.device, wide), tuned, nothing, explainer.sample)


def explain(
    explainer: Explainer, model: nn.Module, forward: Callable[[Tensor], Tensor], layout: Layout, images: Tensor, whole: Tensor
) -> Tensor:
    """(b, n, k) what each patch is worth for each class; they add up to `whole` (b, k) less what there is without any patch."""
    with as_found(model), torch.no_grad():
        shares = explainer.shares(model, forward, layout, images.detach().clone())
    return efficient(shares, whole.to(shares), explainer.nothing)
