from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from patchlight.core.errors import DataError
from patchlight.core.item import IGNORED
from patchlight.data._registry import Found, dataset, need
from patchlight.data._set import BACKGROUND, OBJECT, Broken, Entry, lazily
from patchlight.data._set import read_mask as read_values
from patchlight.data._xml import Box, read_objects

VOID = 255
CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)


@dataset(
    gives=("label", "boxes", "mask"),
    licence="pictures from Flickr under Flickr's terms of use; annotations for research",
    get="VOCtrainval_11-May-2012.tar from http://host.robots.ox.ac.uk/pascal/VOC/voc2012",
    layout="VOCdevkit/VOC2012 with JPEGImages, SegmentationClass, Annotations and ImageSets/Segmentation",
    cite="Everingham et al. 2012, The PASCAL Visual Object Classes Challenge 2012",
)
def voc(
    root: Path,
    *,
    split: Literal["val", "train", "trainval"] = "val",
    each: Literal["picture", "class"] = "picture",
) -> Found:
    """Pascal VOC 2012 with masks of 20 classes; the void border (255) is undecided, never object.

    `each="picture"`: every picture once, the mask shows objects of any class, and there is a label only where all objects are
    of one class. `each="class"`: a picture once for every class in it, with the mask and boxes of that class (the other
    classes are background); so the pointing game is played.
    """
    top = need(root / "VOCdevkit" / "VOC2012", root / "VOC2012", root / "JPEGImages")
    top = root if top.name == "JPEGImages" else top
    listed = need(top / "ImageSets" / "Segmentation" / f"{split}.txt").read_text(encoding="ascii").split()
    need(top / "JPEGImages")
    need(top / "SegmentationClass")
    entries: list[Entry] = []
    broken: list[Broken] = []
    for stem in listed:
        try:
            objects = read_objects(top / "Annotations" / f"{stem}.xml", first_pixel=1)
            entries += [entry(top, stem, objects, number) for number in chosen(objects, each)]
        except (DataError, ValueError) as error:
            broken.append(Broken(stem, str(error)))
    return Found(entries, CLASSES, broken=broken)


def chosen(objects: Sequence[tuple[str, Box]], each: str) -> Sequence[int | None]:
    """The class of each item that a picture makes; None for any class."""
    return sorted({CLASSES.index(name) for name, _ in objects}) if each == "class" else [None]


def entry(top: Path, stem: str, objects: list[tuple[str, Box]], number: int | None) -> Entry:
    found = {CLASSES.index(name) for name, _ in objects}
    boxes = [box for name, box in objects if number in (None, CLASSES.index(name))]
    return Entry(
        name=stem if number is None else f"{stem}/{CLASSES[number]}",
        picture=top / "JPEGImages" / f"{stem}.jpg",
        label=number if number is not None else next(iter(found)) if len(found) == 1 else None,
        boxes=lazily(list, boxes),
        mask=lazily(read_mask, top / "SegmentationClass" / f"{stem}.png", number),
    )


def read_mask(path: Path, number: int | None) -> np.ndarray:
    """Palette index 0 is background, 1 to 20 the classes."""
    values = read_values(path)
    if values.ndim != 2:
        raise DataError(
            f"{path} should be a PNG with a palette, as VOC has it, but its shape is {values.shape}. Unpack it again."
        )
    is_object = values > 0 if number is None else values == number + 1
    return np.select([values == VOID, is_object], [IGNORED, OBJECT], BACKGROUND).astype(np.int8)
