"""The sentences that say which model or file to give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from patchlight.core.errors import ModelError
from patchlight.models.subject import brief


def close_names(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'a' or 'b'?`, or nothing where no known name is near."""
    close = get_close_matches(name.lower(), list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else " No name is near it."


def no_weights(name: str, reason: str, *, folder: bool = False) -> ModelError:
    """The error for weights that cannot be had."""
    if folder:
        return ModelError(
            f"{name} cannot be fetched: {reason}. Download the whole repository elsewhere and give its folder: "
            f"patchlight.load({elsewhere(name)!r})."
        )
    return ModelError(
        f"The weights of {name} cannot be fetched: {reason}. Give a file: "
        f'patchlight.load("{name}", weights="FILE.safetensors"); or the bare architecture: weights="random".'
    )


def elsewhere(name: str) -> str:
    return "timm:local-dir:FOLDER" if name.startswith("timm:") else "hf:FOLDER"


def cannot_make(name: str, arguments: Mapping[str, Any], error: Exception) -> ModelError:
    """The error for a constructor that does not take what it was given."""
    given = ", ".join(f"{k}={v!r}" for k, v in arguments.items()) or "its defaults"
    return ModelError(
        f"{name} cannot be built with {given}: {type(error).__name__}: {brief(error)} Check the name and the arguments."
    )
