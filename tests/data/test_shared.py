"""The real pictures that lie beside the repository."""

from __future__ import annotations

import numpy as np

from patchlight import data


def test_cifar10_pictures(shared):
    found = data.open("csv_index", shared / "data" / "cifar10")
    assert (len(found), found.labels[0], found.labels[9]) == (1000, "airplane", "truck")
    assert np.bincount([e.label for e in found.entries]).tolist() == [100] * 10
    assert found[::50].check() == ()
    assert found[0].picture.size == (32, 32)


def test_imagenet_pictures_with_boxes(shared):
    found = data.open("csv_index", shared / "data" / "imagenet_val")
    assert sorted(e.label for e in found.entries) == list(range(1000))
    few = found.sample(40)
    assert few.check() == ()
    assert all(item.boxes for item in few)


def test_pets_with_trimaps(shared):
    settings = {"label": "breed", "masks": "trimaps", "mask_values": "trimap", "split": "test"}
    found = data.open("csv_index", shared / "data" / "pets", **settings)
    assert len(found) == 1000
    few = found.sample(60)
    items = list(few)
    assert few.broken == []
    shares = [(i.mask == 1).sum() / (i.mask >= 0).sum() for i in items]
    assert 0.2 < np.mean(shares) < 0.6
    assert {i.label for i in items} <= set(range(37))
