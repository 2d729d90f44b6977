from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from patchlight.core.errors import DataError
from patchlight.core.item import IGNORED
from patchlight.core.pictures import is_picture
from patchlight.data._imagenet import class_names, class_numbers
from patchlight.data._registry import Found, dataset, need
from patchlight.data._set import BACKGROUND, OBJECT, Entry, lazily
from patchlight.data._set import read_mask as read_values

UNDECIDED = 1000


@dataset(
    gives=("label", "mask"),
    licence="pictures under the ImageNet terms of access: non-commercial research only; annotations for research",
    get="your copy of ImageNet, and the scripts of https://github.com/LUSSeg/ImageNet-S (datapreparation_val.py, "
    "datapreparation_anno.sh)",
    layout="ImageNetS919/validation/n01440764/*.JPEG and ImageNetS919/validation-segmentation/n01440764/*.png",
    cite="Gao et al. 2022, Large-scale Unsupervised Semantic Segmentation",
)
def imagenet_s(root: Path, *, classes: Literal["919", "300", "50"] = "919", objects: Literal["own", "all"] = "own") -> Found:
    """ImageNet validation pictures with masks of the class: 12,419 of 919 classes, or the subsets of 300 and 50 classes.

    A mask's number is R + 256 G: 0 is no class of this set, 1000 undecided, all else the rank of the class among the sorted
    WordNet ids. `objects="own"` takes the picture's own class as the object, "all" every class that is marked in it. Five
    pairs of classes that look the same were merged by its authors, so a label may be that of the twin.
    """
    name = f"ImageNetS{classes}"
    top = root if root.name == name else need(root / name, root / "imagenet-s" / name)
    pictures, masks = need(top / "validation"), need(top / "validation-segmentation")
    ranks = {p.name: i + 1 for i, p in enumerate(sorted(q for q in pictures.iterdir() if q.is_dir()))}
    if objects == "own" and len(ranks) != int(classes):
        raise DataError(
            f"{pictures} has {len(ranks)} folders, but ImageNet-S needs all {classes}: a class's number in a mask is its rank "
            "among them. Prepare the whole set, or use objects='all'."
        )
    numbers = class_numbers()
    entries = []
    for wnid, rank in ranks.items():
        own = rank if objects == "own" else None
        for path in sorted(p for p in (pictures / wnid).iterdir() if is_picture(p)):
            mask = lazily(read_mask, masks / wnid / f"{path.stem}.png", own)
            entries.append(Entry(f"{wnid}/{path.name}", path, numbers.get(wnid), mask=mask))
    return Found(entries, class_names())


def read_mask(path: Path, own: int | None) -> np.ndarray:
    """The object is class number `own`, or any class; other classes are background then."""
    values = read_values(path)
    if values.ndim != 3 or values.shape[2] < 3:
        raise DataError(f"{path} should be an RGB mask (number = R + 256 G), but its shape is {values.shape}. Fetch it again.")
    number = values[:, :, 0] + 256 * values[:, :, 1].astype(np.int32)
    is_object = number > 0 if own is None else number == own
    return np.select([number == UNDECIDED, is_object], [IGNORED, OBJECT], BACKGROUND).astype(np.int8)
