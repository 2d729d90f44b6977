"""The viewer as one page: markup, style, script and what it shows, with nothing to fetch from anywhere."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from patchlight.render.colours import palette
from patchlight.render.pack import palette_text

# each file imports only what stands above it
SCRIPTS = (
    *("dom", "decode", "paint", "state", "zip", "stage", "tiles", "classes", "attention"),
    *("removal", "insides", "about", "exports", "live", "methods", "keys", "main"),
)
SEQUENTIAL = ("inferno", "viridis", "cividis", "magma", "gray")
DIVERGING = ("coolwarm", "PuOr", "RdBu")
IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)


def page(document: Mapping[str, Any], *, title: str = "patchlight", offline: bool = True) -> str:
    """The whole page. `document` is what it shows; a server sends the same page with an almost empty one."""
    parts = {
        "TITLE": html.escape(title),
        "POLICY": policy(offline=offline),
        "STYLE": style(),
        "SCRIPT": script(),
        "PALETTES": as_data(palettes()),
        "DOCUMENT": as_data(document),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], asset("page.html"))


def policy(*, offline: bool) -> str:
    """What the page may do: run this script and this style, show data; a file may talk to nobody, a server's page to it alone."""
    rules = {
        "default-src": "'none'",
        "script-src": digest(script()),
        "style-src": digest(style()),
        "img-src": "data: blob:",
        "media-src": "'none'" if offline else "blob:",
        "connect-src": "'none'" if offline else "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def digest(content: str) -> str:
    found = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(found).decode('ascii')}'"


@cache
def style() -> str:
    return asset("style.css")


@cache
def script() -> str:
    """The modules as one: a file opened from disk may not import others. Their names are unique, which a test checks."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", asset(f"{name}.js"))) for name in SCRIPTS)


def asset(name: str) -> str:
    return (files("patchlight.render") / "viewer" / name).read_text(encoding="utf-8")


@cache
def palettes() -> dict[str, dict[str, str]]:
    """The colours of the library's own overlays, 256 each."""
    first = {name: palette(None if name == "inferno" else name, signed=False) for name in SEQUENTIAL}
    second = {name: palette(name if name == "coolwarm" else f"{name}_r", signed=True) for name in DIVERGING}
    return {
        "sequential": {name: palette_text(colours) for name, colours in first.items()},
        "diverging": {name: palette_text(colours) for name, colours in second.items()},
    }


def as_data(value: Any) -> str:
    """JSON that may stand inside a script element: no `<` can end it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
