"""The tables in docs/ are made from the registry and say what it says; the README's Python runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import patchlight as pl

ROOT = Path(__file__).parents[2]


def test_the_page_of_methods_is_up_to_date():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page(), "run: python docs/tables.py"


def test_the_readme_names_every_method():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in pl.methods() if f"`{name}`" not in text]


def test_the_first_lines_of_python_in_the_readme_run(tmp_path, monkeypatch):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    code = code.replace("src/patchlight", str(ROOT / "src/patchlight"))
    exec(code, {"print": lambda *_: None})
    assert (tmp_path / "seen.png").stat().st_size > 10_000
