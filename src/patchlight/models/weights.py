"""Weights from a file: found, read as tensors only, and fitted strictly."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.errors import ModelError
from patchlight.core.pictures import near_files
from patchlight.models.subject import brief

NESTED = ("state_dict", "model", "model_state", "model_state_dict", "state_dict_ema")
PREFIXES = ("module.", "model.", "_orig_mod.")
SAVE = "Save it anew as safetensors.torch.save_file(model.state_dict(), FILE) or torch.save(model.state_dict(), FILE)."

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Weights:
    """The tensors of a file by name; `origin` is its name and the start of its sha256."""

    path: Path
    tensors: dict[str, Tensor]
    origin: str

    def classes(self, layers: Iterable[str]) -> int | None:
        """How many classes the file's classifier has: the rows of the first of these layers that is in it."""
        found = (self.tensors.get(f"{name}.weight") for name in layers)
        return next((t.shape[0] for t in found if t is not None), None)


@dataclass(frozen=True)
class Misfit:
    """What keeps tensors from filling a model."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    wrong: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.wrong)

    def __str__(self) -> str:
        shapes = [f"{name}: file {there}, model {here}" for name, there, here in self.wrong]
        parts = [("missing", self.missing), ("unexpected", self.unexpected), ("of another shape", shapes)]
        return "; ".join(f"{len(names)} {what} ({first(names)})" for what, names in parts if names)


def first(names: Iterable[str], *, most: int = 5) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def read(path: str | Path) -> Weights:
    """The state dict in a safetensors or torch file: taken out of a training checkpoint, common prefixes removed."""
    path = check(Path(path).expanduser())
    tensors, key = state_dict(load_file(path), path=path)
    origin = f"{path.name} (sha256 {digest(path)}{', ' + key if key else ''})"
    return Weights(path, without_prefixes(tensors), origin)


def check(path: Path) -> Path:
    if path.is_dir():
        raise ModelError(f"weights={str(path)!r} is a folder, but a file was expected. Give a file in it, or load 'hf:{path}'.")
    if not path.is_file():
        raise ModelError(f"There is no weights file {path}.{near_files(path)}")
    return path


def load_file(path: Path) -> Any:
    from safetensors.torch import load_file as load_safetensors

    try:
        if path.suffix == ".safetensors":
            return load_safetensors(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} cannot be read as tensors only: it is damaged, or holds other Python objects, which could run code. {SAVE}"
        ) from error
    except Exception as error:  # unpicklers of damaged files raise whatever they like
        raise ModelError(
            f"{path} cannot be read as {'safetensors' if path.suffix == '.safetensors' else 'a torch file'}, so it is probably "
            f"cut off, damaged or in another format ({type(error).__name__}: {brief(error)}) Fetch or copy it again."
        ) from error


def state_dict(content: Any, *, path: Path) -> tuple[dict[str, Tensor], str]:
    """(tensors by name, the key in the checkpoint that they were under)."""
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            tensors, deeper = state_dict(content[key], path=path)
            return tensors, f"{key}.{deeper}" if deeper else key
    if isinstance(content, Mapping) and content and all(isinstance(v, Tensor) for v in content.values()):
        return {str(k): v for k, v in content.items()}, ""
    came = f"a {type(content).__name__}" + (f" with {first(map(str, content))}" if isinstance(content, Mapping) else "")
    raise ModelError(f"{path} should hold tensors by name, bare or under {', '.join(NESTED)}, but it holds {came}. {SAVE}")


def without_prefixes(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names without what wrappers put before all of them."""
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            return without_prefixes({name.removeprefix(prefix): t for name, t in tensors.items()})
    return tensors


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            found.update(piece)
    return found.hexdigest()[:12]


def last_linear(model: nn.Module) -> tuple[str, ...]:
    """The name of the last linear layer, where a classifier sits; nothing for a model without one."""
    return tuple(name for name, module in model.named_modules() if isinstance(module, nn.Linear))[-1:]


def misfit(model: nn.Module, tensors: Mapping[str, Tensor]) -> Misfit:
    here: Shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    there: Shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    return Misfit(
        missing=tuple(n for n in here if n not in there and not n.endswith("num_batches_tracked")),
        unexpected=tuple(n for n in there if n not in here),
        wrong=tuple((n, there[n], here[n]) for n in here if n in there and there[n] != here[n]),
    )


def fill(model: nn.Module, weights: Weights, *, name: str) -> nn.Module:
    """The model with the file's weights, every one of them, in the model's own precision."""
    refuse(misfit(model, weights.tensors), weights, name=name)
    model.load_state_dict(weights.tensors, strict=False)
    return model


def refuse(found: Misfit, weights: Weights, *, name: str) -> None:
    if found:
        raise ModelError(
            f"{weights.path} does not fit {name}; of its tensors there are {found}. Give the name of the architecture that it "
            "was made with, and whatever else it was made with as arguments (an image size, a width, a number of classes)."
        )


def renamed(weights: Weights, tensors: dict[str, Tensor], *, how: str) -> Weights:
    """The same file after a conversion, which its origin tells."""
    return replace(weights, tensors=tensors, origin=f"{weights.origin}, {how}")
