"""One forward pass, as many backward passes as there are objectives, and every method fed block by block.

A trace method is a generator: it is sent the blocks from the last to the first, as their gradients arrive, then None,
and returns its scores. So maps and gradients are dropped as they are used up, and methods share the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.errors import TraceError
from patchlight.core.layout import Layout
from patchlight.core.registry import Objective, Taps
from patchlight.core.targets import Target
from patchlight.tracing.as_found import as_found
from patchlight.tracing.attention import HALF_SCALE, Fused, at_least_float
from patchlight.tracing.seen import Seen, as_tokens
from patchlight.tracing.watch import Watch

Steps = Generator[None, Seen | None, Tensor]


@dataclass
class Recorder:
    """The sink of a traced forward pass; later the place where gradients arrive."""

    layout: Layout
    taps: Sequence[Taps]
    seen: list[Seen] = field(default_factory=list)
    current: Seen | None = None
    final: Tensor | None = None
    final_gradient: Tensor | None = None
    root: Tensor | None = None
    skipping: bool = False
    scale: float = 1.0
    arrive: Callable[[Seen, str], None] | None = None

    # -- forward ----------------------------------------------------------------------------------------------------

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        index = len(self.seen)
        if self.current is None and index < len(self.layout.blocks):
            self.current = Seen(index, self.layout.blocks[index], entering=first_tensor((args, kwargs)))
            self.seen.append(self.current)
            self.tap("entering", self.current.entering)

    def leave(self, module: nn.Module, args: Any, out: Any) -> None:  # noqa: ARG002
        if self.current is None:
            return
        self.current.leaving = first_tensor(out)
        if self.current.index == len(self.layout.trunk) - 1:
            self.tap_final(self.current.leaving)
        self.current = None

    def fused(self, call: Fused, out: Tensor) -> None:
        block = self.current
        if block is not None:
            block.calls.append(call)
            block.value = call.value
            self.saw(block, out, (call.query, call.key, call.value))

    def attention(self, scores: Tensor, weights: Tensor, value: Tensor) -> None:
        block = self.current
        if block is not None:
            block.maps.append(weights)
            block.score_maps.append(scores)
            block.value = value
            self.saw(block, weights, (scores, value))

    def saw(self, block: Seen, tapped: Tensor, sources: tuple[Tensor, ...]) -> None:
        """Wait for the gradient at the map, or at what the fused kernel made of it; mark where the skip-only pass stops."""
        self.tap("attention", tapped)
        inner = block.block.kind not in ("class", "pool")  # what reads the tokens for the head stays connected
        if inner and any(t.objective == "skip" for t in self.taps):
            for tensor in sources:
                if tensor.requires_grad:
                    tensor.register_hook(self.stop)
        if tapped.dtype == torch.float16:
            self.scale = HALF_SCALE

    def linear(self, given: Tensor, weight: Tensor, out: Tensor) -> None:  # noqa: ARG002
        block = self.current
        if block is not None and block.count and block.projection is None:
            block.projection, block.projected = weight, out

    def norm(self, given: Tensor, out: Tensor) -> None:
        block = self.current
        if block is None:
            if self.final is not None and given.shape == self.final.shape and len(self.seen) >= len(self.layout.trunk):
                self.tap_final(out)
        elif not block.count and given is block.entering:
            block.normed = out
            self.tap("normed", out)
        elif given is block.middle:
            block.normed_middle = out
        elif block.count and block.projection is None:
            block.between = True

    def add(self, left: Any, right: Any, out: Tensor) -> None:
        block = self.current
        if block is None or not block.count:
            return
        if block.middle is None and (left is block.entering or right is block.entering):
            block.middle = out
        elif block.middle is not None and (left is block.middle or right is block.middle):
            block.summed = out

    def multiply(self, left: Any, right: Any, out: Tensor) -> None:
        block = self.current
        if block is None or block.projected is None or block.middle is not None:
            return
        for scaled, gamma in ((left, right), (right, left)):
            if scaled is block.projected and isinstance(gamma, Tensor) and gamma.numel() == scaled.shape[-1]:
                block.layer_scale, block.projected = gamma, out

    def convolution(self, out: Tensor) -> None:
        pass

    def wanted(self, name: str, index: int) -> bool:
        return any(name in t.gradients and t.first <= index <= (index if t.last is None else t.last) for t in self.taps)

    def tap(self, name: str, tensor: Tensor | None) -> None:
        """Make the tensor part of a graph (the first one becomes its leaf) and wait for its gradient."""
        block = self.current
        if block is None or tensor is None or not torch.is_grad_enabled() or not self.wanted(name, block.index):
            return
        self.require(tensor)
        tensor.register_hook(partial(self.arrived, block, name))

    def tap_final(self, tensor: Tensor | None) -> None:
        self.final = tensor
        if tensor is not None and torch.is_grad_enabled() and any("final" in t.gradients for t in self.taps):
            self.require(tensor)
            tensor.register_hook(self.arrived_final)

    def require(self, tensor: Tensor) -> None:
        if not tensor.requires_grad:
            tensor.requires_grad_()
        if self.root is None:
            self.root = tensor

    # -- backward ---------------------------------------------------------------------------------------------------

    def stop(self, gradient: Tensor) -> Tensor | None:
        """The skip-only objective: nothing flows back through the scores and values of an attention."""
        return torch.zeros_like(gradient) if self.skipping else None

    def arrived(self, block: Seen, name: str, gradient: Tensor) -> None:
        block.gradients[name] = at_least_float(gradient) / self.scale
        if self.arrive is not None:
            self.arrive(block, name)

    def arrived_final(self, gradient: Tensor) -> None:
        if self.final_gradient is None:  # the latest final tensor comes first on the way back
            self.final_gradient = at_least_float(gradient) / self.scale

    def close(self) -> None:
        """Hooks hold this recorder and it holds the tensors, by way of autograd, where no collector looks: it is cut here."""
        for block in self.seen:
            block.drop()
        self.seen.clear()
        self.final = self.final_gradient = self.root = self.current = self.arrive = None


@dataclass(eq=False)
class Trace:
    """What a forward pass of one batch left behind."""

    layout: Layout
    images: Tensor
    logits: Tensor
    target: Target
    recorder: Recorder
    again: Callable[[Tensor, Sequence[Taps]], Trace]
    kept: dict[str, dict[int, Tensor]] | None = None
    notes: list[str] = field(default_factory=list)

    def keep(self, name: str, index: int, value: Tensor) -> None:
        """Store an inside of a method, if insides were asked for."""
        if self.kept is not None:
            self.kept.setdefault(name, {})[index] = value.detach().clone()

    @property
    def final(self) -> tuple[Tensor, Tensor]:
        """The last tokens before pooling and the gradient of the objective there, both (b, n, d)."""
        final, gradient = self.recorder.final, self.recorder.final_gradient
        if final is None or gradient is None:
            raise TraceError(
                "the tokens in front of the pooling were not seen. Give the block names: load(..., layout=Layout(...))."
            )
        grid = self.layout.trunk[-1].grid
        return as_tokens(at_least_float(final), grid), as_tokens(gradient, grid)

    def feed(self, methods: Sequence[tuple[Taps, Steps]]) -> list[Tensor]:
        """Run the passes that the methods ask for and return each one's scores."""
        results: dict[int, Tensor] = {}
        objectives: list[Objective | None] = [o for o in ORDER if any(t.objective == o for t, _ in methods)] or [None]
        try:
            for objective in objectives:
                last = objective == objectives[-1]
                # methods without an objective ride along with the last pass
                group = [i for i, (t, _) in enumerate(methods) if t.objective == objective or (last and not t.objective)]
                self.one_pass(objective, [methods[i] for i in group], drop=last)
                with torch.no_grad():
                    results |= {i: finish(methods[i][1]) for i in group}
                self.recorder.final_gradient = None
        finally:
            self.recorder.close()
        return [results[i] for i in range(len(methods))]

    def one_pass(self, objective: Objective | None, methods: Sequence[tuple[Taps, Steps]], *, drop: bool) -> None:
        queue = Queue(self.recorder.seen, [s for _, s in methods], drop=drop)
        with torch.no_grad():
            for _, steps in methods:
                next(steps)
        if objective is not None and self.recorder.root is not None:
            names = frozenset().union(*(t.gradients for t, _ in methods)) - {"final"}
            for block in queue.blocks:
                block.gradients.clear()
                block.pending = {n for n in names if self.recorder.wanted(n, block.index) and has(block, n)}
            self.recorder.arrive = queue.arrived
            self.recorder.skipping = objective == "skip"
            with torch.enable_grad():
                scalar = self.target.scalar(self.logits, objective) * self.recorder.scale
            if scalar.requires_grad:
                torch.autograd.grad(scalar, [self.recorder.root], retain_graph=not drop, allow_unused=True)
            missed = [b.block.name for b in queue.blocks if b.pending]
            if missed:
                raise TraceError(
                    f"no gradient reached the attention of {', '.join(missed)}: these blocks do not feed the output."
                )
        queue.flush()


