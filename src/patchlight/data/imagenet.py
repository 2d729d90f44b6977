from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from patchlight.core.errors import DataError
from patchlight.core.pictures import is_picture
from patchlight.data._imagenet import class_names, class_numbers
from patchlight.data._registry import Found, MissingError, dataset, first
from patchlight.data._set import Entry, lazily
from patchlight.data._xml import Box, read_objects

WNID = re.compile(r"n\d{8}")
PLACES = ("val", "ILSVRC2012_img_val", "ILSVRC/Data/CLS-LOC/val", "Data/CLS-LOC/val", "images", ".")
BOXES = ("Annotations/CLS-LOC/val", "ILSVRC/Annotations/CLS-LOC/val", "ILSVRC2012_bbox_val_v3/val", "bbox/val", "val_boxes")
TABLES = ("LOC_val_solution.csv", "boxes.csv")
TRUTH = ("ILSVRC2012_devkit_t12/data", "devkit/data", "data", ".")
NUMBERS = "ILSVRC2012_validation_ground_truth.txt"


@dataset(
    gives=("label", "boxes"),
    licence="ImageNet terms of access: non-commercial research and education only; not to be passed on",
    get="ILSVRC2012_img_val.tar with ILSVRC2012_devkit_t12.tar.gz, and for boxes ILSVRC2012_bbox_val_v3.tgz, from "
    "https://image-net.org (or the same from Kaggle: imagenet-object-localization-challenge)",
    layout="val/n01440764/*.JPEG, or val/ILSVRC2012_val_00000001.JPEG with ILSVRC2012_devkit_t12/ or LOC_val_solution.csv "
    "beside it; for boxes ILSVRC2012_bbox_val_v3/val/*.xml or LOC_val_solution.csv",
    cite="Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge",
)
def imagenet(root: Path, *, boxes: Literal["auto", "xml", "csv", "none"] = "auto") -> Found:
    """The 50,000 validation pictures of ImageNet-1k, with the boxes of the class to be found.

    Labels come from the folders (n01440764, ...), from the devkit's list of numbers (which are not those of the models: its
    meta.mat translates), or from LOC_val_solution.csv. They are numbered 0 to 999 by sorted WordNet id, as models have them.
    """
    pictures, by_folder = find_pictures(root)
    wnid_of = (lambda path: path.parent.name) if by_folder else flat_labels(root, pictures)
    boxes_of = find_boxes(root, boxes)
    numbers = class_numbers()
    entries = []
    for path in pictures:
        wnid = wnid_of(path)
        if wnid not in numbers:
            raise DataError(
                f"imagenet: {path.name} is of the class {wnid!r}, which is none of ImageNet-1k's 1,000. Check its folder."
            )
        entries.append(Entry(path.name, path, numbers[wnid], boxes=boxes_of(path.stem, wnid)))
    return Found(entries, class_names())


def find_pictures(root: Path) -> tuple[list[Path], bool]:
    """The pictures by name, and whether folders of WordNet ids hold them."""
    for place in PLACES:
        folder = root / place
        if not folder.is_dir():
            continue
        inside = sorted(folder.iterdir())
        classes = [p for p in inside if WNID.fullmatch(p.name) and p.is_dir()]
        if classes:
            return sorted((p for c in classes for p in c.iterdir() if is_picture(p)), key=lambda p: p.name), True
        flat = [p for p in inside if p.name.startswith("ILSVRC2012_val_") and is_picture(p)]
        if flat:
            return flat, False
    raise MissingError(f"expected folders such as n01440764, or files such as ILSVRC2012_val_00000001.JPEG, in {root} or val/.")


def flat_labels(root: Path, pictures: list[Path]) -> Callable[[Path], str]:
    """File -> WordNet id, for pictures that no folder sorts."""
    if table := first(*(root / t for t in TABLES[:1])):
        classes = {name: objects[0][0] for name, objects in solution(table).items()}
        return lambda path: told(classes, path, table)
    folder = next((f for t in TRUTH if (f := root / t / NUMBERS).exists()), None)
    if folder is None:
        raise MissingError(
            f"the pictures lie flat in {pictures[0].parent}, but neither {NUMBERS} nor {TABLES[0]} says their classes."
        )
    numbers = [line.strip() for line in folder.read_text(encoding="ascii").splitlines() if line.strip()]
    wnids = devkit_ids(folder.with_name("meta.mat"))
    known = {f"ILSVRC2012_val_{i + 1:08d}": wnids.get(int(n), f"number {n}") for i, n in enumerate(numbers)}
    return lambda path: told(known, path, folder)


def told(classes: Mapping[str, str], path: Path, table: Path) -> str:
    if path.stem not in classes:
        raise DataError(f"imagenet: {table} says no class for {path.name}. Take the list that belongs to these pictures.")
    return classes[path.stem]


def devkit_ids(path: Path) -> dict[int, str]:
    """ILSVRC2012_ID (1 to 1,000, in an order of its own) -> WordNet id."""
    from scipy.io import loadmat

    if not path.exists():
        raise MissingError(f"expected meta.mat beside {NUMBERS} in {path.parent}: without it the numbers mean nothing.")
    try:
        synsets = loadmat(path, squeeze_me=True)["synsets"]
        return {int(number): str(wnid) for number, wnid in zip(synsets["ILSVRC2012_ID"], synsets["WNID"], strict=True)}
    except Exception as error:  # scipy raises whatever a broken file makes it raise
        raise DataError(f"{path} cannot be read as the devkit's meta.mat ({type(error).__name__}: {error}).") from error


def find_boxes(root: Path, kind: str) -> Callable[[str, str], Callable[[], list[Box]] | None]:
    """(file stem, class) -> what reads the boxes of that class; none where there are no boxes."""
    folder = first(*(root / b for b in BOXES)) if kind in ("auto", "xml") else None
    table = first(*(root / t for t in TABLES)) if kind in ("auto", "csv") and folder is None else None
    if folder is not None:
        return lambda stem, wnid: lazily(xml_boxes, folder / f"{stem}.xml", wnid)
    if table is not None:
        known = solution(table)
        return lambda stem, wnid: lazily(list, [box for name, box in known.get(stem, []) if name == wnid])
    if kind in ("xml", "csv"):
        wanted = BOXES[2] if kind == "xml" else TABLES[0]
        raise MissingError(f"expected boxes as {kind} in {root / wanted}, but they are not there.")
    return lambda _, __: None


def xml_boxes(path: Path, wnid: str) -> list[Box]:
    return [box for name, box in read_objects(path, first_pixel=0) if name == wnid]


def solution(table: Path) -> dict[str, list[tuple[str, Box]]]:
    """`ImageId,PredictionString`: for each picture `n01440764 x0 y0 x1 y1` once or more."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        words = (row.get("PredictionString") or "").split()
        fives = [words[i : i + 5] for i in range(0, len(words), 5)]
        try:
            found[row["ImageId"]] = [(w, (float(a), float(b), float(c) + 1, float(d) + 1)) for w, a, b, c, d in fives]
        except (KeyError, ValueError) as error:
            raise DataError(
                f"{table}: expected ImageId and PredictionString with `n01440764 x0 y0 x1 y1`, but {dict(row)} came. "
                "Take Kaggle's LOC_val_solution.csv."
            ) from error
        if not fives:
            raise DataError(f"{table} names no class for {row['ImageId']}. Take Kaggle's LOC_val_solution.csv.")
    return found
