from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from patchlight.core.errors import DataError
from patchlight.core.item import IGNORED
from patchlight.data._registry import Found, dataset, need
from patchlight.data._set import BACKGROUND, OBJECT, Entry, lazily

Note = Mapping[str, Any]


@dataset(
    gives=("label", "boxes", "mask"),
    licence="annotations CC BY 4.0; pictures from Flickr under Flickr's terms of use, each with a licence of its own",
    get="val2017.zip and annotations_trainval2017.zip from https://cocodataset.org",
    layout="val2017/*.jpg and annotations/instances_val2017.json",
    cite="Lin et al. 2014, Microsoft COCO: Common Objects in Context",
)
def coco(
    root: Path,
    *,
    split: str = "val2017",
    each: Literal["picture", "class"] = "picture",
) -> Found:
    """COCO pictures with masks and boxes of 80 classes; crowds are undecided, and pictures without objects are left out.

    Classes are numbered 0 to 79 in the order of COCO's own numbers, which have gaps. `each="picture"`: the mask shows objects
    of any class, and there is a label only where all are of one class. `each="class"`: a picture once for every class in it.
    Needs pycocotools (`pip install patchlight[data]`) to fill polygons as everybody does.
    """
    table = need(root / "annotations" / f"instances_{split}.json", root / f"instances_{split}.json")
    pictures = need(root / split, root / "images" / split)
    document = read(table)
    categories = sorted(document["categories"], key=lambda c: c["id"])
    numbers = {c["id"]: i for i, c in enumerate(categories)}
    grouped: dict[int, list[Note]] = defaultdict(list)
    for note in document["annotations"]:
        grouped[note["image_id"]].append(note)
    labels = [c["name"] for c in categories]
    entries = [
        entry(
            pictures,
            picture,
            [n for n in notes if wanted is None or numbers[n["category_id"]] == wanted],
            numbers,
            wanted,
            labels,
        )
        for picture in sorted(document["images"], key=lambda p: p["id"])
        if (notes := grouped.get(picture["id"]))
        for wanted in chosen(notes, numbers, each)
    ]
    empty = sum(p["id"] not in grouped for p in document["images"])
    return Found(entries, labels, [f"{empty} pictures without any object are left out"] if empty else ())


def read(table: Path) -> dict[str, Any]:
    try:
        document = json.loads(table.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{table} is not whole JSON ({error}). Unpack or fetch it again.") from error
    lacking = [k for k in ("images", "annotations", "categories") if k not in document]
    if lacking:
        raise DataError(f"{table} has no {', '.join(lacking)}, so it is not COCO's list of instances. Take instances_*.json.")
    return document


def chosen(notes: Sequence[Note], numbers: Mapping[int, int], each: str) -> Sequence[int | None]:
    """The class of each item that a picture makes; None for any class. A class that is only a crowd makes none."""
    if each == "picture":
        return [None]
    return sorted({numbers[n["category_id"]] for n in notes if not n.get("iscrowd")})


def entry(
    pictures: Path, picture: Note, notes: Sequence[Note], numbers: Mapping[int, int], wanted: int | None, labels: Sequence[str]
) -> Entry:
    found = {numbers[n["category_id"]] for n in notes}
    stem = picture["file_name"]
    return Entry(
        name=stem if wanted is None else f"{stem}/{labels[wanted]}",
        picture=pictures / stem,
        label=next(iter(found)) if len(found) == 1 else None,
        boxes=lazily(boxes_of, notes),
        mask=lazily(mask_of, notes, picture["height"], picture["width"], stem),
    )


def boxes_of(notes: Sequence[Note]) -> list[tuple[float, float, float, float]]:
    """x, y, width, height -> corners; crowds are no objects, and a few boxes of COCO have no width."""
    four = [n["bbox"] for n in notes if not n.get("iscrowd") and min(n["bbox"][2:]) > 0]
    return [(x, y, x + w, y + h) for x, y, w, h in four]


def mask_of(notes: Sequence[Note], height: int, width: int, name: str) -> np.ndarray:
    """An object wins over a crowd."""
    found = np.full((height, width), BACKGROUND, dtype=np.int8)
    for note in sorted(notes, key=lambda n: -n.get("iscrowd", 0)):
        found[filled(note["segmentation"], height, width, name)] = IGNORED if note.get("iscrowd") else OBJECT
    return found


def filled(shape: Any, height: int, width: int, name: str) -> np.ndarray:
    """Polygons, or run lengths packed or not, as yes and no."""
    try:
        from pycocotools import mask
    except ImportError as error:
        raise DataError("coco fills polygons: pip install 'patchlight[data]', which brings pycocotools.") from error
    codec: Any = mask  # its type hints know neither polygons nor unpacked run lengths
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compiled before numpy 2, it warns of itself
            return decoded(codec, shape, height, width)
    except Exception as error:  # the C code raises whatever it likes
        raise DataError(
            f"{name}: a segmentation cannot be read ({type(error).__name__}: {error}). Fetch the list again."
        ) from error


def decoded(codec: Any, shape: Any, height: int, width: int) -> np.ndarray:
    packed = shape if isinstance(shape, dict) and isinstance(shape["counts"], str | bytes) else None
    packed = packed or codec.frPyObjects(shape, height, width)
    return codec.decode(codec.merge(packed) if isinstance(packed, list) else packed).astype(bool)
