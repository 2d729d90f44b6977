"""Metrics find themselves as methods do: a decorator on a function, its folder its family, its keywords its settings.

A metric is a function of a `Case`, a batch of pictures with their maps, and returns what it `Found`. One that needs the model's
answer to changed pictures is a generator: it yields the `Edit`s it wants and is sent the logits (b, edits, K). All metrics
of a call are asked first, and every distinct picture is scored once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import cleandoc
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from patchlight.core.errors import SettingError, nearest
from patchlight.core.layout import Layout
from patchlight.core.registry import Setting, constant, import_all, resolved, settings_of
from patchlight.core.seeds import generator

Better = Literal["higher", "lower", "neither"]
Need = Literal["labels", "masks", "boxes", "boxes or masks", "method", "weights"]
Fill = Literal["mean", "black", "blur", "noise", "average", "linear"]
HIGH, LOW = "high", "low"


@dataclass(frozen=True)
class Edit:
    """A changed picture: the places of ranks start <= r < stop in an order are painted over.

    `order`: "high" (rank 0 is the highest score), "low" (rank 0 is the lowest), or a name the metric gave to `Case.add_order`.
    Edit() is the picture as it is.
    """

    order: str = HIGH
    start: int = 0
    stop: int = 0
    fill: str = "mean"


@dataclass(frozen=True, eq=False)
class Found:
    """What a metric says of a batch: `values` (b,), NaN where it cannot tell; `notes` says why.

    `curve` (b, s) at the places `at` (s,). `parts`: further numbers for each picture, (b, ...), of which `Metric.pool` makes
    the number of a whole data set where that is not the mean of the values.
    """

    values: Tensor
    curve: Tensor | None = None
    at: Tensor | None = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


Steps = Generator[Sequence[Edit], Tensor, Found]


@dataclass(frozen=True, eq=False)
class Case:
    """A batch of pictures with their maps; everything is in the pixels of the model's input and on the model's device.

    `pixels` are raw and signed; a map with a number that is not finite never gets here. `explained` is the class that each map is
    for, -1 where that is not known. `explain(images, target=..., seed=...)` makes maps (b, H, W) anew by the same method and
    settings, with the model as it is at that moment; None where only maps came.
    """

    images: Tensor  # (b, 3, H, W) as the model takes them
    pixels: Tensor  # (b, H, W) in float32 or better
    explained: Tensor  # (b,)
    labels: Tensor | None = None  # (b,)
    masks: Tensor | None = None  # (b, H, W) int8: 1 object, 0 background, -1 not labelled
    boxes: tuple[Tensor, ...] | None = None  # (n, 4) each
    seed: int = 0
    model: nn.Module | None = None
    explain: Callable[..., Tensor] | None = None
    score: Callable[[Tensor], Tensor] | None = None  # logits (b, K) of pictures, the model left as found
    layout: Callable[[], Layout] | None = None  # of the model at this input size
    orders: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def cells(self) -> int:
        """How many pixels a map has."""
        return self.pixels.shape[1] * self.pixels.shape[2]

    def order(self, name: str) -> Tensor:
        """(b, h, w) int32: the rank of every place. Of ties the lowest index comes first, row by row, in both directions."""
        if name not in self.orders:
            flat = self.pixels.flatten(1)
            sequence = flat.sort(dim=1, descending=name == HIGH, stable=True).indices
            self.add_order(name, ranks_of(sequence).view_as(self.pixels))
        return self.orders[name]

    def add_order(self, name: str, ranks: Tensor) -> None:
        """An order of the metric's own; coarser than the picture where (h, w) is smaller, each place a cell then."""
        self.orders[name] = ranks.to(torch.int32)

    def generators(self) -> list[torch.Generator]:
        """One for each picture, from its content and the seed."""
        return [generator(image, self.seed) for image in self.images]

    def part(self, keep: Tensor) -> Case:
        """The pictures of the given numbers."""

        def of(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[keep]

        return replace(
            self,
            images=self.images[keep],
            pixels=self.pixels[keep],
            explained=self.explained[keep],
            labels=of(self.labels),
            masks=of(self.masks),
            boxes=None if self.boxes is None else tuple(self.boxes[i] for i in keep.tolist()),
            orders={},
        )


def ranks_of(sequence: Tensor) -> Tensor:
    """(b, n) places in order -> (b, n) the rank of each place."""
    ranks = torch.empty_like(sequence, dtype=torch.int32)
    numbers = torch.arange(sequence.shape[1], dtype=torch.int32, device=sequence.device)
    return ranks.scatter_(1, sequence, numbers.expand_as(sequence))


@dataclass(frozen=True)
class Metric:
    """A metric: the function and everything that it claims about itself."""

    name: str
    function: Callable[..., Found | Steps]
    family: str
    summary: str
    description: str
    paper: str
    equation: str
    better: Better
    needs: Callable[[Mapping[str, Any]], tuple[Need, ...]]
    pool: Callable[..., Tensor] | None
    version: int
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings: the given ones checked, the others at their defaults."""
        return resolved(self.name, self.settings, given, verb="metrics")


METRICS: dict[str, Metric] = {}


def metric(
    *,
    paper: str,
    equation: str,
    better: Better,
    needs: tuple[Need, ...] | Callable[[Mapping[str, Any]], tuple[Need, ...]] = (),
    pool: Callable[..., Tensor] | None = None,
    version: int = 1,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under its own name.

    `needs` may depend on the settings. `pool(means, settings)` makes the number of a data set from the means of the parts over
    its pictures, each (r, *part) for r draws of pictures, so that an interval comes at once. Without it, or where no parts are
    found, that number is the mean of the values.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        text = cleandoc(function.__doc__ or "")
        METRICS[function.__name__] = Metric(
            name=function.__name__,
            function=function,
            family=function.__module__.split(".")[-2],
            summary=" ".join(text.split("\n\n")[0].split()),
            description=text,
            paper=paper,
            equation=equation,
            better=better,
            needs=needs if callable(needs) else constant(needs),
            pool=pool,
            version=version,
            settings=settings_of(function),
        )
        return function

    return register


@cache
def discover_metrics() -> Mapping[str, Metric]:
    """Import every file of `patchlight.metrics` (those starting with `_` are helpers) and return the registry by name."""
    import_all("patchlight.metrics")
    return MappingProxyType(dict(sorted(METRICS.items())))


def get_metric(name: str) -> Metric:
    """The metric of that name, or an error with the nearest one."""
    known = discover_metrics()
    if name not in known:
        raise SettingError(f"There is no metric {name!r}.{nearest(str(name), known)}")
    return known[name]
