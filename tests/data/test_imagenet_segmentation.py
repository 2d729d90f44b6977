from __future__ import annotations

import sys

import h5py
import numpy as np
import pytest

import patchlight as pl
from disk import square
from patchlight import data

WORDS = ("n01440764", "n00007846")  # a class of ImageNet-1k, and one that is none
SIZES = ((6, 9), (7, 5))  # height, width
rng = np.random.default_rng(0)
PICTURES = [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in SIZES]
MASKS = [square(h, w, (1, 2, 4, 5)) for h, w in SIZES]


def write(path, *, words=True, masks=MASKS):
    """As MATLAB writes a struct of cells in version 7.3: references to arrays with the axes the other way round."""
    with h5py.File(path, "w") as file:

        def cell(values, name):
            refs = np.empty((len(values), 1), dtype=h5py.ref_dtype)
            for i, value in enumerate(values):
                refs[i, 0] = file.create_dataset(f"#refs#/{name}{i}", data=value).ref
            return refs

        file.create_dataset("value/img", data=cell([p.T for p in PICTURES], "picture"), dtype=h5py.ref_dtype)
        inner = [cell([m.T.astype(np.int16)], f"mask{i}") for i, m in enumerate(masks)]
        file.create_dataset("value/gt", data=cell(inner, "gt"), dtype=h5py.ref_dtype)
        if words:
            letters = [np.array([[ord(c)] for c in w], dtype=np.uint16) for w in WORDS]
            file.create_dataset("value/target", data=cell(letters, "word"), dtype=h5py.ref_dtype)
    return path


def test_pictures_masks_and_labels(tmp_path):
    path = write(tmp_path / "gtsegs_ijcv.mat")
    found = data.open("imagenet_segmentation", tmp_path)
    assert found.names == ("00000", "00001")
    for item, picture, mask in zip(found, PICTURES, MASKS, strict=True):
        assert (np.asarray(item.picture) == picture).all()
        assert (item.mask == mask).all()
    assert [i.label for i in found] == [0, None]
    assert "1 of 2 pictures are of a class of ImageNet-1k" in found.notes[0]
    assert data.open("imagenet_segmentation", path).digest() == found.digest()  # the file may be the root


def test_minus_one_is_undecided_and_words_may_be_missing(tmp_path):
    write(tmp_path / "gtsegs_ijcv.mat", words=False, masks=[m - 1 for m in MASKS])
    first = data.open("imagenet_segmentation", tmp_path)[0]
    assert first.label is None
    assert (first.mask == np.where(MASKS[0] == 1, 0, -1)).all()


def test_another_file_is_an_error(tmp_path):
    with pytest.raises(pl.PatchlightError, match=r"expected .*gtsegs_ijcv.mat, but it is not there.*calvin-vision.net"):
        data.open("imagenet_segmentation", tmp_path)
    path = tmp_path / "gtsegs_ijcv.mat"
    path.write_bytes(b"cut off")
    with pytest.raises(pl.PatchlightError, match=r"is not HDF5 or is cut off"):
        data.open("imagenet_segmentation", tmp_path)
    with h5py.File(path, "w") as file:
        file.create_dataset("other", data=1)
    with pytest.raises(pl.PatchlightError, match=r"holds \['other'\], but a struct `value` with the field img was expected"):
        data.open("imagenet_segmentation", tmp_path)


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "gtsegs_ijcv.mat")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(pl.PatchlightError, match=r"reads a file of HDF5 by h5py: pip install 'patchlight\[data\]'"):
        data.open("imagenet_segmentation", tmp_path)
