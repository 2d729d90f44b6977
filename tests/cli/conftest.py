"""Pictures of every kind that users have, and the commands called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from patchlight.cli import app

Run = Callable[..., Any]


@pytest.fixture
def run() -> Run:
    """`run("explain", "a.png")` -> exit_code, stdout, stderr."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Any:
        return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin, catch_exceptions=True)

    return call


@pytest.fixture
def photo(tmp_path: Path) -> Callable[..., Path]:
    """`photo("a.jpg", width=60, height=40, mode="L")` writes noise and returns its path."""

    def make(name: str, *, width: int = 60, height: int = 40, mode: str = "RGB", seed: int = 0, **options: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(path, **options)
        return path

    return make
