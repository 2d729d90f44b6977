from __future__ import annotations

from pathlib import Path
from typing import Literal

from patchlight.data._cifar import CITE, LICENCE, find
from patchlight.data._registry import Found, dataset


@dataset(
    gives=("label",),
    licence=LICENCE,
    get="cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked",
    layout="cifar-10-batches-py/",
    cite=CITE,
)
def cifar10(root: Path, *, split: Literal["test", "train"] = "test") -> Found:
    """CIFAR-10: 10 classes, 32 x 32 pixels; 10,000 test and 50,000 training pictures, in the files' order."""
    from torchvision.datasets import CIFAR10

    return find(CIFAR10, root, split)
