"""Every method is one file: the folder is its family, the function its name, its keyword-only parameters its settings.

The package is callable: `patchlight.methods()` is the registry, name -> description, family, needs, settings, paper, equation.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType

from patchlight.core.registry import Method, discover


class CallablePackage(ModuleType):
    """`import patchlight.methods` must not take the place of the function `patchlight.methods()`."""

    def __call__(self) -> Mapping[str, Method]:
        return discover()


sys.modules[__name__].__class__ = CallablePackage
