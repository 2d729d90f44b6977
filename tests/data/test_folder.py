from __future__ import annotations

import pytest

import patchlight as pl
from disk import grey, photo, square
from patchlight import data


def test_all_pictures_below_by_name_and_nothing_else(tmp_path):
    for name in ("b.jpg", "a/2.png", "a/1.png"):
        photo(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    found = data.open("folder", tmp_path)
    assert found.names == ("a/1.png", "a/2.png", "b.jpg")
    assert found[0].label is None
    assert found[0].mask is None
    assert found.labels == ()


def test_folders_are_classes_in_alphabetical_order(tmp_path):
    for name in ("dog/1.png", "cat/x/2.png", "cat/1.png"):
        photo(tmp_path / name)
    found = data.open("folder", tmp_path, labels="folders")
    assert found.labels == ("cat", "dog")
    assert [(i.name, i.label) for i in found] == [("cat/1.png", 0), ("cat/x/2.png", 0), ("dog/1.png", 1)]
    photo(tmp_path / "stray.png")
    with pytest.raises(pl.PatchlightError, match=r"but stray.png lies right in"):
        data.open("folder", tmp_path, labels="folders")


def test_masks_lie_beside_under_the_same_name(tmp_path):
    photo(tmp_path / "a" / "1.jpg")
    grey(tmp_path / "truth" / "a" / "1.png", square(8, 12, (2, 1, 5, 4), value=255))
    found = data.open("folder", tmp_path, masks="truth")
    assert found.names == ("a/1.jpg",)  # the masks are no pictures of the set
    assert (found[0].mask == square(8, 12, (2, 1, 5, 4))).all()
    with pytest.raises(pl.PatchlightError, match=r"expected masks in .*nowhere"):
        data.open("folder", tmp_path, masks="nowhere")
