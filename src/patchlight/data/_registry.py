"""Data sets find themselves: a decorator on a function, and a walk over this folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import cleandoc
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from patchlight.core.errors import DataError, SettingError, nearest
from patchlight.core.registry import Setting, import_all, resolved, settings_of
from patchlight.data._set import Broken, DataSet, Entry

Gives = Literal["label", "boxes", "mask", "parts"]
log = logging.getLogger("patchlight")
ROOT = "PATCHLIGHT_DATA"


@dataclass(frozen=True, eq=False)
class Found:
    """What the function of a data set found on disk."""

    entries: Sequence[Entry]
    labels: Sequence[str] = ()
    notes: Sequence[str] = ()
    broken: Sequence[Broken] = ()


@dataclass(frozen=True)
class Kind:
    """A data set that patchlight can read: its function, and everything that a reader must know before using it."""

    name: str
    function: Callable[..., Found]
    summary: str
    description: str
    gives: tuple[Gives, ...]
    licence: str
    get: str
    layout: str
    cite: str
    made: bool
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings: the given ones checked, the others at their defaults."""
        return resolved(self.name, self.settings, given, verb="data")

    def __reduce__(self) -> tuple[Any, ...]:
        """By name, so that a data set can be sent to another process."""
        return get, (self.name,)


REGISTRY: dict[str, Kind] = {}


def dataset(
    *, gives: tuple[Gives, ...], licence: str, get: str, layout: str, cite: str, made: bool = False
) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Register a function (root, *, settings) -> Found under its own name.

    get: what to fetch, and from where. layout: what must then lie below the root. made: drawn, so there is no root.
    """

    def register(function: Callable[..., Found]) -> Callable[..., Found]:
        text = cleandoc(function.__doc__ or "")
        REGISTRY[function.__name__] = Kind(
            name=function.__name__,
            function=function,
            summary=" ".join(text.split("\n\n")[0].split()),
            description=text,
            gives=gives,
            licence=licence,
            get=get,
            layout=layout,
            cite=cite,
            made=made,
            settings=settings_of(function),
        )
        return function

    return register


@cache
def datasets() -> Mapping[str, Kind]:
    """Import every file of `patchlight.data` (those starting with `_` are helpers) and return the registry by name."""
    import_all("patchlight.data")
    return MappingProxyType(dict(sorted(REGISTRY.items())))


def get(name: str) -> Kind:
    known = datasets()
    if name not in known:
        raise SettingError(f"There is no data set {name!r}.{nearest(str(name), known)}")
    return known[name]


def open(name: str, root: str | Path | None = None, **settings: Any) -> DataSet:
    """A data set that lies on disk. root: its folder, by default $PATCHLIGHT_DATA/NAME. Other keywords are its settings."""
    kind = get(name)
    resolved = kind.resolve(settings)
    place = None if kind.made else find_root(kind, root)
    try:
        found = kind.function(place, **resolved)
    except MissingError as error:
        raise DataError(f"{kind.name}: {error} {advice(kind)}") from error
    if not found.entries:
        raise DataError(f"{kind.name}: no pictures lie in {place}. {advice(kind)}")
    for one in found.broken:
        log.warning("%s: %s is skipped: %s", kind.name, one.name, one.reason)
    return DataSet(
        kind, place, resolved, tuple(found.entries), tuple(found.labels), tuple(found.notes), broken=list(found.broken)
    )


def find_root(kind: Kind, root: str | Path | None) -> Path:
    if root is None and not os.environ.get(ROOT):
        raise DataError(f"{kind.name}: where is it? Give root=, or set {ROOT} to the folder that holds it. {advice(kind)}")
    place = Path(root).expanduser() if root is not None else Path(os.environ[ROOT]).expanduser() / kind.name
    if not place.exists():
        raise DataError(f"{kind.name}: there is nothing at {place}. {advice(kind)}")
    return place


def advice(kind: Kind) -> str:
    return f"Nothing is downloaded by itself. Get {kind.get}; below the root must then lie: {kind.layout}."


class MissingError(Exception):
    """A file or folder that a data set's function did not find; `open` adds what to get and where to put it."""


def need(*candidates: Path) -> Path:
    """The first that exists."""
    for path in candidates:
        if path.exists():
            return path
    raise MissingError(f"expected {' or '.join(str(c) for c in candidates)}, but it is not there.")


def first(*candidates: Path) -> Path | None:
    return next((path for path in candidates if path.exists()), None)
