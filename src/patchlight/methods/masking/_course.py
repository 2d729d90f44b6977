"""What a training of an explainer learns from: the model with patches missing, coalitions drawn, and the loss of each stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.layout import Layout
from patchlight.core.source import Source
from patchlight.methods.masking._coalitions import drawn_sizes, of_sizes
from patchlight.methods.masking._explainer import About, Explainer, Head, efficient, make_head, pooled, sampled
from patchlight.methods.masking._without import Remove, cells, painted
from patchlight.models.subject import Subject
from patchlight.tracing.as_found import as_found, replaced
from patchlight.tracing.drop import dropped
from patchlight.tracing.tokens import last_tokens

STAGES = ("surrogate", "explainer")
MASKS = 2  # coalitions of each picture in a step of the surrogate
JUDGED = 16  # coalitions of each held-out picture
MOST_KNOWN = 2**27  # probabilities that are remembered


@dataclass(frozen=True)
class Recipe:
    """What decides the numbers of a training; an unfinished one is resumed only under the same recipe."""

    surrogate_epochs: int = 10
    epochs: int = 30
    coalitions: int = 8
    batch: int = 16
    rate: float = 1e-3
    tune: bool = True
    grid: tuple[int, int] | None = None
    remove: Remove = "drop"
    seed: int = 0

    def check(self) -> Recipe:
        least = {"surrogate_epochs": 0, "epochs": 1, "coalitions": 2, "batch": 1}
        for name, few in least.items():
            if getattr(self, name) < few:
                raise SettingError(f"train_explainer: {name} cannot be below {few}, but {getattr(self, name)} came.")
        if self.coalitions % 2:
            raise SettingError(f"train_explainer: coalitions come in pairs, but {self.coalitions} is odd.")
        if not 0 < self.rate < 1:
            raise SettingError(f"train_explainer: rate takes a number between 0 and 1, but {self.rate} came.")
        return self


@dataclass(frozen=True, eq=False)
class Batch:
    """Some pictures, by their numbers."""

    numbers: Tensor
    images: Tensor


@dataclass(eq=False)
class Course:
    """One training: the model as it is, what is learnt, and where it stands."""

    subject: Subject
    layout: Layout
    source: Source
    recipe: Recipe
    train: Tensor
    held_out: Tensor
    tuned: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # stage -> tensors that stand in for the model's
    known: dict[int, Tensor] = field(default_factory=dict)
    judged: dict[int, Tensor] = field(default_factory=dict)

    # -- the model with patches missing -------------------------------------------------------------------------------

    @property
    def grid(self) -> tuple[int, int]:
        """Of the players."""
        return self.recipe.grid or self.layout.grid

    @property
    def players(self) -> int:
        return prod(self.grid)

    @property
    def like(self) -> Tensor:
        return torch.empty(0, device=self.subject.device, dtype=self.subject.dtype)

    def batch(self, numbers: Tensor) -> Batch:
        return Batch(numbers, torch.cat([self.source.batch(i, i + 1, like=self.like) for i in numbers.tolist()]))

    def whole(self, batch: Batch) -> Tensor:
        """(b, k) probabilities of the model itself: what the shares must add up to; worked out once for each picture."""
        numbers = batch.numbers.tolist()
        if not all(n in self.known for n in numbers):
            with as_found(self.subject.model), torch.no_grad():
                found = self.subject.forward(batch.images.clone()).softmax(-1)
            if len(self.known) * found.shape[1] > MOST_KNOWN:
                return found
            self.known.update(zip(numbers, found, strict=True))
        return torch.stack([self.known[n] for n in numbers])

    def log_value(self, images: Tensor, present: Tensor) -> Tensor:
        """(b, k) log-probabilities of the surrogate that sees the players in `present` (b, n)."""
        present, model, drop = present.to(images.device), self.subject.model, self.recipe.remove == "drop"
        patches = cells(self.grid, self.layout.grid).flatten().to(images.device)
        seen = images if drop else painted(images, present, self.grid)
        missing = dropped(model, self.layout, present[:, patches]) if drop else nullcontext()
        with leaving(model), replaced(model, self.tuned["surrogate"]), missing:
            return self.subject.forward(seen.clone()).log_softmax(-1)

    def values(self, images: Tensor, coalitions: Tensor) -> Tensor:
        """(c, b, k) of coalitions (c, b, n), without a graph."""
        with torch.no_grad():
            return torch.stack([self.log_value(images, present).exp() for present in coalitions])

    @cached_property
    def nothing(self) -> Tensor:
        """(k,) what the surrogate says when every patch is missing: the same for all pictures."""
        return self.values(self.batch(self.train[:1]).images, torch.zeros(1, 1, self.players, dtype=torch.bool))[0, 0]

    # -- coalitions ---------------------------------------------------------------------------------------------------

    def generator(self, *place: int) -> torch.Generator:
        """The draws of a step depend on its place alone, so a resumed training draws what an unbroken one would have."""
        text = json.dumps([self.recipe.seed, *place]).encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1)

    def any_size(self, draw: torch.Generator, pictures: int, count: int) -> Tensor:
        """(c, b, n) of any size from none to all, of one size for the whole batch, so that no token is padded."""
        sizes = torch.randint(0, self.players + 1, (count,), generator=draw)
        return of_sizes(draw, sizes[:, None].expand(-1, pictures), self.players)

    def pairs(self, draw: torch.Generator, pictures: int, count: int) -> Tensor:
        """(c, b, n) from the Shapley kernel, each followed by its complement, of one size for the whole batch."""
        sizes = drawn_sizes(draw, count // 2, self.players)
        drawn = of_sizes(draw, sizes[:, None].expand(-1, pictures), self.players)
        return torch.stack([drawn, ~drawn], 1).flatten(0, 1)

    # -- the surrogate ------------------------------------------------------------------------------------------------

    def divergence(self, batch: Batch, coalitions: Tensor) -> Tensor:
        """mean_S KL(p(x) || v(S))"""
        whole = self.whole(batch)
        losses = [torch.nn.functional.kl_div(self.log_value(batch.images, c), whole, reduction="batchmean") for c in coalitions]
        return torch.stack(losses).mean()

    # -- the explainer ------------------------------------------------------------------------------------------------

    @cached_property
    def head(self) -> Head:
        return make_head(self.about(), self.recipe.seed).to(self.subject.device, self.subject.dtype)

    def shares(self, batch: Batch) -> Tensor:
        """(b, n, k) that add up to what the model says of the picture less `nothing`."""
        model, tuned = self.subject.model, self.tuned["explainer"]
        with leaving(model), replaced(model, tuned):
            tokens = last_tokens(model, self.subject.forward, self.layout, batch.images.clone())
        return efficient(self.head(pooled(tokens, self.layout.grid, self.grid)), self.whole(batch), self.nothing)

    def error(self, batch: Batch, coalitions: Tensor, values: Tensor) -> Tensor:
        """mean_S |v(S) - v(∅) - Σ_{i in S} φ_i|²: least squares with the Shapley kernel, which draws the coalitions.

        Only half the difference of a coalition and its complement depends on φ, as the shares add up: that is what is taken.
        """
        told = torch.einsum("cbn,bnk->cbk", coalitions.to(values), self.shares(batch))
        return halves(values - told).square().sum(-1).mean()

    def evenly(self, batch: Batch, coalitions: Tensor, values: Tensor) -> Tensor:
        """The same error when every patch gets an equal share: what an explainer must beat."""
        part = coalitions.sum(-1, keepdim=True).to(values) / self.players
        return halves(values - part * (self.whole(batch) - self.nothing)).square().sum(-1).mean()

    # -- stages -------------------------------------------------------------------------------------------------------

    def begin(self, stage: str) -> None:
        """The surrogate starts as the model, the explainer as the surrogate."""
        model, learns = self.subject.model, self.recipe.surrogate_epochs if stage == "surrogate" else self.recipe.tune
        before = self.tuned.get("surrogate", {})
        if learns:
            self.tuned[stage] = {n: before.get(n, p).detach().clone().requires_grad_() for n, p in model.named_parameters()}
        else:
            self.tuned[stage] = {n: t.detach() for n, t in before.items()}

    def end(self, stage: str) -> None:
        self.tuned[stage] = {n: t.detach() for n, t in self.tuned[stage].items()}

    def loss(self, stage: str, numbers: Tensor, draw: torch.Generator) -> Tensor:
        batch = self.batch(numbers)
        if stage == "surrogate":
            return self.divergence(batch, self.any_size(draw, len(numbers), MASKS))
        coalitions = self.pairs(draw, len(numbers), self.recipe.coalitions)
        return self.error(batch, coalitions, self.values(batch.images, coalitions))

    def judge(self, stage: str) -> float:
        """On held-out pictures, higher is better: minus the divergence, or 1 - error / error of equal shares."""
        total = torch.zeros(2, dtype=torch.float64)
        for place, numbers in enumerate(self.held_out.split(self.recipe.batch)):
            batch, draw = self.batch(numbers), self.generator(-1, place)
            with torch.no_grad():
                if stage == "surrogate":
                    part = [self.divergence(batch, self.any_size(draw, len(numbers), JUDGED))] * 2
                else:
                    coalitions = self.pairs(draw, len(numbers), JUDGED)
                    if place not in self.judged:  # the surrogate stays as it is in this stage
                        self.judged[place] = self.values(batch.images, coalitions)
                    part = [f(batch, coalitions, self.judged[place]) for f in (self.error, self.evenly)]
            total += len(numbers) * torch.stack(part).double().cpu()
        loss, even = (total / len(self.held_out)).tolist()
        return -loss if stage == "surrogate" else 1 - loss / max(even, 1e-300)

    def about(self, explained: float = float("nan")) -> About:
        batch = self.batch(self.train[:1])
        with as_found(self.subject.model), torch.no_grad():
            width = last_tokens(self.subject.model, self.subject.forward, self.layout, batch.images).shape[-1]
        heads = self.layout.trunk[-1].heads
        heads = heads if heads and width % heads == 0 else 1
        recipe, classes = asdict(self.recipe), self.whole(batch).shape[1]
        counts = len(self.train), len(self.held_out)
        about = About(self.subject.name, self.layout.size, self.layout.grid, self.grid, width, heads, classes, self.recipe.remove)
        return replace(about, recipe=recipe, pictures=counts[0], held_out=counts[1], explained=explained)

    def explainer(self, explained: float) -> Explainer:
        return Explainer(self.about(explained), self.head, self.tuned["explainer"], self.nothing, sampled(self.subject.model))


def halves(values: Tensor) -> Tensor:
    """(c, b, k) -> (c / 2, b, k): half of each coalition less its complement."""
    return (values[0::2] - values[1::2]) / 2


@contextmanager
def leaving(model: torch.nn.Module) -> Iterator[None]:
    """The model as found, with gradients for what stands in for its tensors if the caller takes gradients."""
    wanted = torch.is_grad_enabled()
    with as_found(model), torch.set_grad_enabled(wanted):
        yield
