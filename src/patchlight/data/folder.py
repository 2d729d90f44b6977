from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from patchlight.core.errors import DataError
from patchlight.core.pictures import is_picture
from patchlight.data._registry import Found, MissingError, dataset
from patchlight.data._set import BACKGROUND, OBJECT, Entry, lazily, read_mask


@dataset(
    gives=("label", "mask"),
    licence="as the pictures' owners say",
    get="any pictures",
    layout="pictures, in folders or not; for labels one folder for each class",
    cite="none",
)
def folder(root: Path, *, labels: Literal["none", "folders"] = "none", masks: str | None = None) -> Found:
    """All pictures of a folder and of everything below it, by name.

    `labels="folders"`: the folders right below the root are the classes, numbered in alphabetical order. `masks` is a folder
    (absolute, or below the root) with a PNG of the same relative name for each picture: zero is background, all else object.
    Pictures are turned as their EXIF says, unless they have masks.
    """
    beside = None if masks is None else root / masks
    if beside is not None and not beside.is_dir():
        raise MissingError(f"expected masks in {beside}, but it is not there.")
    paths = sorted(p for p in root.rglob("*") if is_picture(p) and p.is_file() and (beside is None or beside not in p.parents))
    classes = sorted({p.relative_to(root).parts[0] for p in paths if p.parent != root}) if labels == "folders" else []
    stray = next((p for p in paths if p.parent == root), None) if classes or labels == "folders" else None
    if stray is not None:
        raise DataError(
            f"folder: labels='folders' takes the class from the folder, but {stray.name} lies right in {root}. "
            "Move it into the folder of its class."
        )
    entries = []
    for path in paths:
        relative = path.relative_to(root)
        label = classes.index(relative.parts[0]) if classes else None
        mask = None if beside is None else lazily(binary, beside / relative.with_suffix(".png"))
        entries.append(Entry(relative.as_posix(), path, label, mask=mask, upright=beside is None))
    return Found(entries, classes)


def binary(path: Path) -> np.ndarray:
    values = read_mask(path)
    values = values.max(-1) if values.ndim == 3 else values
    return np.where(values > 0, OBJECT, BACKGROUND).astype(np.int8)