ORDER: list[Objective] = ["logit", "probability", "skip"]


@dataclass
class Queue:
    """Blocks wait here until all their gradients are in; then every method gets them, the last block first."""

    blocks: list[Seen]
    methods: list[Steps]
    drop: bool

    def __post_init__(self) -> None:
        self.next = len(self.blocks) - 1

    def arrived(self, block: Seen, name: str) -> None:
        block.pending.discard(name)
        while self.next >= 0 and self.blocks[self.next].gradients and not self.blocks[self.next].pending:
            self.send()

    def send(self) -> None:
        block = self.blocks[self.next]
        with torch.no_grad():
            for steps in self.methods:
                steps.send(block)
        block.gradients.clear()
        block.refresh()
        if self.drop:
            block.drop()
        self.next -= 1

    def flush(self) -> None:
        while self.next >= 0:
            self.send()


def has(block: Seen, name: str) -> bool:
    return bool(block.count) if name == "attention" else getattr(block, name) is not None


def finish(steps: Steps) -> Tensor:
    """After the last block a method gets None and returns its scores."""
    try:
        steps.send(None)
    except StopIteration as stop:
        return stop.value
    raise TraceError("a trace method must return its scores after it was sent None.")


def trace(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    images: Tensor,
    layout: Layout,
    *,
    taps: Sequence[Taps],
    target: Callable[[Tensor], Target],
) -> Trace:
    """One watched forward pass; a graph is built only from the first tensor whose gradient is wanted."""
    recorder = Recorder(layout, taps)
    gradients = any(t.objective for t in taps)
    with ExitStack() as failed:
        failed.callback(recorder.close)
        with as_found(model), torch.set_grad_enabled(gradients), block_hooks(model, layout, recorder), Watch(recorder):
            logits = forward(images.detach().clone())  # some models normalise in place
        check_maps(recorder)
        found = target(logits.detach())
        failed.pop_all()

    def again(images: Tensor, taps: Sequence[Taps]) -> Trace:
        return trace(model, forward, images, layout, taps=taps, target=lambda _: found)

    return Trace(layout, images, logits, found, recorder, again)


