from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from patchlight.core.errors import DataError
from patchlight.core.item import IGNORED
from patchlight.data._imagenet import class_names, class_numbers
from patchlight.data._registry import Found, dataset, need
from patchlight.data._set import BACKGROUND, OBJECT, Entry, lazily

FILE = "gtsegs_ijcv.mat"


@dataset(
    gives=("label", "mask"),
    licence="pictures under the ImageNet terms of access: non-commercial research only; masks for research",
    get=f"{FILE} (4,276 pictures) from http://calvin-vision.net/bigstuff/proj-imagenet/data/{FILE}",
    layout=FILE,
    cite="Guillaumin et al. 2014, ImageNet Auto-Annotation with Segmentation Propagation",
)
def imagenet_segmentation(root: Path) -> Found:
    """The ImageNet pictures with a mask drawn by hand that Transformer Attribution and most papers since were measured on.

    The label is that of ImageNet-1k where the picture's class is one of it; the classes of this set are older and many are
    not. Needs h5py (`pip install patchlight[data]`): the file is MATLAB 7.3, which is HDF5.
    """
    path = root if root.is_file() else need(root / FILE)
    with opened(path) as file:
        count = len(fetch(file, path, "img"))
        wnids = [word(file, "target", i) for i in range(count)] if "target" in file["value"] else [""] * count
    numbers = class_numbers()
    entries = [
        Entry(f"{i:05d}", lazily(read_picture, path, i), numbers.get(wnid), mask=lazily(read_mask, path, i))
        for i, wnid in enumerate(wnids)
    ]
    known = sum(w in numbers for w in wnids)
    return Found(entries, class_names(), [f"{known} of {count} pictures are of a class of ImageNet-1k; the others have no label"])


def opened(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DataError("imagenet_segmentation reads a file of HDF5 by h5py: pip install 'patchlight[data]'.") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is not HDF5 or is cut off ({error}). Fetch it again.") from error


def fetch(file: Any, path: Path, name: str) -> Any:
    if "value" not in file or name not in file["value"]:
        raise DataError(f"{path} holds {sorted(file)}, but a struct `value` with the field {name} was expected. Is it {FILE}?")
    return file["value"][name]


def word(file: Any, name: str, index: int) -> str:
    """MATLAB keeps a word as numbers of characters."""
    return "".join(map(chr, np.asarray(file[file["value"][name][index, 0]]).flatten()))


def read_picture(path: Path, index: int) -> Image.Image:
    with opened(path) as file:
        values = np.asarray(file[fetch(file, path, "img")[index, 0]])  # (3, w, h): MATLAB stores columns first
    return Image.fromarray(np.ascontiguousarray(values.T))


def read_mask(path: Path, index: int) -> np.ndarray:
    """Each picture has a cell of masks; the first one counts, as in the published protocol. -1 is undecided there too."""
    with opened(path) as file:
        cell = file[fetch(file, path, "gt")[index, 0]]
        values = np.asarray(file[cell[0, 0]]).T.astype(np.int32)
    return np.select([values == 0, values < 0], [BACKGROUND, IGNORED], OBJECT).astype(np.int8)
