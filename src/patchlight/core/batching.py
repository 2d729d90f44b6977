"""Batches that fit: halved and tried again when memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from patchlight.core.errors import PatchlightError

T = TypeVar("T")


def in_batches(count: int, size: int, work: Callable[[int, int, int], T], *, note: Callable[[str], None]) -> Iterator[T]:
    """Yield work(start, stop, size) over `count` items; a size that does not fit is halved, and the smaller one is kept.

    The work gets the size as well, since it may make several variants of few pictures.
    """
    start = 0
    while start < count:
        stop = min(start + size, count)
        try:
            result = work(start, stop, size)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if size == 1:
                raise PatchlightError(
                    f"one picture at a time does not fit into memory ({str(error).splitlines()[0]}). "
                    "Use a smaller model or input size, half precision, or device='cpu'."
                ) from error
            size //= 2
        else:
            yield result
            start = stop
            continue
        # outside the except block, so that the traceback no longer holds the tensors of the failed try
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        note(f"out of memory: continued in batches of {size}")


def out_of_memory(error: BaseException) -> bool:
    """CUDA, CPU and MPS word it differently."""
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "out of memory" in text or "not enough memory" in text
