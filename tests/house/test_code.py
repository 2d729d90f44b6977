"""Short files and functions, no dropped comparison, no print, nothing of one machine."""

from __future__ import annotations

import ast
import re

import pytest

from sources import DOCS, ROOT, SRC, TESTS, TRAINING, parsed, python_files, tracked, tree, where

EVERY = [path for folder in (SRC, TESTS, TRAINING, DOCS) for path in python_files(folder)]
LINES, FUNCTION = 400, 60
ANSWERS = {"equal", "allclose", "isclose", "array_equal", "array_equiv", "is_same_size"}


@pytest.mark.parametrize("path", EVERY, ids=where)
def test_a_file_is_python_for_the_oldest_version_served(path):
    assert isinstance(parsed(path), ast.Module)


@pytest.mark.parametrize("path", EVERY, ids=where)
def test_a_file_is_read_in_one_sitting(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES


@pytest.mark.parametrize("path", EVERY, ids=where)
def test_a_function_fits_on_a_screen(path):
    functions = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [f"{where(path, f)} {f.name}" for f in functions if (f.end_lineno or 0) - f.lineno + 1 > FUNCTION]
    assert not long


def answers(node: ast.expr) -> bool:
    """An expression that says yes or no, and does nothing else."""
    if isinstance(node, ast.Compare | ast.BoolOp):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ANSWERS or (name in ("all", "any") and not node.args)
    return False


@pytest.mark.parametrize("path", EVERY, ids=where)
def test_no_comparison_is_dropped(path):
    dropped = [n for n in ast.walk(tree(path)) if isinstance(n, ast.Expr) and answers(n.value)]
    assert not [where(path, n) for n in dropped]


@pytest.mark.parametrize("statement", ["a == b", "torch.equal(a, b)", "not a", "a < b or c", "(a == b).all()"])
def test_the_law_sees_a_dropped_comparison(statement):
    (found,) = ast.parse(statement).body
    assert isinstance(found, ast.Expr)
    assert answers(found.value)


@pytest.mark.parametrize("path", [*python_files(SRC), *python_files(TRAINING)], ids=where)
def test_the_package_prints_nothing_by_itself(path):
    calls = [n for n in ast.walk(tree(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert not [where(path, c) for c in calls if c.func.id == "print"]


@pytest.mark.parametrize("path", python_files(TESTS), ids=where)
def test_every_expected_error_is_matched_by_its_message(path):
    raises = [n for n in ast.walk(tree(path)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "pytest.raises"]
    assert not [where(path, n) for n in raises if "match" not in {k.arg for k in n.keywords}]


# split, so that this file does not name what it forbids
HERE_ONLY = re.compile("|".join(("/wo" + "rk/", "/ho" + "me/[a-z]", "/Us" + "ers/[a-z]", "/ro" + "ot/", r"[A-Z]:\\" + "Users")))
REGISTRY = re.compile("|".join(("index-" + "url", "extra-" + "index", "artifact" + "ory", "jf" + "rog", r"\.inter" + r"nal\b")))
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".cfg", ".txt", ".sh", ".html", ".js", ".css", ".json", ".svg", ""}


def test_no_file_names_a_place_on_one_machine_or_a_registry():
    for path in tracked():
        if path.suffix in TEXT and path.name not in ("LICENSE", "uv.lock"):
            text = path.read_text(encoding="utf-8", errors="replace")
            for line, content in enumerate(text.splitlines(), 1):
                assert not HERE_ONLY.search(content), f"{path.relative_to(ROOT)}:{line}"
                assert not REGISTRY.search(content), f"{path.relative_to(ROOT)}:{line}"


def test_the_wheel_stays_under_30_megabytes():
    """Weights and photos hardly compress, so the files tell; the wheel has 21.4 MB."""
    assert sum(p.stat().st_size for p in tracked() if p.is_relative_to(SRC)) < 30e6
