from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import patchlight as pl
from disk import grey, photo, square
from patchlight import data

WNIDS = [f"n{i:08d}" for i in range(1, 51)]
WNIDS[:2] = ["n00000001", "n01440764"]
WNIDS.sort()
OWN = WNIDS.index("n01440764") + 1  # its number in a mask


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "ImageNetS50"
    for wnid in WNIDS:
        (top / "validation" / wnid).mkdir(parents=True)
    photo(top / "validation" / "n01440764" / "ILSVRC2012_val_00000293.JPEG")
    write_mask(top, OWN * square(8, 12, (0, 0, 3, 3)) + 3 * square(8, 12, (6, 0, 9, 3)))
    return tmp_path


def write_mask(top, numbers):
    """R + 256 G, as the annotations have it."""
    numbers = numbers.copy()
    numbers[7] = 1000
    path = top / "validation-segmentation" / "n01440764" / "ILSVRC2012_val_00000293.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    rgb = np.stack([numbers % 256, numbers // 256, 0 * numbers], -1).astype(np.uint8)
    Image.fromarray(rgb).save(path)
    return path


def test_the_object_is_the_pictures_own_class(root):
    found = data.open("imagenet_s", root, classes="50")
    item = found[0]
    assert (len(found), item.name, item.label) == (1, "n01440764/ILSVRC2012_val_00000293.JPEG", 0)
    assert item.mask[:3, :3].min() == 1
    assert (item.mask == 1).sum() == 9
    assert (item.mask[7] == -1).all()


def test_or_every_class_that_is_marked(root):
    item = data.open("imagenet_s", root / "ImageNetS50", classes="50", objects="all")[0]
    assert (item.mask == 1).sum() == 18


def test_numbers_above_255_use_both_channels(root):
    write_mask(root / "ImageNetS50", square(8, 12, (0, 0, 3, 3), value=256 + OWN))
    assert (data.open("imagenet_s", root, classes="50")[0].mask == 1).sum() == 0
    assert (data.open("imagenet_s", root, classes="50", objects="all")[0].mask == 1).sum() == 9


def test_a_partial_copy_cannot_tell_the_numbers(root):
    (root / "ImageNetS50" / "validation" / WNIDS[0]).rmdir()
    with pytest.raises(pl.PatchlightError, match=r"has 49 folders, but ImageNet-S needs all 50"):
        data.open("imagenet_s", root, classes="50")
    assert len(data.open("imagenet_s", root, classes="50", objects="all")) == 1


def test_what_is_missing_or_odd_is_said(root):
    with pytest.raises(pl.PatchlightError, match=r"expected .*ImageNetS919.*datapreparation_anno"):
        data.open("imagenet_s", root)
    grey(write_mask(root / "ImageNetS50", square(8, 12, (0, 0, 3, 3))), square(8, 12, (0, 0, 3, 3)))
    with pytest.raises(pl.PatchlightError, match=r"should be an RGB mask"):
        data.open("imagenet_s", root, classes="50")[0]
