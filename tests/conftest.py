"""Shared by all tests: helpers beside this file, and the material that lies beside the repository."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks, and one process for each core: more threads only wait
sys.path.insert(0, str(HERE))  # so that tests can import tiny and open_vit in pytest's importlib mode


def pytest_configure() -> None:
    """A shell that starts a job in the background has it ignore Ctrl-C, and what it starts inherits that; tests send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Weights and golden numbers, which are read where they lie and never copied into the repository."""
    folder = Path(os.environ.get("PATCHLIGHT_SHARED", HERE.parent.parent / "shared"))
    if not (folder / "golden").is_dir():
        pytest.skip("needs the shared material: set PATCHLIGHT_SHARED, or put it as `shared` beside the repository")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all tests: Playwright runs once in a thread."""
    from browser import launched

    with launched() as found:
        yield found
