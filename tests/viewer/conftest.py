"""A browser and a page with real maps, made once."""

from __future__ import annotations

from importlib.resources import as_file
from pathlib import Path
from typing import Any

import pytest

import patchlight as pl
from patchlight.models.embedded import asset

METHODS = ("raw_attention", "grad_cam", "transformer_mm", "vtranm", "saliency")


@pytest.fixture(scope="session")
def pets() -> pl.Subject:
    return pl.load("pets-vit")


@pytest.fixture(scope="session")
def found(pets) -> dict[str, pl.Explanation]:
    with as_file(asset("photos")) as photos:
        return pl.compare(pets, photos / "dog.jpg", METHODS)


@pytest.fixture(scope="session")
def shown(found) -> dict[str, Any]:
    from patchlight.viewer.document import Extras, document

    return document(found, Extras())


@pytest.fixture(scope="session")
def file(shown, tmp_path_factory) -> Path:
    from patchlight.viewer.write import save_document

    return save_document(shown, tmp_path_factory.mktemp("page") / "dog.html")
