from __future__ import annotations

import pickle

import pytest

import patchlight as pl
from disk import grey, paletted, photo, square, voc_xml
from patchlight import data
from patchlight.data.voc import CLASSES

CAT, DOG = CLASSES.index("cat"), CLASSES.index("dog")


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "VOCdevkit" / "VOC2012"
    for stem in ("2007_000001", "2007_000002"):
        photo(top / "JPEGImages" / f"{stem}.jpg")
    voc_xml(top / "Annotations" / "2007_000001.xml", [("cat", (1, 1, 3, 3)), ("dog", (7, 1, 9, 3)), ("cat", (1, 5, 2, 6))])
    voc_xml(top / "Annotations" / "2007_000002.xml", [("dog", (2, 2, 4, 4))])
    both = (CAT + 1) * square(8, 12, (0, 0, 3, 3)) + (DOG + 1) * square(8, 12, (6, 0, 9, 3))
    both[7] = 255
    paletted(top / "SegmentationClass" / "2007_000001.png", both)
    paletted(top / "SegmentationClass" / "2007_000002.png", square(8, 12, (1, 1, 4, 4), value=DOG + 1))
    lists = top / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("2007_000001\n2007_000002\n")
    (lists / "train.txt").write_text("2007_000002\n")
    return tmp_path


def test_a_picture_once_with_objects_of_any_class(root):
    first, second = data.open("voc", root)
    assert (first.label, second.label) == (None, DOG)  # two classes, one class
    assert first.boxes == ((0, 0, 3, 3), (6, 0, 9, 3), (0, 4, 2, 6))  # pixels are counted from 1
    assert ((first.mask == 1) == (square(8, 12, (0, 0, 3, 3)) | square(8, 12, (6, 0, 9, 3))).astype(bool)).all()
    assert (first.mask[7] == -1).all()
    assert (second.mask == square(8, 12, (1, 1, 4, 4))).all()


def test_a_picture_once_for_every_class_in_it(root):
    found = data.open("voc", root, each="class")
    assert found.names == ("2007_000001/cat", "2007_000001/dog", "2007_000002/dog")
    cat = found[0]
    assert (cat.label, cat.boxes) == (CAT, ((0, 0, 3, 3), (0, 4, 2, 6)))
    assert ((cat.mask == 1) == square(8, 12, (0, 0, 3, 3)).astype(bool)).all()
    assert (cat.mask[7] == -1).all()
    assert found.labels[DOG] == "dog"
    assert pickle.loads(pickle.dumps(found)).digest() == found.digest()


def test_splits_and_roots(root):
    assert data.open("voc", root / "VOCdevkit", split="train").names == ("2007_000002",)
    assert data.open("voc", root / "VOCdevkit" / "VOC2012", split="train").names == ("2007_000002",)
    with pytest.raises(pl.PatchlightError, match=r"expected .*trainval.txt, but it is not there"):
        data.open("voc", root, split="trainval")


def test_broken_pictures_are_named_when_the_set_is_opened(root, caplog):
    top = root / "VOCdevkit" / "VOC2012"
    (top / "Annotations" / "2007_000001.xml").unlink()
    grey(top / "SegmentationClass" / "2007_000002.png", square(8, 12, (1, 1, 4, 4), value=DOG + 1))
    found = data.open("voc", root)
    assert [b.name for b in found.broken] == ["2007_000001"]
    assert "2007_000001 is skipped" in caplog.text
    assert [i.name for i in found] == ["2007_000002"]  # grey is read like a palette
    photo(top / "SegmentationClass" / "2007_000002.png")
    with pytest.raises(pl.PatchlightError, match=r"should be a PNG with a palette"):
        found[0]
