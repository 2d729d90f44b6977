from __future__ import annotations

import numpy as np
import pytest

import patchlight as pl
from disk import grey, photo, square
from patchlight import data

TRIMAP = square(8, 12, (2, 1, 7, 6), value=3, rest=2) - 2 * square(8, 12, (3, 2, 6, 5))  # 1 within 3 within 2


@pytest.fixture
def root(tmp_path):
    for stem in ("Abyssinian_201", "yorkshire_terrier_93", "american_bulldog_1"):
        photo(tmp_path / "images" / f"{stem}.jpg")
        grey(tmp_path / "annotations" / "trimaps" / f"{stem}.png", TRIMAP)
    lists = tmp_path / "annotations"
    (lists / "test.txt").write_text("Abyssinian_201 1 1 1\nyorkshire_terrier_93 37 2 25\n")
    (lists / "trainval.txt").write_text("#Image CLASS-ID SPECIES BREED ID\namerican_bulldog_1 2 2 1\n")
    return tmp_path


def test_breeds_masks_and_boxes(root):
    found = data.open("pets", root)
    assert [(i.name, i.label) for i in found] == [("Abyssinian_201", 0), ("yorkshire_terrier_93", 36)]
    assert (found.labels[0], found.labels[1], found.labels[36]) == ("Abyssinian", "breed 1", "yorkshire_terrier")
    assert found[0].boxes == ((2, 1, 7, 6),)
    assert (found[0].mask == np.select([TRIMAP == 1, TRIMAP == 2], [1, 0], -1)).all()


@pytest.mark.parametrize(("edge", "size"), [("ignored", 9), ("animal", 25), ("background", 9)])
def test_the_edge_counts_as_said(root, edge, size):
    mask = data.open("pets", root, edge=edge)[0].mask
    assert (mask == 1).sum() == size
    assert (mask == -1).any() == (edge == "ignored")


def test_splits_species_and_torchvisions_folder(root, tmp_path_factory):
    assert data.open("pets", root, split="all").names[0] == "american_bulldog_1"
    found = data.open("pets", root, classes="species")
    assert ([i.label for i in found], found.labels) == ([0, 1], ("cat", "dog"))
    place = tmp_path_factory.mktemp("torchvision")
    (place / "oxford-iiit-pet").symlink_to(root)
    assert len(data.open("pets", place)) == 2


def test_what_is_missing_or_odd_is_said(root):
    grey(root / "annotations" / "trimaps" / "Abyssinian_201.png", TRIMAP * 0)
    with pytest.raises(pl.PatchlightError, match=r"should be a trimap with the numbers 1"):
        data.open("pets", root)[0]
    (root / "annotations" / "trimaps").rename(root / "elsewhere")
    found = data.open("pets", root)
    assert (found[0].mask, found[0].boxes) == (None, ())
    assert found.notes == ("no trimaps, so no masks and boxes",)
    (root / "annotations" / "test.txt").write_text("Abyssinian_201 one\n")
    with pytest.raises(pl.PatchlightError, match=r"expected `name breed species number`"):
        data.open("pets", root)
