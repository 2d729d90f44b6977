"""What the server has: models, methods with all that a form needs, photos, limits."""

from __future__ import annotations

import io
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from PIL import Image

from patchlight.core.errors import PatchlightError
from patchlight.core.registry import Method, Setting, alternatives, discover
from patchlight.models.subject import Subject
from patchlight.render.pack import picture_url
from patchlight.viewer.document import is_cheap, plain
from patchlight.web.uploads import Limits, samples

KINDS: dict[Any, str] = {bool: "flag", int: "integer", float: "number", str: "text", type(None): "none", torch.Tensor: "tensor"}


def about(subjects: Mapping[str, Subject], limits: Limits) -> dict[str, Any]:
    methods = sorted(discover().values(), key=lambda m: (m.family == "baseline", m.family, m.name))
    return {
        "models": [model(name, subject, methods) for name, subject in subjects.items()],
        "methods": [described(m) for m in methods],
        "samples": [{"name": name, "src": thumbnail(data)} for name, data in samples().items()],
        "limits": {"bytes": limits.bytes, "pixels": limits.pixels, "methods": limits.methods},
        "torch": str(torch.__version__),
    }


def model(name: str, subject: Subject, methods: list[Method]) -> dict[str, Any]:
    """A model, and why some methods cannot serve it."""
    height, width = subject.preprocess.size
    about = {"name": name, "size": [height, width], "origin": subject.origin, "labels": list(subject.labels)}
    try:
        layout = subject.layout()
    except PatchlightError as error:
        return about | {"problems": {m.name: str(error) for m in methods if m.needs or m.traced}, "grid": [14, 14]}
    reasons = ((m.name, next((r for n in m.needs if (r := layout.missing(n))), None)) for m in methods)
    found = {name: reason for name, reason in reasons if reason}
    return about | {"problems": found, "grid": list(layout.grid)}


@cache
def thumbnail(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        return picture_url(image.convert("RGB"), longest=160)[0]


def described(method: Method) -> dict[str, Any]:
    defaults = {name: s.default for name, s in method.settings.items()}
    cost = method.cost(defaults)
    return {
        "name": method.name,
        "family": method.family,
        "summary": method.summary,
        "paper": method.paper,
        "equation": method.equation,
        "blind": method.class_blind,
        "passes": cost.forwards + cost.backwards,
        "cheap": is_cheap(method, defaults),
        "settings": [field(s) for s in method.settings.values()],
    }


def field(setting: Setting) -> dict[str, Any]:
    """What a form needs to know of a setting."""
    kinds = []
    for kind in alternatives(setting.type):
        origin = typing.get_origin(kind)
        kinds.append("choice" if origin is typing.Literal else "list" if origin is tuple else KINDS.get(kind, "text"))
    return {
        "name": setting.name,
        "default": plain(setting.default),
        "kinds": kinds,
        "choices": list(setting.choices),
        "takes": setting.described,
    }
