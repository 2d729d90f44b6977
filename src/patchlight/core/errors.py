"""Every error says what was expected, what came, where, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PatchlightError(Exception):
    """Whatever patchlight raises on purpose."""


class ModelError(PatchlightError, ValueError):
    """A model cannot be loaded, called or read."""


class LayoutError(ModelError):
    """The geometry of a model cannot be found, or cannot serve a method."""


class TraceError(ModelError):
    """A forward pass hid something that had to be seen."""


class PictureError(PatchlightError, ValueError):
    """A picture cannot be found, read or used."""


class DataError(PatchlightError, ValueError):
    """A data set is not there, or what belongs to its pictures does not fit them."""


class TargetError(PatchlightError, ValueError):
    """What is to be explained cannot be resolved."""


class SettingError(PatchlightError, TypeError):
    """A name or a value that a method does not take."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'? Known: a, b, c.` for an unknown name."""
    known = sorted(known)
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} Known: {', '.join(known) or 'none'}."


def without_gradient() -> ModelError:
    """For what only scores, such as a function in numpy, when a method asks for the way back."""
    return ModelError("the output does not depend on the pictures through differentiable steps. Use a masking method.")
