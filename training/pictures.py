"""Pictures from a folder: who is in them, and all of them in one tensor that crops can be cut from."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from patchlight.core.errors import PictureError
from patchlight.core.pictures import find_pictures, read_picture

SIDE = 336  # of the square that every picture lies on
NOBODY = -1  # the class of an unlabelled picture


@dataclass(frozen=True)
class Example:
    path: Path
    label: int


@dataclass(frozen=True, eq=False)
class Canvases:
    """Pictures in the upper left of squares, their last row and column repeated to the edge.

    pixels: uint8 (n, 3, side, side); sizes: (n, 2), height and width of the picture itself; labels: (n,).
    """

    pixels: Tensor
    sizes: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Canvases:
        return Canvases(self.pixels.to(device), self.sizes.to(device), self.labels.to(device))


def examples(folder: Path, split: str) -> list[Example]:
    """Pictures and classes of a split ("trainval" or "test") of the Oxford-IIIT Pets, or of a folder laid out like them.

    Either `index.csv` with the columns file, breed (from 0) and split, or `annotations/SPLIT.txt` as Oxford gives it, whose
    lines begin with a name and a class from 1; the pictures lie in `images`.
    """
    index, listed = folder / "index.csv", folder / "annotations" / f"{split}.txt"
    if index.is_file():
        with index.open(newline="", encoding="utf-8") as file:
            found = [Example(folder / "images" / r["file"], int(r["breed"])) for r in csv.DictReader(file) if r["split"] == split]
    elif listed.is_file():
        rows = [line.split() for line in listed.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        found = [Example(folder / "images" / f"{name}.jpg", int(number) - 1) for name, number, *_ in rows]
    else:
        raise PictureError(
            f"{folder} has neither index.csv nor annotations/{split}.txt. Give the folder of the Oxford-IIIT Pets."
        )
    if not found:
        raise PictureError(f"{folder} lists no pictures of the split {split!r}. Its index names the splits that there are.")
    return found


def unlabelled(folder: Path) -> list[Example]:
    """Every picture in a folder: what is in it does not matter for matching."""
    return [Example(path, NOBODY) for path in find_pictures([str(folder)])]


def evenly(found: Sequence[Example], count: int | None) -> list[Example]:
    """`count` of the examples, evenly spread over their order, which is by class; the same ones every time."""
    if count is None or count >= len(found):
        return list(found)
    return [found[i * len(found) // count] for i in range(count)]


def load(found: Sequence[Example], side: int = SIDE) -> Canvases:
    """All pictures at once, those larger than the square scaled down to it."""
    with ThreadPoolExecutor() as pool:
        drawn = list(pool.map(lambda example: canvas(example.path, side), found))
    pixels = torch.from_numpy(np.stack([square for square, _ in drawn])).permute(0, 3, 1, 2).contiguous()
    return Canvases(pixels, torch.tensor([size for _, size in drawn]).float(), torch.tensor([e.label for e in found]))


def canvas(path: Path, side: int) -> tuple[np.ndarray, tuple[int, int]]:
    picture = read_picture(path).image
    picture.thumbnail((side, side))
    rows = np.asarray(picture)
    height, width = rows.shape[:2]
    return np.pad(rows, ((0, side - height), (0, side - width), (0, 0)), mode="edge"), (height, width)


def joined(parts: Sequence[Canvases]) -> Canvases:
    return Canvases(
        torch.cat([p.pixels for p in parts]), torch.cat([p.sizes for p in parts]), torch.cat([p.labels for p in parts])
    )
