"""One file = one registered method, under one name everywhere."""

from __future__ import annotations

import inspect

import pytest

from patchlight.core.layout import MISSING
from patchlight.core.registry import Cost, discover
from sources import SRC, python_files

FILES = [p for p in python_files(SRC / "methods") if p.parent.name != "methods" and p.name != "__init__.py"]
PUBLIC = [p for p in FILES if not p.name.startswith("_")]


def test_every_file_is_a_method_and_every_method_a_file():
    assert sorted(discover()) == sorted(p.stem for p in PUBLIC)


@pytest.mark.parametrize("path", PUBLIC, ids=lambda p: p.stem)
def test_file_function_registry_and_folder_agree(path):
    method = discover()[path.stem]
    assert inspect.getsourcefile(method.function) == str(path)
    assert method.function.__name__ == method.name == path.stem
    assert method.family == path.parent.name


def test_helpers_register_nothing():
    modules = {m.function.__module__.rpartition(".")[2] for m in discover().values()}
    assert not [name for name in modules if name.startswith("_")]


@pytest.mark.parametrize("name", discover())
def test_every_method_says_what_a_reader_needs(name):
    method = discover()[name]
    assert method.summary.endswith(".")
    assert method.paper
    assert method.equation
    assert set(method.needs) <= set(MISSING)
    assert isinstance(method.cost(method.resolve({})), Cost)
    assert method.returns(method.resolve({})) in ("tokens", "pixels")


@pytest.mark.parametrize("name", discover())
def test_every_setting_is_a_keyword_with_a_default_that_fits_its_type(name):
    method = discover()[name]
    parameters = list(inspect.signature(method.function).parameters.values())
    assert [p.name for p in parameters[1:]] == list(method.settings)
    for setting in method.settings.values():
        assert setting.default is not inspect.Parameter.empty
        assert setting.check(setting.default, method=name) == setting.default
        assert setting.described
