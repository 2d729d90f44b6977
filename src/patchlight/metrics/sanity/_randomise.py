"""New weights in the place of the learned ones, drawn as the model's own library draws them; the model gets its own back."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.errors import ModelError
from patchlight.core.layout import Layout

EMBEDDING, HEAD = "embedding", "head"


def parts(model: nn.Module, layout: Layout | None) -> dict[str, list[str]]:
    """Part -> names of its parameters, from the head down to the patch embedding.

    What comes before the first block is the embedding, what comes after the last the head, what lies between (a merging of
    patches) goes with the block before it. A model without blocks is cut into its layers.
    """
    names = [n for n, _ in model.named_parameters()]
    blocks = [b.name for b in layout.blocks] if layout is not None else []
    owners = [owner(n, blocks) for n in names]
    if not any(owners):
        owners = [n.rpartition(".")[0] or n for n in names]
    last = max(i for i, o in enumerate(owners) if o)
    found: dict[str, list[str]] = {}
    current = EMBEDDING
    for i, name in enumerate(names):
        current = owners[i] or (HEAD if i > last else current)
        found.setdefault(current, []).append(name)
    return dict(reversed(found.items()))


def owner(name: str, blocks: Sequence[str]) -> str:
    return next((b for b in blocks if name.startswith(f"{b}.")), "")


def fresh(model: nn.Module, seed: int) -> tuple[dict[str, Tensor], list[str]]:
    """Name -> new parameter, and the names of those that no initialisation knows.

    A copy of the model on the CPU is filled with NaN and initialised: by `reset_parameters` of its layers, then by the whole
    model's `init_weights` or `_init_weights`, as timm and transformers have. What is still NaN afterwards nobody initialises
    (tokens of torchvision are made in constructors): it is drawn from a normal distribution with the mean and spread it had.
    """
    blank, learned = copied(model), dict(model.named_parameters())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs as well
        for parameter in blank.parameters():
            parameter.fill_(torch.nan)
        initialise(blank)
        drawn = {name: p.detach() for name, p in blank.named_parameters()}
        unknown = [name for name, p in drawn.items() if p.isnan().any()]
        drawn |= {name: as_spread(learned[name].detach().cpu()) for name in unknown}
        new = {name: t.to(learned[name].device, learned[name].dtype) for name, t in drawn.items()}
    return new, unknown


def as_spread(old: Tensor) -> Tensor:
    """Normal, with the mean and the spread of the given numbers."""
    wide = old.double()
    return torch.randn(old.shape, dtype=torch.float64) * wide.std(correction=0) + wide.mean()


def copied(model: nn.Module) -> nn.Module:
    """On the CPU, so that all devices draw the same, and in float32 at least, which every initialisation can."""
    try:
        blank = copy.deepcopy(model).cpu()
    except Exception as error:  # whatever a module holds may refuse
        raise ModelError(
            f"randomising works on a copy, but {type(model).__name__} cannot be copied ({type(error).__name__}: {error}). "
            "Take out what copy.deepcopy refuses."
        ) from error
    half = any(p.dtype in (torch.float16, torch.bfloat16) for p in blank.parameters())
    return blank.float() if half else blank


def initialise(model: nn.Module) -> None:
    """By the layers first, then by the library over that."""
    for module in model.modules():
        for thing in (module, *module.parameters(recurse=False)):
            vars(thing).pop("_is_hf_initialized", None)  # transformers skips what it has marked
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset) and required(reset) == 0:
            reset()
    whole, single = getattr(model, "init_weights", None), getattr(model, "_init_weights", None)
    if callable(whole) and required(whole) == 0:
        whole()
    elif callable(single) and required(single) == 1:
        model.apply(single)  # type: ignore[arg-type]  # takes a module by its name in both libraries


def required(function: object) -> int:
    """How many arguments must be given."""
    kinds = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    named = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sum(p.default is inspect.Parameter.empty and p.kind not in named for p in kinds)


@contextmanager
def standing_in(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Other tensors in the place of the named parameters and buffers; the model keeps its own, untouched."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    others = {id(t): values[n] for n, t in tensors if n in values}
    with ExitStack() as undo:
        for module in model.modules():
            for store in stores(module):
                for name, tensor in list(store.items()):
                    if tensor is not None and id(tensor) in others:
                        undo.callback(store.__setitem__, name, tensor)
                        store[name] = like(tensor, others[id(tensor)])
        yield


def stores(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    return module._parameters, module._buffers


def like(tensor: Tensor, value: Tensor) -> Tensor:
    value = value.to(tensor.device, tensor.dtype)
    return nn.Parameter(value, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value
