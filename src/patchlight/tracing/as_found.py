"""A model is lent for tracing and given back exactly as it was, after success and after an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Dropout off, parameters frozen, no checkpointing, compiled parts run eagerly; all of it undone at the end."""
    with ExitStack() as undo:
        # a caller's inference mode would forbid gradients; autograd state is restored on the way out
        undo.enter_context(torch.inference_mode(mode=False))
        for module in model.modules():
            if module.training:
                swap(undo, module, training=False)
            if getattr(module, "grad_checkpointing", False):
                swap(undo, module, grad_checkpointing=False)
            for store in (module._parameters, module._buffers):
                thaw(undo, store)
        for parameter in model.parameters():
            if parameter.requires_grad:
                swap(undo, parameter, requires_grad=False)
        if any(is_compiled(m) for m in model.modules()):
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def swap(undo: ExitStack, thing: object, **values: Any) -> None:
    for name, value in values.items():
        undo.callback(setattr, thing, name, getattr(thing, name))
        setattr(thing, name, value)


def thaw(undo: ExitStack, store: dict[str, Any]) -> None:
    """Tensors made under inference mode cannot be saved for a backward pass: copies stand in for them."""
    for name, tensor in store.items():
        if tensor is not None and tensor.is_inference():
            undo.callback(store.__setitem__, name, tensor)
            store[name] = tensor.detach().clone()


def tensors_of(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    return module._parameters, module._buffers


@contextmanager
def in_precision(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Copies in another precision stand in for the parameters and floating buffers; the model keeps its own tensors."""
    copies: dict[int, torch.Tensor] = {}
    with ExitStack() as undo:
        for module in model.modules():
            for store in tensors_of(module):
                for name, tensor in store.items():
                    if tensor is not None and tensor.is_floating_point() and tensor.dtype != dtype:
                        undo.callback(store.__setitem__, name, tensor)
                        if id(tensor) not in copies:
                            copies[id(tensor)] = tensor.detach().to(dtype)
                        store[name] = copies[id(tensor)]
        yield


def no_autocast(like: torch.Tensor) -> AbstractContextManager[Any]:
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")


@contextmanager
def replaced(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Other tensors, by their names, stand in for parameters and buffers; a tied one is replaced wherever it is used."""
    modules = dict(model.named_modules(remove_duplicate=False))
    standing = {id(own(modules, name)): tensor for name, tensor in tensors.items()}
    with ExitStack() as undo:
        for module in model.modules():
            for store in tensors_of(module):
                for name, tensor in store.items():
                    if id(tensor) in standing:
                        undo.callback(store.__setitem__, name, tensor)
                        store[name] = standing[id(tensor)]
        yield


def own(modules: Mapping[str, nn.Module], name: str) -> torch.Tensor:
    """The tensor of that name as the model has it."""
    place, _, last = name.rpartition(".")
    return next(store[last] for store in tensors_of(modules[place]) if last in store)
