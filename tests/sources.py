"""The repository as syntax trees, for the laws of the house."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "patchlight"
TESTS = ROOT / "tests"
TRAINING = ROOT / "training"
DOCS = ROOT / "docs"


@cache
def tracked() -> tuple[Path, ...]:
    """All files of the repository that git does not ignore; in an unpacked archive, all files."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return tuple(p for line in found.stdout.splitlines() if (p := ROOT / line).is_file())
    hidden = (".venv", "__pycache__", ".git")
    return tuple(p for p in ROOT.rglob("*") if p.is_file() and not set(hidden) & set(p.parts))


def python_files(folder: Path) -> list[Path]:
    return sorted(p for p in tracked() if p.suffix == ".py" and p.is_relative_to(folder))


OLDEST = (3, 10)


@cache
def tree(path: Path) -> ast.Module:
    """Empty for a file that is no Python for the oldest version served: a law of its own says so."""
    try:
        return parsed(path)
    except SyntaxError:
        return ast.Module([], [])


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=OLDEST)


def where(path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.stmt | ast.expr) else ""
    return f"{path.relative_to(ROOT)}{line}"


def texts(node: ast.AST) -> list[str]:
    """The constant parts of all strings inside a node, in order; in an f-string those between the values."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [n.value for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))]


def words(text: str) -> list[str]:
    """Lower-case words, with the escapes of regular expressions removed."""
    return re.findall(r"\w+", re.sub(r"\\[sdwbSDWB]|\\", " ", text).lower())


def docstrings(module: ast.Module) -> set[int]:
    """The ids of the constants that document something."""
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [n.body for n in ast.walk(module) if isinstance(n, places) and n.body]
    return {id(b[0].value) for b in bodies if isinstance(b[0], ast.Expr)}


def called(node: ast.AST) -> str:
    """`pytest.mark.skipif` for a call of it."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""
