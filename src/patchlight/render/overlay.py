"""A map laid on the photo, exactly where the model looked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchlight.core.errors import PictureError, SettingError
from patchlight.render.colours import CENTRE, is_signed, limits, line, palette

Box = tuple[float, float, float, float]
OPACITY = 0.85


def overlay(
    picture: Image.Image,
    values: np.ndarray,
    *,
    box: Box | None = None,
    opacity: float = OPACITY,
    signed: bool | None = None,
    scale: tuple[float, float] | None = None,
    cmap: str | None = None,
    longest: int | None = None,
) -> Image.Image:
    """The photo with the map (h, w) on the box that the model saw; what lies outside is greyed, for nothing is known of it.

    Opacity grows with the value (its magnitude when signed), so the photo stays as it is where nothing was found. `scale`
    is (low, high) in raw values, by default that of this map; `longest` bounds the longer side of the result.
    """
    values = checked(values)
    box = box or (0.0, 0.0, float(picture.width), float(picture.height))
    picture, box = shrunk(picture.convert("RGB"), box, longest)
    signed = is_signed(values) if signed is None else signed
    scale = scale or limits(values, signed=signed)
    seen = seen_pixels(picture, box)
    part = cut(box, seen, (values.shape[1], values.shape[0]))
    index = enlarged(values, part, (seen[2] - seen[0], seen[3] - seen[1]), scale=scale, signed=signed)
    lit = tinted(picture.crop(seen), index, palette(cmap, signed=signed), opacities(opacity, signed=signed))
    if seen == (0, 0, *picture.size):
        return lit
    result = dimmed(picture)
    result.paste(lit, seen[:2])
    return result


def checked(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim != 2 or not values.size:
        raise PictureError(
            f"A map is (h, w), but {values.shape} came. Give the scores of one picture, as e.tokens[i] or e.pixels[i]."
        )
    return values


def shrunk(picture: Image.Image, box: Box, longest: int | None) -> tuple[Image.Image, Box]:
    """The picture and the box, scaled so that the longer side is at most `longest`."""
    ratio = (longest or max(picture.size)) / max(picture.size)
    if ratio >= 1:
        return picture, box
    size = max(1, round(picture.width * ratio)), max(1, round(picture.height * ratio))
    across, down = size[0] / picture.width, size[1] / picture.height
    scaled = box[0] * across, box[1] * down, box[2] * across, box[3] * down
    return picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0), scaled


def seen_pixels(picture: Image.Image, box: Box) -> tuple[int, int, int, int]:
    """The pixels of the picture whose centres lie in the box."""
    x0, y0 = max(0, round(box[0])), max(0, round(box[1]))
    x1, y1 = min(picture.width, round(box[2])), min(picture.height, round(box[3]))
    if x1 <= x0 or y1 <= y0:
        shown = tuple(round(v, 1) for v in box)
        raise PictureError(
            f"The box {shown} holds no pixel of the picture ({picture.width} x {picture.height}). "
            "Give (x0, y0, x1, y1) in its pixels, as Preprocess.box(width, height) does."
        )
    return x0, y0, x1, y1


def cut(box: Box, seen: tuple[int, int, int, int], size: tuple[int, int]) -> Box:
    """Where the seen pixels lie in a map of that size (w, h): u = w (x - x0) / (x1 - x0), and so for v."""
    across, down = size[0] / (box[2] - box[0]), size[1] / (box[3] - box[1])
    left, right = ((x - box[0]) * across for x in (seen[0], seen[2]))
    top, bottom = ((y - box[1]) * down for y in (seen[1], seen[3]))
    return max(0.0, left), max(0.0, top), min(float(size[0]), right), min(float(size[1]), bottom)


def enlarged(values: np.ndarray, part: Box, size: tuple[int, int], *, scale: tuple[float, float], signed: bool) -> Image.Image:
    """The steps of the colour map (0..255) at every pixel, bilinear between the values; mode L."""
    origin, gain, neutral = line(scale, signed=signed)
    # bounded before the enlargement so that one infinite value does not spoil its neighbours, but not yet cut at the scale
    small = np.nan_to_num(values.astype(np.float64) * gain + origin, nan=neutral, posinf=255.0, neginf=0.0)
    small = np.clip(small, -1e6, 1e6).astype(np.float32)
    fine = np.array(Image.fromarray(small).resize(size, Image.Resampling.BILINEAR, box=part))
    np.clip(np.rint(fine, out=fine), 0, 255, out=fine)
    return Image.fromarray(fine.astype(np.uint8))


def opacities(opacity: float, *, signed: bool) -> list[int]:
    """The opacity 0..255 of each step: opacity t, with t = 0 at the low end, or at zero when signed."""
    if not 0 <= opacity <= 1:
        raise SettingError(f"opacity is a number from 0 to 1, but {opacity} came. Give 0.85, or less to see more of the photo.")
    at = np.arange(256)
    t = np.minimum(np.abs(at - CENTRE) / 127, 1) if signed else at / 255
    return np.rint(255 * opacity * t).astype(int).tolist()


def tinted(photo: Image.Image, index: Image.Image, colours: NDArray[np.uint8], alpha: list[int]) -> Image.Image:
    """photo (1 - a) + colour a; by Pillow, in bytes, so that a large photo needs neither time nor memory."""
    paint = index.copy()
    paint.putpalette(colours.tobytes())
    return Image.composite(paint.convert("RGB"), photo, index.point(alpha))


def dimmed(picture: Image.Image) -> Image.Image:
    """Grey, with half the contrast and towards white: g = 0.45 luma + 115."""
    return picture.convert("L").point([round(0.45 * v + 115) for v in range(256)]).convert("RGB")
