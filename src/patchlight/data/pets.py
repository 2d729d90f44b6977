from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from patchlight.core.errors import DataError
from patchlight.core.item import IGNORED
from patchlight.data._registry import Found, dataset, first, need
from patchlight.data._set import BACKGROUND, OBJECT, Entry, box_of, lazily
from patchlight.data._set import read_mask as read_values

EDGE = {"ignored": IGNORED, "animal": OBJECT, "background": BACKGROUND}


@dataset(
    gives=("label", "boxes", "mask"),
    licence="CC BY-SA 4.0",
    get="images.tar.gz and annotations.tar.gz from https://www.robots.ox.ac.uk/~vgg/data/pets, unpacked",
    layout="images/*.jpg, annotations/trimaps/*.png and annotations/test.txt",
    cite="Parkhi et al. 2012, Cats and Dogs",
)
def pets(
    root: Path,
    *,
    split: Literal["test", "trainval", "all"] = "test",
    classes: Literal["breed", "species"] = "breed",
    edge: Literal["ignored", "animal", "background"] = "ignored",
) -> Found:
    """Oxford-IIIT Pets: 37 breeds of cats and dogs (or the two species), each animal with a trimap.

    The trimap's third value is an edge some pixels wide between animal and background, which its authors left undecided; `edge`
    says what to count it as. The box is that of the animal with its edge.
    """
    top = first(root / "oxford-iiit-pet") or root
    lists = ("trainval", "test") if split == "all" else (split,)
    lines = [line for name in lists for line in read_list(need(top / "annotations" / f"{name}.txt"))]
    need(top / "images")
    trimaps = first(top / "annotations" / "trimaps")
    labels = ("cat", "dog") if classes == "species" else breeds(lines)
    entries = []
    for stem, breed, species in lines:
        path = None if trimaps is None else trimaps / f"{stem}.png"
        entries.append(
            Entry(
                name=stem,
                picture=top / "images" / f"{stem}.jpg",
                label=species if classes == "species" else breed,
                boxes=None if path is None else lazily(boxes, path),
                mask=None if path is None else lazily(mask, path, EDGE[edge]),
            )
        )
    return Found(entries, labels, ["no trimaps, so no masks and boxes"] if trimaps is None else ())


def read_list(path: Path) -> list[tuple[str, int, int]]:
    """(name, breed from 0, species from 0) of each line `Abyssinian_201 1 1 1`."""
    found = []
    for line in path.read_text(encoding="ascii").splitlines():
        words = line.split()
        if words and not line.startswith("#"):
            if len(words) != 4 or not all(w.isdigit() for w in words[1:]):
                raise DataError(f"{path}: expected `name breed species number`, but {line!r} came. Unpack it again.")
            found.append((words[0], int(words[1]) - 1, int(words[2]) - 1))
    return found


def breeds(lines: list[tuple[str, int, int]]) -> list[str]:
    names = {breed: stem.rpartition("_")[0] for stem, breed, _ in lines}
    return [names.get(i, f"breed {i}") for i in range(max(names, default=-1) + 1)]


def trimap(path: Path) -> np.ndarray:
    values = read_values(path)
    if values.ndim != 2 or not np.isin(values, (1, 2, 3)).all():
        raise DataError(f"{path} should be a trimap with the numbers 1 (animal), 2 (background), 3 (edge). Unpack it again.")
    return values


def mask(path: Path, edge: int) -> np.ndarray:
    values = trimap(path)
    return np.select([values == 1, values == 2], [OBJECT, BACKGROUND], edge).astype(np.int8)


def boxes(path: Path) -> list[tuple[float, float, float, float]]:
    return box_of(trimap(path) != 2)