@contextmanager
def block_hooks(model: nn.Module, layout: Layout, recorder: Recorder) -> Iterator[None]:
    """Where a block begins and ends: two hooks each, removed at the end."""
    modules = dict(model.named_modules())
    with ExitStack() as undo:
        for name in dict.fromkeys(b.name for b in layout.blocks):
            if name not in modules:
                raise TraceError(
                    f"the layout names a block {name!r} that the model does not have. Give names from named_modules()."
                )
            undo.callback(modules[name].register_forward_pre_hook(recorder.enter, with_kwargs=True).remove)
            undo.callback(modules[name].register_forward_hook(recorder.leave).remove)
        yield


def check_maps(recorder: Recorder) -> None:
    """Fewer maps than attention blocks is an error that names the blocks, never an empty result."""
    layout = recorder.layout
    reached = {s.index for s in recorder.seen if s.count}
    missed = [b.name for i, b in enumerate(layout.blocks) if b.kind != "none" and i not in reached]
    if missed or layout.missed:
        raise TraceError(
            f"{len(layout.blocks)} attention blocks were expected, but no map was seen in {', '.join(missed or layout.missed)}. "
            "Its attention runs in a kernel that cannot be watched: build the model with PyTorch's own attention "
            "(transformers: attn_implementation='sdpa'; xformers or flash-attn: switch them off)."
        )


def first_tensor(value: Any) -> Tensor | None:
    """The hidden states among a block's arguments or outputs."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((t for t in map(first_tensor, items) if t is not None), None)
