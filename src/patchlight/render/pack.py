"""Numbers and pictures as short text for a page: quantised, deflated where that pays, in base64."""

from __future__ import annotations

import base64
import io
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

NOTHING = -32768  # stands for NaN
LONGEST = 640  # pixels of a photo on a page
MOST = 4096  # values that are kept in 16 bits: a patch grid, but no map of pixels


def text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def packed(values: np.ndarray) -> dict[str, Any]:
    """A map (h, w). Up to 4096 values: v = q m / 32767; more, such as pixels: v = sign(q) (q / 127)² m, deflated."""
    values = np.asarray(values, dtype=np.float64)
    finite = values[np.isfinite(values)]
    most = float(np.abs(finite).max()) if finite.size else 0.0
    share = np.clip(np.nan_to_num(values / (most or 1.0), nan=0.0, posinf=1.0, neginf=-1.0), -1, 1)
    found: dict[str, Any] = {"shape": list(values.shape), "most": most}
    if values.size <= MOST:
        steps = np.rint(share * 32767).astype("<i2")
        steps[np.isnan(values)] = NOTHING
        return found | {"bits": 16, "data": text(steps.tobytes())}
    steps = np.rint(np.sign(share) * np.sqrt(np.abs(share)) * 127).astype(np.int8)
    return found | {"bits": 8, "data": deflated(steps)}


def deflated(values: np.ndarray) -> str:
    return text(zlib.compress(values.tobytes(), 9))


LEVELS = 31  # of attention within a row


def packed_attention(maps: np.ndarray) -> dict[str, str]:
    """Maps (h, q, k) of one block, row by row: a = most (q / 31)², with most = (q / 255)² of the row's largest value."""
    most = np.maximum(np.ceil(np.sqrt(np.clip(maps.max(-1), 0, 1)) * 255), 1)  # (h, q)
    share = np.clip(maps / (most[..., None] / 255) ** 2, 0, 1)
    steps = np.rint(LEVELS * np.sqrt(share)).astype(np.uint8)
    return {"most": text(most.astype(np.uint8).tobytes()), "data": deflated(steps)}


def packed_order(order: np.ndarray) -> str:
    return text(np.asarray(order).astype("<u2").tobytes())


def picture_url(image: Image.Image, longest: int = LONGEST, quality: int = 82) -> tuple[str, tuple[int, int]]:
    """The photo as a data URL, its longer side bounded, and its size then."""
    ratio = min(1.0, longest / max(image.size))
    size = max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
    small = image if size == image.size else image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    kind = "webp" if features.check("webp") else "jpeg"
    buffer = io.BytesIO()
    small.convert("RGB").save(buffer, format=kind, quality=quality)
    return f"data:image/{kind};base64,{text(buffer.getvalue())}", size


def palette_text(colours: NDArray[np.uint8]) -> str:
    return text(colours.tobytes())
