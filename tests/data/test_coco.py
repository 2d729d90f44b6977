from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest

import patchlight as pl
from disk import photo, square
from patchlight import data

CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}, {"id": 90, "name": "toothbrush"}]


def polygon(x0, y0, x1, y1):
    return [[x0, y0, x1, y0, x1, y1, x0, y1]]


def run_lengths(mask):
    """COCO's own: how many 0, 1, 0 ... column by column."""
    flat = mask.T.flatten()
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat, [0 if flat[-1] else 1]]))) if flat.any() else []
    counts = np.diff(np.concatenate([[0], edges, [len(flat)]])).astype(int).tolist()
    return {"size": list(mask.shape), "counts": counts}


def note(picture, category, box, **more):
    x0, y0, x1, y1 = box
    return {
        "image_id": picture,
        "category_id": category,
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "segmentation": polygon(*box),
        "iscrowd": 0,
        **more,
    }


CROWD = square(8, 12, (0, 6, 12, 8))
NOTES = [
    note(7, 17, (0, 0, 3, 3)),
    note(7, 18, (6, 0, 9, 3)),
    note(7, 18, (0, 6, 12, 8), iscrowd=1, segmentation=run_lengths(CROWD)),
    note(9, 90, (2, 2, 5, 6)),
    note(9, 90, (4, 4, 4, 6)),  # no width: there are a few of these
]


def write(root, **change):
    images = [{"id": i, "file_name": f"{i:012d}.jpg", "height": 8, "width": 12} for i in (9, 7, 8)]
    document = {"images": images, "annotations": NOTES, "categories": CATEGORIES, **change}
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return root


@pytest.fixture
def root(tmp_path):
    for i in (7, 8, 9):
        photo(tmp_path / "val2017" / f"{i:012d}.jpg")
    return write(tmp_path)


def test_a_picture_once_with_objects_of_any_class(root):
    found = data.open("coco", root)
    assert found.labels == ("cat", "dog", "toothbrush")  # in the order of COCO's numbers, without their gaps
    first, second = found
    assert (first.name, first.label, second.label) == ("000000000007.jpg", None, 2)
    assert first.boxes == ((0, 0, 3, 3), (6, 0, 9, 3))
    assert second.boxes == ((2, 2, 5, 6),)
    expected = square(8, 12, (0, 0, 3, 3)) + square(8, 12, (6, 0, 9, 3)) - CROWD
    assert (first.mask == expected).all()
    assert found.notes == ("1 pictures without any object are left out",)
    assert pickle.loads(pickle.dumps(found)).digest() == found.digest()


def test_a_picture_once_for_every_class_in_it(root):
    found = data.open("coco", root, each="class")
    assert found.names == ("000000000007.jpg/cat", "000000000007.jpg/dog", "000000000009.jpg/toothbrush")
    cat, dog, _ = found
    assert (cat.label, dog.label) == (0, 1)
    assert (cat.mask == square(8, 12, (0, 0, 3, 3))).all()
    assert (dog.mask == square(8, 12, (6, 0, 9, 3)) - CROWD).all()


def test_every_way_to_write_a_mask_is_the_same_mask(root):
    from pycocotools import mask

    wanted = square(8, 12, (2, 2, 5, 6)).astype(np.uint8)
    packed = mask.encode(np.asfortranarray(wanted))
    ways = (polygon(2, 2, 5, 6), run_lengths(wanted), {"size": [8, 12], "counts": packed["counts"].decode()})
    for way in ways:
        write(root, annotations=[note(9, 90, (2, 2, 5, 6), segmentation=way)])
        assert (data.open("coco", root)[0].mask == wanted).all()


def test_what_cannot_be_read_is_said(root, monkeypatch):
    write(root, annotations=[note(9, 90, (2, 2, 5, 6), segmentation="nonsense")])
    with pytest.raises(pl.PatchlightError, match=r"000000000009.jpg: a segmentation cannot be read"):
        data.open("coco", root)[0]
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(pl.PatchlightError, match=r"coco fills polygons: pip install"):
        data.open("coco", root)[0]
    write(root, categories=None)
    with pytest.raises(pl.PatchlightError, match=r"has no categories, so it is not COCO's list of instances"):
        data.open("coco", root)
    (root / "annotations" / "instances_val2017.json").write_text('{"images": [')
    with pytest.raises(pl.PatchlightError, match=r"is not whole JSON"):
        data.open("coco", root)
    with pytest.raises(pl.PatchlightError, match=r"instances_train2017.json, but it is not there.*cocodataset.org"):
        data.open("coco", root, split="train2017")
