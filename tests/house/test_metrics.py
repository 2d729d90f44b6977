"""One file = one registered metric, under one name everywhere."""

from __future__ import annotations

import inspect
import typing

import pytest

from patchlight.core import metric as contract
from patchlight.core.metric import discover_metrics
from sources import ROOT, SRC, python_files

FILES = [p for p in python_files(SRC / "metrics") if p.parent.name != "metrics" and p.name != "__init__.py"]
PUBLIC = [p for p in FILES if not p.name.startswith("_")]


def test_every_file_is_a_metric_and_every_metric_a_file():
    assert sorted(discover_metrics()) == sorted(p.stem for p in PUBLIC)


@pytest.mark.parametrize("path", PUBLIC, ids=lambda p: p.stem)
def test_file_function_registry_and_folder_agree(path):
    metric = discover_metrics()[path.stem]
    assert inspect.getsourcefile(metric.function) == str(path)
    assert metric.function.__name__ == metric.name == path.stem
    assert metric.family == path.parent.name


@pytest.mark.parametrize("name", discover_metrics())
def test_every_metric_says_what_a_reader_needs(name):
    metric = discover_metrics()[name]
    assert metric.summary.endswith(".")
    assert metric.paper
    assert metric.equation
    assert metric.better in typing.get_args(contract.Better)
    assert set(metric.needs(metric.resolve({}))) <= set(typing.get_args(contract.Need))
    assert metric.version >= 1


@pytest.mark.parametrize("name", discover_metrics())
def test_every_setting_is_a_keyword_with_a_default_that_fits_its_type(name):
    metric = discover_metrics()[name]
    parameters = list(inspect.signature(metric.function).parameters.values())
    assert [p.name for p in parameters[1:]] == list(metric.settings)
    for setting in metric.settings.values():
        assert setting.default is not inspect.Parameter.empty
        assert setting.check(setting.default, method=name) == setting.default
        assert setting.described


def test_the_pages_of_metrics_have_a_section_for_each():
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("metrics.md", "sanity-checks.md"))
    assert not [name for name in discover_metrics() if f"\n### {name}\n" not in text]
