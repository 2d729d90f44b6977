"""Every data set is one file: its function's name is the data set's, its keyword-only parameters are its settings.

    from patchlight import data
    pets = data.open("pets", root="oxford-iiit-pet")
    pets[0].picture, pets[0].label, pets[0].mask
    pets[:100].digest()

Nothing is ever downloaded: what is not on disk is an error that says what to get and where to put it.
"""

from __future__ import annotations

from patchlight.core.item import Item as Item
from patchlight.data._registry import Kind as Kind
from patchlight.data._registry import datasets as datasets
from patchlight.data._registry import open as open
from patchlight.data._set import Broken as Broken
from patchlight.data._set import DataSet as DataSet

__all__ = ["Broken", "DataSet", "Item", "Kind", "datasets", "open"]
