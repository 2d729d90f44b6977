from __future__ import annotations

from pathlib import Path
from typing import Literal

from patchlight.data._cifar import CITE, LICENCE, find
from patchlight.data._registry import Found, dataset


@dataset(
    gives=("label",),
    licence=LICENCE,
    get="cifar-100-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked",
    layout="cifar-100-python/",
    cite=CITE,
)
def cifar100(root: Path, *, split: Literal["test", "train"] = "test") -> Found:
    """CIFAR-100: 100 classes, 32 x 32 pixels; 10,000 test and 50,000 training pictures, in the files' order."""
    from torchvision.datasets import CIFAR100

    return find(CIFAR100, root, split)
