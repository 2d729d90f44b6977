"""Settings and methods as they are written on a command line."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Literal

from patchlight.core.errors import SettingError, nearest
from patchlight.core.layout import Layout
from patchlight.core.registry import Method, Setting, alternatives, discover, get

FAST = 3  # passes a picture
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def chosen(names: Iterable[str]) -> list[str]:
    """Method names from `a,b`, `all` and `fast`, each once; baselines come last where a word chose them."""
    found: list[str] = []
    for name in (n.strip() for part in names for n in part.split(",")):
        if name in ("all", "fast"):
            found += [m.name for m in by_family() if not m.requires and (name == "all" or is_fast(m))]
        elif name:
            found.append(get(name).name)
    if not found:
        raise SettingError(
            "no method was named. Give names such as rollout,transformer_mm, or all, or fast; `patchlight methods` lists them."
        )
    return list(dict.fromkeys(found))


def by_family() -> list[Method]:
    """In the order of their families, the baselines last."""
    return sorted(discover().values(), key=lambda m: (m.family == "baseline", m.family, m.name))


def is_fast(method: Method) -> bool:
    """At most three passes a picture, and no heavy work beside them."""
    from patchlight.doctor import MOST_TOKENS

    cost = method.cost({name: s.default for name, s in method.settings.items()})
    return cost.forwards + cost.backwards <= FAST and method.name not in MOST_TOKENS


def missing(method: Method, layout: Layout) -> str | None:
    """The one reason why a method cannot serve a layout; None where it can."""
    return next((reason for need in method.needs if (reason := layout.missing(need))), None)


def settings_for(names: Sequence[str], given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of each method from `name=value` (all methods that have it) and `method.name=value`."""
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in given:
        left, equals, value = text.partition("=")
        owner, dot, name = left.strip().rpartition(".")
        if not equals or not name:
            raise SettingError(
                f"--set takes NAME=VALUE or METHOD.NAME=VALUE, but {text!r} came. For example: --set head_fusion=max."
            )
        if dot and owner not in found:
            raise SettingError(f"--set {text}: {owner!r} is not among the methods of this call.{nearest(owner, found)}")
        for method in (get(n) for n in ([owner] if dot else having(names, name, text))):
            found[method.name][name] = value_of(method, name, value.strip())
    return found


def ending(until: float | None) -> list[str]:
    """`--until` as a setting of all methods that have it."""
    return [] if until is None else [f"until={until}"]


def having(names: Sequence[str], setting: str, text: str) -> list[str]:
    """The methods that have the setting."""
    methods = [get(name) for name in names]
    found = [m.name for m in methods if setting in m.settings]
    if not found:
        known = {s for m in methods for s in m.settings}
        raise SettingError(f"--set {text}: none of {', '.join(names)} has a setting {setting!r}.{nearest(setting, known)}")
    return found


def value_of(method: Method, name: str, text: str) -> Any:
    """The value that a text stands for, checked; an unknown name gets the method's own error."""
    if name not in method.settings:
        method.resolve({name: text})
    setting = method.settings[name]
    return setting.check(parsed(setting, text), method=method.name)


def parsed(setting: Setting, text: str) -> Any:
    """The text as the first of the setting's types that it fits, else as it is."""
    for kind in sorted(alternatives(setting.type), key=lambda k: typing.get_origin(k) is not Literal):
        try:
            return read(kind, text)
        except ValueError:
            continue
    return text


def read(kind: Any, text: str) -> Any:
    """The text as a value of a type, or ValueError."""
    if typing.get_origin(kind) is Literal and text in typing.get_args(kind):
        return text
    if kind is NoneType and text.lower() in ("none", "null", ""):
        return None
    if kind is bool and text.lower() in WORDS:
        return WORDS[text.lower()]
    if kind in (int, float):
        return kind(text)
    if typing.get_origin(kind) is tuple:
        return items(typing.get_args(kind), text)
    raise ValueError(text)


def items(kinds: tuple[Any, ...], text: str) -> tuple[Any, ...]:
    """`3,4`, `(3, 4)` or `3x4` as a tuple with the types of its members."""
    parts = [p for p in re.split(r"[,x\s]+", text.strip("()[] ")) if p]
    if len(parts) != len(kinds):
        raise ValueError(text)
    return tuple(read(kind, part) for kind, part in zip(kinds, parts, strict=True))


def plain(settings: Mapping[str, Any]) -> str:
    """`name=value, name=value`."""
    return ", ".join(f"{k}={v}" for k, v in settings.items())
