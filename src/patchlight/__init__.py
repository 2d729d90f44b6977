"""See what a Vision Transformer looked at.

    import patchlight as pl
    e = pl.explain("pets-vit", "photo.jpg", method="transformer_mm")
    e.overlay(0).save("seen.png")

Public names are loaded on first use, so that importing patchlight costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from patchlight import data as data
    from patchlight.api import compare as compare
    from patchlight.api import explain as explain
    from patchlight.core.errors import PatchlightError as PatchlightError
    from patchlight.core.item import Item as Item
    from patchlight.core.layout import Block as Block
    from patchlight.core.layout import Layout as Layout
    from patchlight.core.metric import Metric
    from patchlight.core.preprocess import Preprocess as Preprocess
    from patchlight.core.registry import Method
    from patchlight.evaluation import Score as Score
    from patchlight.evaluation import evaluate as evaluate
    from patchlight.evaluation import evaluate_many as evaluate_many
    from patchlight.explanation import Explanation as Explanation
    from patchlight.models.load import load as load
    from patchlight.models.subject import Subject as Subject

    def methods() -> Mapping[str, Method]: ...
    def metrics() -> Mapping[str, Metric]: ...


__version__ = "0.1.0"

PUBLIC = {
    "Block": "patchlight.core.layout",
    "Explanation": "patchlight.explanation",
    "Item": "patchlight.core.item",
    "Layout": "patchlight.core.layout",
    "PatchlightError": "patchlight.core.errors",
    "Preprocess": "patchlight.core.preprocess",
    "Score": "patchlight.evaluation",
    "Subject": "patchlight.models.subject",
    "compare": "patchlight.api",
    "data": "patchlight.data",
    "evaluate": "patchlight.evaluation",
    "evaluate_many": "patchlight.evaluation",
    "explain": "patchlight.api",
    "load": "patchlight.models.load",
    "methods": "patchlight.methods",
    "metrics": "patchlight.metrics",
}
__all__ = [*PUBLIC, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'patchlight' has no attribute {name!r}. Public: {', '.join(PUBLIC)}.")
    module = importlib.import_module(PUBLIC[name])
    return module if name in ("data", "methods", "metrics") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
