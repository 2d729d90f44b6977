"""Every metric is one file: the folder is its family, the function its name, its keyword-only parameters its settings.

The package is callable: `patchlight.metrics()` is the registry, name -> description, family, needs, better, settings, paper.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType

from patchlight.core.metric import Metric, discover_metrics


class CallablePackage(ModuleType):
    """`import patchlight.metrics` must not take the place of the function `patchlight.metrics()`."""

    def __call__(self) -> Mapping[str, Metric]:
        return discover_metrics()


sys.modules[__name__].__class__ = CallablePackage
