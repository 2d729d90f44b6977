"""Imports go one way: core < tracing < models < methods; render knows only core; api, explanation and the like join them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sources import SRC, python_files, tree, where

MAY_KNOW = {
    "core": {"core"},
    "tracing": {"core", "tracing"},
    "models": {"core", "tracing", "models"},
    "methods": {"core", "tracing", "models", "methods"},
    "render": {"core", "render"},
    "metrics": {"core", "metrics"},
    "data": {"core", "data"},
    "viewer": {"core", "tracing", "models", "render", "viewer", "api", "doctor", "explanation", "__version__"},
}
FREE = {"cli", "web", "bench"}


def known(path: Path) -> set[str]:
    """The parts of patchlight that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{where(path, node)}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("patchlight.")}
    return found


@pytest.mark.parametrize("folder", MAY_KNOW)
def test_a_folder_imports_only_what_lies_below_it(folder):
    for path in python_files(SRC / folder):
        wrong = known(path) - MAY_KNOW[folder]
        assert not wrong, f"{where(path)} imports {sorted(wrong)}"


def test_every_folder_has_its_place_in_the_order():
    folders = {p.relative_to(SRC).parts[0] for p in python_files(SRC) if p.parent != SRC}
    assert folders <= {*MAY_KNOW, *FREE}


INSTALLS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "TorchFunctionMode")


def test_nothing_outside_tracing_installs_anything_on_a_model():
    for path in set(python_files(SRC)) - set(python_files(SRC / "tracing")):
        text = path.read_text(encoding="utf-8")
        assert not [name for name in INSTALLS if name in text], where(path)
