"""`score(images) -> (b, k)`: all that masking methods and faithfulness metrics know of a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch import Tensor

from patchlight.core.batching import out_of_memory
from patchlight.core.errors import PatchlightError

Make = Callable[[int, int], Tensor]
FIRST: Mapping[str, int] = MappingProxyType({"cuda": 64, "mps": 16, "cpu": 8})
MOST: Mapping[str, int] = MappingProxyType({"cuda": 1024, "mps": 128, "cpu": 8})  # a CPU is as fast at 8 as at 64: measured
GAIN = 1.05  # a batch twice as large must score at least 5 % more pictures a second


@dataclass(eq=False)
class Scorer:
    """Scores pictures in the batch that suits model and device, which the first batches of real work find out.

    `fixed` is a batch that the caller wants: then the same call gives the same numbers to the bit, as it always does on a CPU.
    `sizes` remembers what was found: (shape of a picture, precision) -> batch. `half` is a precision for autocast.
    """

    function: Callable[[Tensor], Tensor]
    device: torch.device
    dtype: torch.dtype
    fixed: int | None = None
    half: torch.dtype | None = None
    sizes: dict[tuple[object, ...], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __call__(self, images: Tensor) -> Tensor:
        """Logits (b, k) without a graph."""
        cast = nullcontext() if self.half is None else torch.autocast(self.device.type, self.half)
        with torch.no_grad(), cast:
            return self.function(images)

    def in_batches_of(self, size: int | None) -> Scorer:
        return self if size is None else replace(self, fixed=size)

    def stream(self, make: Make, count: int) -> Iterator[tuple[int, int, Tensor]]:
        """(start, stop, logits) for the pictures make(start, stop), which exist one batch at a time, in order from 0 to count."""
        start, search = 0, Search(self)
        while start < count:
            stop = min(start + search.size, count)
            began = time.perf_counter()
            try:
                images = make(start, stop)
                search.at(images)
                logits = self(images)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                if search.size == 1:
                    raise PatchlightError(
                        f"scoring a single picture ran out of memory ({str(error).splitlines()[0]}). "
                        "Use a smaller model or input size, half precision, or device='cpu'."
                    ) from error
            else:
                search.learn(stop - start, began)
                yield start, stop, logits
                start = stop
                continue
            # outside the except block, so that the traceback no longer holds the tensors of the failed try
            search.halve()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.notes.append(f"out of memory: scored in batches of {search.size}")


class Search:
    """Doubles the batch while that pays, then keeps the best."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.key = scorer, ()
        self.size = scorer.fixed or FIRST.get(scorer.device.type, 4)
        self.settled = scorer.fixed is not None or scorer.device.type == "cpu"
        self.rate = 0.0

    def at(self, images: Tensor) -> None:
        """What was found before for pictures like these; it holds from the next batch on."""
        if not self.key:
            self.key = (*images.shape[1:], images.dtype, torch.is_autocast_enabled(images.device.type), self.scorer.half)
            if self.scorer.fixed is None and self.key in self.scorer.sizes:
                self.size, self.settled = self.scorer.sizes[self.key], True

    def learn(self, done: int, began: float) -> None:
        if self.settled or done < self.size:
            return
        if self.scorer.device.type == "cuda":
            torch.cuda.synchronize(self.scorer.device)
        rate = done / (time.perf_counter() - began)
        if rate < GAIN * self.rate:
            self.settle(self.size // 2)
        elif self.size * 2 > MOST.get(self.scorer.device.type, 64):
            self.settle(self.size)
        else:
            self.rate, self.size = rate, self.size * 2

    def halve(self) -> None:
        self.settle(max(1, self.size // 2))

    def settle(self, size: int) -> None:
        self.size, self.settled = size, True
        if self.scorer.fixed is None:
            self.scorer.sizes[self.key] = size
