"""Methods find themselves: a decorator on a function, a walk over a folder, and the function's own signature."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from patchlight.core.errors import SettingError, nearest
from patchlight.core.layout import Layout

T = TypeVar("T")
Returns = Literal["tokens", "pixels"]
Objective = Literal["logit", "probability", "skip"]


@dataclass(frozen=True)
class Cost:
    """Passes per picture: what a method claims and a counting model checks.

    `varies`: the picture decides, and `forwards` is the most, or what is usual where there is no most.
    """

    forwards: float
    backwards: float
    varies: Literal["", "at most", "about"] = ""

    def __str__(self) -> str:
        return f"{self.varies} {self.forwards:g} forward, {self.backwards:g} backward".strip()


@dataclass(frozen=True)
class Taps:
    """What a trace method wants to be handed, block by block from the last to the first.

    `objective` is the scalar whose gradient is taken (None: no backward pass); `gradients` names the tensors whose
    gradients are wanted (attention, entering, normed, final), in the blocks from `first` to `last` (None: the very last).
    """

    objective: Objective | None = None
    gradients: frozenset[str] = frozenset()
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class Setting:
    """One keyword-only parameter of a method."""

    name: str
    default: Any
    type: Any

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(c for t in alternatives(self.type) if typing.get_origin(t) is Literal for c in typing.get_args(t))

    @property
    def described(self) -> str:
        names = [" | ".join(map(repr, typing.get_args(t))) if typing.get_origin(t) is Literal else NAMES.get(t, str(t))
                 for t in alternatives(self.type)]  # fmt: skip
        return " | ".join(names)

    def check(self, value: Any, *, method: str, verb: str = "methods") -> Any:
        """The value, an int made a float where a float is expected, or a SettingError; numpy's numbers are numbers."""
        value = value.item() if isinstance(value, np.generic) else value
        for kind in alternatives(self.type):
            if typing.get_origin(kind) is Literal and isinstance(value, str) and value in typing.get_args(kind):
                return value
            if kind is float and isinstance(value, int) and not isinstance(value, bool):
                return float(value)
            if kind is torch.Tensor and isinstance(value, np.ndarray):
                return torch.tensor(value)
            if typing.get_origin(kind) is tuple and isinstance(value, (tuple, list)):
                return tuple(value)
            if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
                return value
        hint = nearest(value, self.choices) if isinstance(value, str) and self.choices else ""
        raise SettingError(
            f"{method}: {self.name} takes {self.described}, but {value!r} came.{hint} See `patchlight {verb} {method}`."
        )


NAMES: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str", type(None): "None", torch.Tensor: "tensor"}


def alternatives(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, type(int | str)) else (kind,)


@dataclass(frozen=True)
class Method:
    """A method of explanation: the function and everything that it claims about itself."""

    name: str
    function: Callable[..., Any]
    family: str
    summary: str
    description: str
    paper: str
    equation: str
    needs: tuple[str, ...]
    cost: Callable[..., Cost]
    """(settings) or (settings, layout): without a layout, of a ViT with 14 x 14 patches of 224 x 224 pixels."""
    taps: Callable[[Mapping[str, Any], Layout], Taps] | None
    returns: Callable[[Mapping[str, Any]], Returns]
    class_blind: bool
    stochastic: bool
    version: int
    requires: tuple[str, ...] = ()
    """Settings that no default can stand for: the method runs only where they are given."""
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def traced(self) -> bool:
        return self.taps is not None

    def lacks(self, given: Mapping[str, Any]) -> str | None:
        """What must be given and is not, as the rest of a sentence."""
        lacking = [f"{name}=" for name in self.requires if given.get(name) is None]
        return f"it needs {' and '.join(lacking)}, see `patchlight methods {self.name}`" if lacking else None

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings: the given ones checked, the others at their defaults."""
        return resolved(self.name, self.settings, given)


def resolved(owner: str, settings: Mapping[str, Setting], given: Mapping[str, Any], *, verb: str = "methods") -> dict[str, Any]:
    for name in given:
        if name not in settings:
            raise SettingError(f"{owner} has no setting {name!r}.{nearest(name, settings)}")
    return {n: s.check(given[n], method=owner, verb=verb) if n in given else s.default for n, s in settings.items()}


REGISTRY: dict[str, Method] = {}


def method(
    *,
    paper: str,
    equation: str,
    needs: tuple[str, ...] = (),
    cost: Cost | Callable[[Mapping[str, Any]], Cost] | Callable[[Mapping[str, Any], Layout], Cost],
    taps: Taps | Callable[[Mapping[str, Any], Layout], Taps] | None = None,
    returns: Returns | Callable[[Mapping[str, Any]], Returns] = "tokens",
    class_blind: bool = False,
    stochastic: bool = False,
    version: int = 1,
    requires: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under its own name; its folder is its family, its keyword-only parameters are its settings."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        text = inspect.cleandoc(function.__doc__ or "")
        REGISTRY[function.__name__] = Method(
            name=function.__name__,
            function=function,
            family=function.__module__.split(".")[-2],
            summary=" ".join(text.split("\n\n")[0].split()),
            description=text,
            paper=paper,
            equation=equation,
            needs=needs,
            cost=constant(cost) if isinstance(cost, Cost) else priced(cost),
            taps=constant(taps) if isinstance(taps, Taps) else taps,
            returns=returns if callable(returns) else constant(returns),
            class_blind=class_blind,
            stochastic=stochastic,
            version=version,
            requires=requires,
            settings=settings_of(function),
        )
        return function

    return register


def constant(value: T) -> Callable[..., T]:
    return lambda *_: value


USUAL = Layout(grid=(14, 14), prefix=1, pool="class", size=(224, 224))


def priced(cost: Callable[..., Cost]) -> Callable[..., Cost]:
    """cost(settings, layout) of a function that may not care for the layout."""
    cares = len(inspect.signature(cost).parameters) > 1
    return lambda settings, layout=USUAL: cost(settings, layout) if cares else cost(settings)


def settings_of(function: Callable[..., Any]) -> Mapping[str, Setting]:
    kinds = typing.get_type_hints(function)
    found = inspect.signature(function).parameters.values()
    keyword = [p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return MappingProxyType({p.name: Setting(p.name, p.default, kinds[p.name]) for p in keyword})


@cache
def discover() -> Mapping[str, Method]:
    """Import every file of `patchlight.methods` (those starting with `_` are helpers) and return the registry by name."""
    import_all("patchlight.methods")
    return MappingProxyType(dict(sorted(REGISTRY.items())))


def import_all(name: str) -> None:
    """Every file of a package but the helpers."""
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.rsplit(".", 1)[-1].startswith("_"):
            importlib.import_module(module.name)


def get(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    known = discover()
    if name not in known:
        raise SettingError(f"There is no method {name!r}.{nearest(str(name), known)}")
    return known[name]
