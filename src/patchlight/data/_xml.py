"""Boxes in the XML of Pascal VOC, which ImageNet took over."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from patchlight.core.errors import DataError

Box = tuple[float, float, float, float]


def read_objects(path: Path, *, first_pixel: int) -> list[tuple[str, Box]]:
    """(name, box) of every object. Corners name pixels, the last one included; `first_pixel` is the number of the first."""
    try:
        return [one_object(node, first_pixel) for node in ElementTree.parse(path).getroot().iter("object")]
    except (ElementTree.ParseError, OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read as a VOC annotation ({type(error).__name__}: {error}). Fetch or copy it again."
        ) from error


def one_object(node: ElementTree.Element, first_pixel: int) -> tuple[str, Box]:
    x0, y0, x1, y1 = (float(node.findtext(f"bndbox/{corner}", "")) for corner in ("xmin", "ymin", "xmax", "ymax"))
    # edges, not pixel numbers: from the left edge of the first pixel to the right edge of the last
    box = (x0 - first_pixel, y0 - first_pixel, x1 - first_pixel + 1, y1 - first_pixel + 1)
    return node.findtext("name", "").strip(), box
