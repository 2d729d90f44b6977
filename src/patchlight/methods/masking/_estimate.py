"""Means over random samples with their standard errors, and sampling that ends when these are small enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.methods.masking._variants import wide
from patchlight.tracing.ask import Ask


class Sampled(Protocol):
    """(b, ...) what was found of each picture and its standard error, and (b,) how many samples it took."""

    @property
    def count(self) -> Tensor: ...
    @property
    def mean(self) -> Tensor: ...
    @property
    def error(self) -> Tensor: ...
    @property
    def relative(self) -> Tensor: ...


@dataclass(eq=False)
class Estimate:
    """Running means (b, ...) of samples, for each picture over as many as it got."""

    total: Tensor
    squares: Tensor = field(init=False)
    count: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.squares = torch.zeros_like(self.total)
        self.count = torch.zeros(len(self.total), dtype=torch.long, device=self.total.device)

    def add(self, picture: Tensor, samples: Tensor) -> None:
        """Samples (n, ...) of the pictures (n,); sums by a product, as adding by index has no fixed order on a GPU."""
        own = (picture[None] == torch.arange(len(self.total), device=picture.device)[:, None]).to(self.total.dtype)  # (b, n)
        flat = samples.to(self.total.dtype).flatten(1)
        self.total += (own @ flat).view_as(self.total)
        self.squares += (own @ flat.square()).view_as(self.total)
        self.count += own.sum(1).long()

    @property
    def mean(self) -> Tensor:
        return self.total / self.over(self.count)

    @property
    def error(self) -> Tensor:
        """The standard error of the mean, sqrt(variance / n); infinite before the second sample."""
        n = self.over(self.count)
        spread = (self.squares / n - self.mean.square()).clamp_min(0)  # biased variance
        return torch.where(n > 1, (spread / (n - 1).clamp_min(1)).sqrt(), torch.inf)

    @property
    def relative(self) -> Tensor:
        """(b,) the error of the map: see `relative_error`."""
        return relative_error(self.mean, self.error)

    def over(self, count: Tensor) -> Tensor:
        return count.clamp_min(1).to(self.total.dtype).view(-1, *[1] * (self.total.dim() - 1))


def estimate(ask: Ask, *shape: int) -> Estimate:
    return Estimate(ask.images.new_zeros(len(ask.images), *shape, dtype=wide(ask)))


def relative_error(mean: Tensor, error: Tensor) -> Tensor:
    """(b,) root mean square of the standard error over the map, as a share of the map's range; 0 for a map without error."""
    flat, error = mean.flatten(1), error.flatten(1).square().mean(1).sqrt()
    extent = flat.amax(1) - flat.amin(1)
    return torch.where(error == 0, 0.0, error / extent)


def rounds(ask: Ask, count: int, found: Sampled, until: float | None, *, every: int) -> Iterator[tuple[list[int], int, int]]:
    """(pictures still open, start, stop) of the samples to take next; all at once where nothing ends the sampling early.

    With `until`, the error is looked at after every `every` samples, whatever the batch, so that a picture takes the same number
    of samples alone and in company.
    """
    if until is not None and not until > 0:
        raise SettingError(f"until takes a relative standard error above 0, such as 0.05, but {until} came.")
    opened = list(range(len(ask.images)))
    step = count if until is None else every
    for start in range(0, count, step):
        if not opened or ask.stop.asked:
            return
        yield opened, start, min(start + step, count)
        if until is not None:
            relative = found.relative.tolist()
            opened = [i for i in opened if not relative[i] <= until]


def report(ask: Ask, found: Sampled, *, count: int, until: float | None, unit: str = "samples") -> Tensor:
    """The mean, with error and samples handed over, and a note on every picture that was left short of what was asked for."""
    if int(found.count.min()) < 2 <= count:
        raise KeyboardInterrupt  # stopped before there was anything to keep
    ask.error, ask.samples = found.error, found.count.clone()
    tell_short(ask, found.count.tolist(), found.relative.tolist(), count=count, until=until, unit=unit)
    return found.mean


def tell_short(ask: Ask, taken: list[int], relative: list[float], *, count: int, until: float | None, unit: str) -> None:
    """A note on every picture that was left short of what was asked for."""
    for i, (done, error) in enumerate(zip(taken, relative, strict=True)):
        share, enough = f"relative standard error {error:.3g}", until is not None and error <= until
        if ask.stop.asked and done < count and not enough:
            ask.notes.append(f"{ask.name(ask.start + i)}: interrupted after {done} of {count} {unit}, {share}")
        elif until is not None and not enough:
            ask.notes.append(f"{ask.name(ask.start + i)}: {share} after all {count} {unit}, above until={until:g}")
