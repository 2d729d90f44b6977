"""CIFAR as torchvision reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from patchlight.core.errors import DataError
from patchlight.data._registry import Found, MissingError
from patchlight.data._set import Entry, lazily

LICENCE = "none stated by its authors; for research, with the report cited"
CITE = "Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images"


def find(reader: Any, root: Path, split: str) -> Found:
    """All pictures of a split, 32 x 32; the files are checked against their published sums."""
    top = root if (root / reader.base_folder).is_dir() else root.parent if root.name == reader.base_folder else root
    if not (top / reader.base_folder).is_dir():
        raise MissingError(f"expected {top / reader.base_folder}, but it is not there.")
    try:
        read = reader(str(top), train=split == "train", download=False)
    except RuntimeError as error:
        raise DataError(
            f"the files in {top / reader.base_folder} are not those that were published ({str(error).splitlines()[0]}). "
            "Unpack or fetch the archive again."
        ) from error
    pairs = zip(read.data, read.targets, strict=True)
    entries = [Entry(f"{split}_{i:05d}", lazily(Image.fromarray, rows), int(label)) for i, (rows, label) in enumerate(pairs)]
    return Found(entries, read.classes)
