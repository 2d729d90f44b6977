"""One file = one data set, with a licence line, and its place in docs/data.md."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

from patchlight import data
from sources import ROOT, SRC, python_files

PUBLIC = [p for p in python_files(SRC / "data") if not p.name.startswith("_")]


def test_every_file_is_a_data_set_and_every_data_set_a_file():
    assert sorted(data.datasets()) == sorted(p.stem for p in PUBLIC)


@pytest.mark.parametrize("name", data.datasets())
def test_it_says_what_a_reader_needs(name):
    kind = data.datasets()[name]
    assert Path(inspect.getsourcefile(kind.function) or "").stem == kind.function.__name__ == name
    assert kind.summary.endswith(".")
    for text in (kind.licence, kind.get, kind.layout, kind.cite):
        assert text
        assert not text.endswith(".")
    parameters = list(inspect.signature(kind.function).parameters.values())
    assert [p.name for p in parameters[1:]] == list(kind.settings)
    for setting in kind.settings.values():
        assert setting.check(setting.default, method=name) == setting.default


def test_nothing_is_fetched_from_anywhere():
    words = ("urlopen", "urlretrieve", "requests", "download=True", "httpx", "hf_hub")
    assert not [p.name for p in python_files(SRC / "data") if any(w in p.read_text(encoding="utf-8") for w in words)]


def test_the_page_of_data_sets_is_up_to_date():
    spec = importlib.util.spec_from_file_location("data_tables", ROOT / "docs" / "data_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page(), "run: python docs/data_tables.py"
