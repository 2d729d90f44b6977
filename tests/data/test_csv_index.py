from __future__ import annotations

import numpy as np
import pytest

import patchlight as pl
from disk import grey, photo, square
from patchlight import data

HEAD = "file,label,name,boxes,split\n"


@pytest.fixture
def root(tmp_path):
    photo(tmp_path / "images" / "a.png")
    photo(tmp_path / "images" / "b.png")
    return tmp_path


def write(root, text):
    (root / "index.csv").write_text(text)
    return root


def test_every_column_is_read(root):
    write(root, HEAD + 'a.png,1,dog,"[[1, 2, 3.5, 4]]",test\nb.png,0,cat,,train\n')
    first, second = data.open("csv_index", root)
    assert (first.label, first.boxes, second.label, second.boxes) == (1, ((1, 2, 3.5, 4),), 0, ())
    assert data.open("csv_index", root).labels == ("cat", "dog")
    assert data.open("csv_index", root, split="train").names == ("b.png",)


def test_names_need_not_cover_every_number(root):
    write(root, HEAD + "a.png,2,fox,,test\nb.png,0,cat,,test\n")
    assert data.open("csv_index", root).labels == ("cat", "class 1", "fox")


def test_another_column_may_be_the_label(root):
    write(root, "file,breed\na.png,4\nb.png,\n")
    assert [i.label for i in data.open("csv_index", root)] == [None, None]
    assert [i.label for i in data.open("csv_index", root, label="breed")] == [4, None]


@pytest.mark.parametrize(
    ("values", "expected"),
    [("binary", [0, 1, 1, 1]), ("trimap", [1, 0, -1, 1]), ("void", [0, 1, -1, 1])],
)
def test_masks_are_read_as_what_they_are(root, values, expected):
    rows = {"binary": [0, 1, 200, 255], "trimap": [1, 2, 3, 1], "void": [0, 9, 255, 1]}[values]
    write(root, "file\na.png\n")
    grey(root / "masks" / "a.png", np.tile(np.repeat(rows, 3), (8, 1)))
    mask = data.open("csv_index", root, masks="masks", mask_values=values)[0].mask
    assert mask.dtype == np.int8
    assert (mask == np.tile(np.repeat(expected, 3), (8, 1))).all()


def test_a_broken_table_says_where(root):
    with pytest.raises(pl.PatchlightError, match=r"expected .*index.csv, but it is not there"):
        data.open("csv_index", root)
    write(root, "picture\na.png\n")
    with pytest.raises(pl.PatchlightError, match=r"index.csv has no column 'file'"):
        data.open("csv_index", root)
    write(root, "file,label\na.png,cat\n")
    with pytest.raises(pl.PatchlightError, match=r"'label' of a.png should hold a class number, but 'cat' came"):
        data.open("csv_index", root)
    write(root, HEAD + "a.png,1,dog,,test\n")
    with pytest.raises(pl.PatchlightError, match=r"has no row of the split 'tset'. Did you mean 'test'"):
        data.open("csv_index", root, split="tset")
    (root / "index.csv").write_bytes(b"file\n\xff\xfe\n")
    with pytest.raises(pl.PatchlightError, match=r"not a table in UTF-8 with commas"):
        data.open("csv_index", root)


def test_broken_boxes_and_masks_say_which(root):
    write(root, HEAD + 'a.png,1,dog,"[[1, 2]]",test\nb.png,1,dog,,test\n')
    with pytest.raises(pl.PatchlightError, match=r"the boxes of a.png should be"):
        data.open("csv_index", root)[0]
    photo(root / "masks" / "b.png")
    with pytest.raises(pl.PatchlightError, match=r"should be a mask of one channel, but it has 3"):
        data.open("csv_index", root, masks="masks")[1]
    grey(root / "masks" / "b.png", square(8, 12, (0, 0, 2, 2), value=9))
    with pytest.raises(pl.PatchlightError, match=r"should hold only 1, 2 and 3, but \[0, 9\] came"):
        data.open("csv_index", root, masks="masks", mask_values="trimap")[1]
