"""Small copies of what data sets look like on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def photo(path: Path, size: tuple[int, int] = (12, 8), seed: int = 0) -> Path:
    """A picture (width, height) of noise, in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(rows).save(path)
    return path


def grey(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)
    return path


def paletted(path: Path, values: np.ndarray) -> Path:
    """A PNG whose numbers are indices of a palette, as VOC has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values.astype(np.uint8), mode=None).convert("P")
    image.putdata(values.astype(np.uint8).flatten().tolist())
    image.putpalette([v for i in range(256) for v in (i, 255 - i, (7 * i) % 256)])
    image.save(path)
    return path


def voc_xml(path: Path, objects: list[tuple[str, tuple[int, int, int, int]]]) -> Path:
    """An annotation with one object for each (name, (xmin, ymin, xmax, ymax))."""
    path.parent.mkdir(parents=True, exist_ok=True)
    corner = "<xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>"
    parts = "".join(f"<object><name>{n}</name><bndbox>{corner.format(*b)}</bndbox></object>" for n, b in objects)
    path.write_text(f"<annotation><size><width>12</width></size>{parts}</annotation>")
    return path


def cut_off(path: Path) -> Path:
    """A file whose second half never arrived."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


def square(height: int, width: int, box: tuple[int, int, int, int], value: int = 1, rest: int = 0) -> np.ndarray:
    """(h, w): `value` in the box (x0, y0, x1, y1), `rest` beside it."""
    values = np.full((height, width), rest, dtype=np.int64)
    values[box[1] : box[3], box[0] : box[2]] = value
    return values
