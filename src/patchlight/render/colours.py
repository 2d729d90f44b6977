"""Colour maps and scales: every step in a value is an even step to the eye, also to a colour-blind one."""

from __future__ import annotations

from functools import cache

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from patchlight.core.errors import SettingError, nearest

SEQUENTIAL = "inferno"
DIVERGING = "coolwarm"
START = 0.2  # the darkest fifth of inferno is left out: on a photo it reads as shade, not as colour
CENTRE = 128  # the step of the 256 at which a signed map is zero


def is_signed(values: np.ndarray) -> bool:
    """Whether a map has a negative part that could be seen: more than a thousandth of its largest magnitude."""
    finite = finite_of(values)
    return bool(finite.size) and float(finite.min()) < -1e-3 * float(np.abs(finite).max())


def limits(values: np.ndarray, *, signed: bool, percentile: float = 99.5) -> tuple[float, float]:
    """(low, high) of a colour scale: the percentiles at both ends, or -m..m when signed; a stray peak does not set it.

    Both are equal for a constant map, which the caller reports.
    """
    finite = finite_of(values)
    if not finite.size:
        return 0.0, 0.0
    if signed:
        size = np.abs(finite)
        most = float(np.percentile(size, percentile)) or float(size.max())
        return -most, most
    low, high = (float(v) for v in np.percentile(finite, (100 - percentile, percentile)))
    return (low, high) if high > low else (float(finite.min()), float(finite.max()))


def finite_of(values: np.ndarray) -> NDArray[np.float64]:
    flat = np.asarray(values, dtype=np.float64)
    return flat[np.isfinite(flat)]


def steps(values: np.ndarray, *, scale: tuple[float, float], signed: bool) -> NDArray[np.uint8]:
    """Each value as one of 256 steps of a colour map; no number, or a constant map, is the neutral step.

    Unsigned: 255 (v - low) / (high - low). Signed: 128 + 127 v / m, so that zero has a step of its own.
    """
    origin, gain, neutral = line(scale, signed=signed)
    found = np.asarray(values, dtype=np.float32) * np.float32(gain)
    found += np.float32(origin)
    np.nan_to_num(found, copy=False, nan=neutral, posinf=255.0, neginf=0.0)
    np.clip(np.rint(found, out=found), 0, 255, out=found)
    return found.astype(np.uint8)


def line(scale: tuple[float, float], *, signed: bool) -> tuple[float, float, float]:
    """(origin, gain, neutral step) of: step = origin + gain value."""
    low, high = scale
    if signed:
        most = max(abs(low), abs(high))
        return float(CENTRE), 127 / most if most > TINY else 0.0, float(CENTRE)
    gain = 255 / (high - low) if high - low > TINY else 0.0
    return -gain * low, gain, 0.0


TINY = 1e-30  # below this, a scale cannot be divided by in float32


def colourise(values: np.ndarray, *, scale: tuple[float, float], cmap: str | None = None, signed: bool) -> NDArray[np.uint8]:
    """The colours (h, w, 3) of a map (h, w)."""
    return palette(cmap, signed=signed)[steps(values, scale=scale, signed=signed)]


@cache
def palette(cmap: str | None, *, signed: bool) -> NDArray[np.uint8]:
    """The 256 colours (256, 3) of a map; a signed one is sampled so that its middle lies exactly on step 128."""
    name = cmap or (DIVERGING if signed else SEQUENTIAL)
    if name not in colormaps:
        raise SettingError(f"There is no colour map {name!r}.{nearest(name, [n for n in colormaps if not n.endswith('_r')])}")
    start = 0.0 if cmap else START
    at = 0.5 + (np.arange(256) - CENTRE) / 254 if signed else np.linspace(start, 1, 256)
    colours = np.rint(255 * np.asarray(colormaps[name](np.clip(at, 0, 1)))[:, :3]).astype(np.uint8)
    colours.setflags(write=False)  # it is handed out many times
    return colours
