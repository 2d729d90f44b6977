"""The 1,000 classes of ImageNet-1k in the order that every library of this field uses: sorted by WordNet id."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from timm.data import ImageNetInfo  # pyright: ignore[reportPrivateImportUsage]


@cache
def class_numbers() -> Mapping[str, int]:
    """WordNet id -> 0 ... 999."""
    return MappingProxyType({wnid: i for i, wnid in enumerate(ImageNetInfo().label_names())})


@cache
def class_names() -> tuple[str, ...]:
    """The first name of each class: `tench`, `goldfish`, ..."""
    info = ImageNetInfo()
    return tuple(info.index_to_description(i).split(",")[0] for i in range(len(info.label_names())))
