"""One self-contained file from explanations: it opens offline in any browser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchlight.explanation import Explanation
from patchlight.render.page import page
from patchlight.viewer.document import Extras, Tick, document

CURVES = 4  # pictures; for more, the curves of a file are made only when asked for


def write_html(
    found: Mapping[str, Explanation],
    path: str | Path,
    *,
    classes: int = 3,
    curves: bool | None = None,
    attention: bool = True,
    tick: Tick = lambda _: None,
) -> Path:
    """Write the viewer with these explanations in it; whole or not at all."""
    some = next(iter(found.values()), None)
    drawn = some is not None and len(some) <= CURVES if curves is None else curves
    return save_document(document(found, Extras(classes, drawn, attention), tick), path)


def save_document(shown: Mapping[str, Any], path: str | Path) -> Path:
    """The page around a document."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        aside.write_text(html(shown), encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def html(shown: Mapping[str, Any]) -> str:
    names = ", ".join(p["name"] for p in shown["pictures"][:3])
    return page(shown, title=f"{names} · {shown['model']['name']} · patchlight")
