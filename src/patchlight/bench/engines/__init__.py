"""Where shards are run. A file here is an engine: a function `run(job, shards, tell, *, workers, address)`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from patchlight.core.errors import SettingError, nearest


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def engine(name: str) -> Callable[..., Any]:
    """The engine of that name."""
    if name not in names():
        raise SettingError(f"there is no engine {name!r}.{nearest(name, names())}")
    return importlib.import_module(f"patchlight.bench.engines.{name}").run
