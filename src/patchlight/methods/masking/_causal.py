"""ViT-CX's causal scores: what a mask does to the score, with the effect of the noise in the hidden part taken off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.seeds import mixed, normals
from patchlight.methods.masking._coverage import Sums, add_up, noise_error, sampling_error, shown_mean, similarity
from patchlight.methods.masking._estimate import relative_error, tell_short
from patchlight.methods.masking._variants import Make, Score, each_variant, every_pair, whole, wide
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask

OVERDETERMINED = 0.9  # the paper's word for a picture whose masks score more than that on average
STEP = 0x2545F491  # keeps the noise of neighbouring masks apart; any odd number does


@dataclass(frozen=True, eq=False)
class Masks:
    """`make` of (picture (n,), number (n,)) gives masks (n, H, W); there are `counts` of each picture."""

    make: Make
    counts: Sequence[int]
    random: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """Masks put to a model: s_i = y(x ⊙ M_i + ε_i) - y(x + ε_i) + y(x), ε_i = σ Z_i (1 - M_i).

    `sigma` (3, 1, 1) is in normalised units. Without `debias`, and without noise, s_i = y(x ⊙ M_i), one forward pass.
    """

    ask: Ask
    masks: Masks
    sigma: Tensor
    debias: bool
    score: Score
    given: Tensor | None = None

    def __post_init__(self) -> None:
        counts, size = self.masks.counts, tuple(self.ask.images.shape[1:])
        if self.given is None:
            return
        shape, whole_run = tuple(self.given.shape), self.ask.count
        if (
            shape[-3:] != size
            or len(shape) not in (4, 5)
            or any(shape[-4] != k for k in counts)
            or (len(shape) == 5 and shape[0] != whole_run)
        ):
            raise SettingError(
                f"vit_cx: noise takes (K, {', '.join(map(str, size))}), or that for each picture, with K = {sorted(set(counts))} "
                f"masks, but {shape} came."
            )

    @property
    def noisy(self) -> bool:
        return self.debias and bool((self.sigma > 0).any())

    def scores(self, opened: Sequence[int], draw: int) -> Tensor | None:
        """(b, K) with zeros behind the masks of a picture; None when the user stopped it."""
        ask, times = self.ask, 2 if self.noisy else 1
        most = max(self.masks.counts)
        values = ask.images.new_zeros(len(ask.images), most * times, dtype=wide(ask))

        def use(picture: Tensor, number: Tensor, value: Tensor) -> None:
            values[picture, number] = value.to(values.dtype)

        def make(picture: Tensor, number: Tensor) -> Tensor:
            mask, image = self.masks.make(picture, number)[:, None].to(ask.images.dtype), ask.images[picture]
            if not self.noisy:
                return image * mask
            noise = self.noise(picture, number, draw) * (1 - mask)
            return torch.stack([image * mask + noise, image + noise], 1)

        items = every_pair(ask, self.masks.counts, pictures=opened)
        if each_variant(ask, items, make, use, score=self.score, times=times) < times * len(items[0]):
            return None
        if not self.noisy:
            return values
        masked, noised = values.unflatten(1, (most, 2)).unbind(2)
        there = torch.arange(most, device=values.device) < torch.tensor(self.masks.counts, device=values.device)[:, None]
        return (masked - noised + whole(ask, score=self.score).to(values)[:, None]) * there

    def noise(self, picture: Tensor, number: Tensor, draw: int) -> Tensor:
        """σ Z (n, 3, H, W): given, or each mask's own numbers of the picture's seed."""
        images, sigma = self.ask.images, self.sigma.to(self.ask.images)
        if self.given is None:
            counts = torch.tensor(self.masks.counts, device=picture.device)  # a picture's own: others must not shift its noise
            seeds = mixed(self.ask.seeds)[picture] + (number + draw * counts[picture]) * STEP
            return sigma * normals(seeds, tuple(images.shape[1:]), images.dtype)
        first, b = self.ask.start, len(images)  # of the run
        given = self.given[first : first + b] if self.given.dim() == 5 else self.given.expand(b, *self.given.shape)
        return sigma * given[picture.to(given.device), number.to(given.device)].to(images)


@dataclass(eq=False)
class Draws:
    """Mean score of each mask over noise drawn again and again, and the variance of that mean."""

    total: Tensor
    squares: Tensor = field(init=False)
    count: Tensor = field(init=False)  # (b,)

    def __post_init__(self) -> None:
        self.squares = torch.zeros_like(self.total)
        self.count = self.total.new_zeros(len(self.total))

    def add(self, scores: Tensor, opened: Sequence[int]) -> None:
        there = torch.zeros_like(self.count)
        there[list(opened)] = 1
        self.total += scores * there[:, None]
        self.squares += scores.square() * there[:, None]
        self.count += there

    @property
    def mean(self) -> Tensor:
        return self.total / self.count[:, None]

    @property
    def variance(self) -> Tensor:
        """(b, K) of the mean; 0 where there was one draw, which tells nothing of it."""
        n = self.count[:, None]
        return (self.squares / n - self.mean.square()).clamp_min(0) / (n - 1).clamp_min(1)


def causal_map(trial: Trial, *, draws: int, until: float | None, coverage: bool) -> Tensor:
    """(b, H, W) the map from the mean scores over draws of noise, its error and insides handed over."""
    ask, counts = trial.ask, trial.masks.counts
    found = Draws(ask.images.new_zeros(len(counts), max(counts), dtype=wide(ask)))
    opened, relative = list(range(len(counts))), [inf] * len(counts)
    for draw in range(draws):
        if not opened or (one := trial.scores(opened, draw)) is None:
            break
        found.add(one, opened)
        if until is not None and draw:
            relative = relative_error(*assembled(trial, found, coverage=coverage)[:2]).tolist()
            opened = [i for i in opened if not relative[i] <= until]
    if not found.count.min():
        raise KeyboardInterrupt  # stopped before there was anything to keep
    scores, error, sums = assembled(trial, found, coverage=coverage)
    if trial.masks.random or found.count.min() > 1:
        ask.error = error
        relative = relative_error(scores, error).tolist()
    taken = found.count.long()
    ask.samples = taken * torch.tensor(counts, device=taken.device) * (2 if trial.noisy else 1)
    tell_short(ask, taken.tolist(), relative, count=draws, until=until, unit="draws")
    if ask.kept is not None:
        keep_insides(trial, found.mean, sums)
    return scores


def assembled(trial: Trial, found: Draws, *, coverage: bool) -> tuple[Tensor, Tensor, Sums]:
    """The map, its standard error, and the sums that they are made of."""
    counts = trial.masks.counts
    total = torch.tensor(counts, device=found.total.device)[:, None, None].to(found.total)
    with no_autocast(trial.ask.images):
        sums = add_up(trial.ask, trial.masks.make, counts, found.mean, found.variance)
        error = (sampling_error if trial.masks.random else noise_error)(sums, total, coverage=coverage)
        return shown_mean(sums, total) if coverage else sums.scored, error, sums


def keep_insides(trial: Trial, impact: Tensor, sums: Sums) -> None:
    """Masks, their scores with mean and variance, coverage and similarity; many random masks are not held."""
    ask, counts = trial.ask, trial.masks.counts
    own = [row[:k] for row, k in zip(impact, counts, strict=True)]
    mean = torch.stack([row.mean() for row in own])
    total = torch.tensor(counts, device=impact.device).to(impact)
    ask.keep("impact", own)
    ask.keep("impact mean", mean)
    ask.keep("impact variance", torch.stack([row.var(correction=0) for row in own]))
    ask.keep("overdetermined", mean > OVERDETERMINED)
    ask.keep("coverage", sums.shown / total[:, None, None])
    ask.keep("mask similarity", similarity(sums, total))
    if not trial.masks.random:
        numbers = [torch.arange(k, device=impact.device) for k in counts]
        ask.keep("masks", [trial.masks.make(torch.full_like(n, i), n) for i, n in enumerate(numbers)])


def sigma_of(ask: Ask, sigma: float, unit: str) -> Tensor:
    """(3, 1, 1) in normalised units; `raw`: of pixels from 0 to 1, which the preprocessing divides by its std."""
    if not sigma >= 0:
        raise SettingError(f"vit_cx: sigma takes 0 or more, but {sigma} came.")
    if unit == "normalised":
        return torch.full((3, 1, 1), sigma)
    assert ask.preprocess is not None
    return sigma / torch.tensor(ask.preprocess.std)[:, None, None]
