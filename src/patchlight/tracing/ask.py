"""Scores and gradients at the input, for the methods that need no attention maps: fused kernels stay in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from patchlight.core.errors import without_gradient
from patchlight.core.interrupt import Stop
from patchlight.core.layout import Layout
from patchlight.core.preprocess import Preprocess
from patchlight.core.scoring import Scorer
from patchlight.core.seeds import generator, picture_seed
from patchlight.core.targets import Target
from patchlight.tracing.as_found import as_found
from patchlight.tracing.attention import HALF_SCALE, at_least_float


@dataclass(eq=False)
class Ask:
    """One batch of pictures put to a model: forward passes and gradients to the pixels, in steps that fit `batch`.

    `start` is the number of the first of them among the `count` pictures of the whole run. `scorer` is the model as a function
    of pictures, in the batch and precision that suit it; `stop` is whether the user has asked for an end.
    """

    model: nn.Module
    forward: Callable[[Tensor], Tensor]
    images: Tensor
    resolve: Callable[[Tensor], Target]
    layout: Callable[[], Layout]
    seed: int = 0
    batch: int = 16
    start: int = 0
    count: int = 1
    scorer: Scorer | None = None
    stop: Stop = field(default_factory=Stop)
    name: Callable[[int], str] = "picture {}".format
    preprocess: Preprocess | None = None
    progress: Callable[[int, int], None] = lambda _done, _total: None
    logits: Tensor | None = None
    target: Target | None = None
    error: Tensor | None = None  # the standard error of the scores, in their shape, from methods that sample
    samples: Tensor | None = None  # (b,) how many samples were taken of each picture
    kept: dict[str, Any] | None = None
    conservation: dict[str, Tensor] = field(default_factory=dict)  # (b,) for each cause, from methods that conserve
    notes: list[str] = field(default_factory=list)

    def look(self) -> tuple[Tensor, Target]:
        """Logits and target, from a forward pass unless another method already had one."""
        if self.logits is None or self.target is None:
            self.learn(self.score(self.images))
        assert self.logits is not None
        assert self.target is not None
        return self.logits, self.target

    def learn(self, logits: Tensor) -> None:
        self.logits = logits.detach()
        self.target = self.resolve(self.logits)

    def score(self, images: Tensor) -> Tensor:
        """Logits without a graph."""
        with as_found(self.model), torch.no_grad():
            return self.forward(images.detach().clone())  # some models normalise in place

    def gradient(self) -> Tensor:
        """(b, 3, H, W) gradient of the target at the pictures themselves; learns logits and target on the way."""
        return self.gradient_at(self.images, 1)

    def gradient_at(self, images: Tensor, copies: int) -> Tensor:
        """The gradient at `copies` variants of the batch, one batch after the other in `images`."""
        with as_found(self.model), torch.enable_grad(), plain_kernel(self.images):
            leaf = images.detach().clone().requires_grad_()
            logits = self.forward(leaf.clone())
            if self.target is None:
                self.learn(logits)
            assert self.target is not None
            scalar = self.target.repeat(copies).scalar(logits, "logit")
            scale = HALF_SCALE if leaf.dtype == torch.float16 else 1.0
            found = torch.autograd.grad(scalar * scale, [leaf], allow_unused=True)[0] if scalar.requires_grad else None
        if found is None:
            raise without_gradient()
        return at_least_float(found) / scale

    def gradients(self, variant: Callable[[int], Tensor], count: int) -> Iterator[Tensor]:
        """The gradient at variant(0), variant(1), ... of the whole batch, as many at once as `batch` allows."""
        self.look()
        size = self.images.shape[0]
        group = max(1, self.batch // size)
        for start in range(0, count, group):
            numbers = range(start, min(start + group, count))
            found = self.gradient_at(torch.cat([variant(k) for k in numbers]), len(numbers))
            yield from found.split(size)
            self.progress(numbers[-1] + 1, count)

    def generators(self) -> list[torch.Generator]:
        """One for each picture, from its content and the seed."""
        return [generator(image, self.seed) for image in self.images]

    @cached_property
    def seeds(self) -> Tensor:
        """(b,) int64, for numbers that are made on the device: see `core.seeds.normals`."""
        return torch.tensor([picture_seed(image, self.seed) for image in self.images], device=self.images.device)

    def keep(self, name: str, value: Tensor | list[Tensor]) -> None:
        """Store an inside of a method, if insides were asked for: (b, ...), or a list where pictures differ in shape."""
        if self.kept is not None:
            self.kept[name] = [v.detach().clone() for v in value] if isinstance(value, list) else value.detach().clone()


def plain_kernel(images: Tensor) -> AbstractContextManager[object]:
    """On a CPU the fused kernel saves 5 % of a gradient but rounds otherwise than the published codes: 1e-4 of the maximum."""
    return sdpa_kernel(SDPBackend.MATH) if images.device.type == "cpu" else nullcontext()
