from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest
from torchvision import datasets as tv

import patchlight as pl
from patchlight import data

rng = np.random.default_rng(0)
ROWS = rng.integers(0, 256, (3, 3072), dtype=np.uint8)


def write(folder, name, document):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(pickle.dumps(document))
    return [name, hashlib.md5(path.read_bytes()).hexdigest()]


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    """Two files as they are published, with their own sums in the place of the published ones."""
    folder = tmp_path / "cifar-10-batches-py"
    test = write(folder, "test_batch", {"data": ROWS, "labels": [3, 0, 9]})
    train = write(folder, "data_batch_1", {"data": ROWS[:1], "labels": [5]})
    meta = write(folder, "batches.meta", {"label_names": [f"name {i}" for i in range(10)]})
    monkeypatch.setattr(tv.CIFAR10, "test_list", [test])
    monkeypatch.setattr(tv.CIFAR10, "train_list", [train])
    monkeypatch.setattr(tv.CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    return tmp_path


def test_cifar10_comes_through_torchvision(cifar10):
    found = data.open("cifar10", cifar10)
    assert [(i.name, i.label) for i in found] == [("test_00000", 3), ("test_00001", 0), ("test_00002", 9)]
    assert found.labels[9] == "name 9"
    assert pickle.loads(pickle.dumps(found)).digest() == found.digest()
    pixels = np.asarray(found[1].picture)
    assert (pixels == ROWS[1].reshape(3, 32, 32).transpose(1, 2, 0)).all()
    assert data.open("cifar10", cifar10 / "cifar-10-batches-py", split="train").names == ("train_00000",)


def test_cifar100_takes_the_fine_labels(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    for name in ("test", "train"):
        entry = write(folder, name, {"data": ROWS, "fine_labels": [99, 0, 5], "coarse_labels": [1, 1, 1]})
        monkeypatch.setattr(tv.CIFAR100, f"{name}_list", [entry])
    meta = write(folder, "meta", {"fine_label_names": [f"name {i}" for i in range(100)], "coarse_label_names": []})
    monkeypatch.setattr(tv.CIFAR100, "meta", {"filename": meta[0], "key": "fine_label_names", "md5": meta[1]})
    found = data.open("cifar100", tmp_path)
    assert [i.label for i in found] == [99, 0, 5]
    assert len(found.labels) == 100


def test_damage_and_absence_are_said(cifar10, tmp_path_factory):
    with pytest.raises(pl.PatchlightError, match=r"expected .*cifar-10-batches-py, but it is not there.*cifar-10-python.tar.gz"):
        data.open("cifar10", tmp_path_factory.mktemp("empty"))
    path = cifar10 / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(pl.PatchlightError, match=r"are not those that were published"):
        data.open("cifar10", cifar10)
