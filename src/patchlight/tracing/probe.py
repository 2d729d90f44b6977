"""The layout of a model is found by watching it: which tokens its attention joins, and which of them feed the head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.layout import Block, Kind, Layout, Pool, default_readout
from patchlight.core.registry import Taps
from patchlight.tracing.as_found import as_found
from patchlight.tracing.attention import Fused
from patchlight.tracing.seen import as_tokens
from patchlight.tracing.trace import Recorder as TraceRecorder
from patchlight.tracing.trace import block_hooks, first_tensor
from patchlight.tracing.watch import Watch

Forward = Callable[[Tensor], Tensor]
Shape = Sequence[int]
MOST_PREFIX = 64


@dataclass
class Event:
    """One attention: the modules that were running, from the outside in, and the shapes of its map and values."""

    stack: tuple[str, ...]
    weights: Shape
    value: Shape


@dataclass
class Recorder:
    """The sink of the probing pass."""

    events: list[Event] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    called: dict[str, tuple[Shape, Shape]] = field(default_factory=dict)
    entered: list[Shape] = field(default_factory=list)
    convolved: list[Shape] = field(default_factory=list)

    def enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        self.stack.append(name)
        self.entered.append(shape_of((args, kwargs)))

    def leave(self, name: str, module: nn.Module, args: Any, out: Any) -> None:  # noqa: ARG002
        self.stack.pop()
        self.called[name] = (self.entered.pop(), shape_of(out))

    def fused(self, call: Fused, out: Tensor) -> None:  # noqa: ARG002
        self.events.append(Event(tuple(self.stack), call.shape, tuple(call.value.shape)))

    def attention(self, scores: Tensor, weights: Tensor, value: Tensor) -> None:  # noqa: ARG002
        self.events.append(Event(tuple(self.stack), tuple(weights.shape), tuple(value.shape)))

    def convolution(self, out: Tensor) -> None:
        if not self.events:
            self.convolved.append(tuple(out.shape))

    def linear(self, given: Tensor, weight: Tensor, out: Tensor) -> None: ...
    def norm(self, given: Tensor, out: Tensor) -> None: ...
    def add(self, left: Any, right: Any, out: Tensor) -> None: ...
    def multiply(self, left: Any, right: Any, out: Tensor) -> None: ...


def shape_of(value: Any) -> Shape:
    tensor = first_tensor(value)
    return () if tensor is None else tuple(tensor.shape)


def find_layout(model: nn.Module, forward: Forward, *, size: tuple[int, int], given: Layout | None = None) -> Layout:
    """The layout for one input size; what `given` says is taken over."""
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(1))
    noise = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0))
    images = noise.to(like.device, like.dtype)
    seen = watch_once(model, forward, images)
    missed = tuple(hidden_attention(model, seen))
    names = block_names(model, seen)
    if given is not None and given.blocks:
        layout = replace(given, size=size)
        known = {b.name: b for b in describe_blocks(model, seen, names, layout, size)}
        return replace(layout, blocks=tuple(known.get(b.name, b) for b in layout.blocks))
    if not seen.events:
        return Layout(grid=(0, 0), size=size, missed=missed)
    blocks = describe_blocks(model, seen, names, Layout(grid=(0, 0), prefix=find_prefix(seen, names, size)), size)
    trunk = [b for b in blocks if b.kind not in ("class", "pool")]
    grid = trunk[-1].grid if trunk else (0, 0)
    layout = Layout(grid=grid, prefix=find_prefix(seen, names, size), blocks=tuple(blocks), size=size, missed=missed)
    if prod(grid) < 1:
        return layout
    rows, idle = feeding_rows(model, forward, images, layout)
    layout = replace(layout, blocks=tuple(b for b in blocks if b.name not in idle))
    pool, readout = find_pool(layout, rows)
    return replace(layout, pool=pool, readout=readout)


def watch_once(model: nn.Module, forward: Forward, images: Tensor) -> Recorder:
    recorder = Recorder()
    with as_found(model), torch.no_grad(), all_hooks(model, recorder), Watch(recorder):
        forward(images)
    return recorder


@contextmanager
def all_hooks(model: nn.Module, recorder: Any) -> Iterator[None]:
    with ExitStack() as undo:
        for name, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                undo.callback(module.register_forward_pre_hook(partial(recorder.enter, name), with_kwargs=True).remove)
                undo.callback(module.register_forward_hook(partial(recorder.leave, name)).remove)
        yield


# -- blocks -----------------------------------------------------------------------------------------------------------


def block_names(model: nn.Module, seen: Recorder) -> list[str]:
    """One module name for each attention event: the innermost member of a list of modules that the event ran in.

    Where that member holds other blocks too (a stage with its own attention), it is the innermost module around this
    attention that holds no other block.
    """
    modules = dict(model.named_modules())
    names = [innermost_member(modules, e.stack) for e in seen.events]
    for i, (name, event) in enumerate(zip(names, seen.events, strict=True)):
        others = {n for j, n in enumerate(names) if j != i and n != name}
        if any(n.startswith(name + ".") or name == "" for n in others):
            free = [m for m in event.stack[1:] if not any(n == m or n.startswith(m + ".") for n in others)]
            names[i] = free[0] if free else event.stack[-1]
    return names


def innermost_member(modules: dict[str, nn.Module], stack: Sequence[str]) -> str:
    for name in reversed(stack):
        parent, _, _ = name.rpartition(".")
        if name and isinstance(modules[parent], (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            return name
    return ""


def hidden_attention(model: nn.Module, seen: Recorder) -> Iterator[str]:
    """Modules that should have shown a map and did not: siblings of a block that did, or attention by its class name."""
    modules = dict(model.named_modules())
    names = set(block_names(model, seen))
    shown = {(n.rpartition(".")[0], type(modules[n])) for n in names if n}
    for name, module in modules.items():
        sibling = (name.rpartition(".")[0], type(module)) in shown
        by_name = not seen.events and "attention" in type(module).__name__.lower() and has_projections(module)
        if name in seen.called and name not in names and (sibling or by_name):
            yield name


def has_projections(module: nn.Module) -> bool:
    return sum(isinstance(m, nn.Linear) for m in module.modules()) >= 2


def describe_blocks(model: nn.Module, seen: Recorder, names: list[str], layout: Layout, size: tuple[int, int]) -> list[Block]:
    modules = dict(model.named_modules())
    counts = Counter(names)
    blocks = []
    for name, event in zip(names, seen.events, strict=True):
        if blocks and blocks[-1].name == name:
            continue
        entering, leaving = seen.called[name]
        before, after = (spatial(s, layout, size) for s in (entering, leaving))
        kind = kind_of(event, entering, leaving, layout)
        blocks.append(
            Block(
                name=name,
                kind=kind,
                heads=event.weights[-3] if len(event.weights) > 3 else 1,
                queries=event.weights[-2],
                keys=event.weights[-1],
                grid=(after if kind == "merging" else before) or before or after or (0, 0),
                window=window_of(modules[name], event.weights[-1]) if kind == "window" else None,
                shift=pair(modules[name], "shift_size") if kind == "window" else None,
                maps=counts[name],
            )
        )
    return blocks


def kind_of(event: Event, entering: Shape, leaving: Shape, layout: Layout) -> Kind:
    """Which tokens one map joins, from its shape and the number of tokens around it."""
    *lead, queries, keys = event.weights
    groups = prod(lead) // (lead[-1] if len(lead) > 1 else 1)  # batch is 1: what is left beside the heads
    if len(lead) > 2:  # (b, heads, windows, q, k)
        groups = lead[-1]
    before, after = count(entering), count(leaving)
    if queries == 1 and before is not None and (keys == before + 1 or keys == before == after):
        return "class"
    if queries < keys and after is not None and after <= 1 + layout.prefix:
        return "pool"
    if before is None:
        return "global"
    if groups == 1 and queries == keys == before:
        return "global"
    if groups > 1 and groups * keys == before:
        return "window" if groups * queries == before else "merging"
    if groups * queries == before and keys < before:
        return "reduced"
    if after is not None and groups * queries == after and after < before:
        return "merging"
    # values of channels lie along the tokens; a window may hold more tokens than there are, the rest of them padding
    over_tokens = event.value[-1] != before or groups > 1
    return "window" if over_tokens and groups * queries >= before else "channel"


def count(shape: Shape) -> int | None:
    """How many tokens a (1, n, d), (1, h, w, d) or (1, d, h, w) tensor carries."""
    if len(shape) == 3:
        return shape[1]
    if len(shape) == 4:
        a, b, c = shape[1:]
        return a * b if abs(a - b) <= abs(b - c) else b * c
    return 1 if len(shape) == 2 else None


def spatial(shape: Shape, layout: Layout, size: tuple[int, int]) -> tuple[int, int] | None:
    """The patch grid of a token tensor for pictures of this size."""
    ratio = size[0] / size[1]
    if len(shape) == 4:
        for h, w in ((shape[1], shape[2]), (shape[2], shape[3])):
            if abs(h / w - ratio) <= ratio / max(h, w) + 1e-9:
                return h, w
        return None
    if len(shape) == 3:
        patches = shape[1] - layout.prefix
        return best_grid(patches, size) or best_grid(shape[1], size)
    return None


def best_grid(patches: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """h x w = patches with the picture's aspect ratio, or None."""
    for h in range(1, patches + 1):
        if patches % h == 0:
            w = patches // h
            if abs(h / w - size[0] / size[1]) <= (size[0] / size[1]) / max(h, w) * 0.51:
                return h, w
    return None


def find_prefix(seen: Recorder, names: list[str], size: tuple[int, int]) -> int:
    """Tokens in front of the patches: what the sequence has more than the grid of the patch embedding."""
    tokens = next((seen.called[n][0] for n in names if len(seen.called[n][0]) == 3), None)
    if tokens is None:
        return 0
    for shape in reversed(seen.convolved):
        extra = tokens[1] - prod(shape[-2:])
        if 0 <= extra <= MOST_PREFIX:
            return extra
    return next((p for p in range(MOST_PREFIX) if best_grid(tokens[1] - p, size)), 0)


def window_of(module: nn.Module, tokens: int) -> tuple[int, int] | None:
    """Height and width of a window, if what the module calls its window size has that many tokens."""
    named = pair(module, "window_size")
    if named is not None and prod(named) == tokens:
        return named
    side = isqrt(tokens)
    return (side, side) if side * side == tokens else None


def pair(module: nn.Module, name: str) -> tuple[int, int] | None:
    """A window or shift size, wherever the library keeps it."""
    for place in module.modules():
        value = getattr(place, name, None)
        if isinstance(value, int):
            return value, value
        if isinstance(value, (tuple, list)) and len(value) == 2:
            return int(value[0]), int(value[1])
    return None


# -- pooling ----------------------------------------------------------------------------------------------------------


def find_pool(layout: Layout, rows: Tensor | None) -> tuple[Pool, tuple[float, ...]]:
    """How the head reads the tokens, from the size of the gradient of its output at each of them."""
    patches = prod(layout.grid)
    if layout.blocks[-1].kind in ("class", "pool"):
        return "attention", default_readout("attention", layout.prefix, patches)
    if rows is None or rows.numel() != layout.prefix + patches:
        return "unknown", default_readout("unknown", layout.prefix, patches)
    alive = rows > rows.max() * 1e-6
    head, body = alive[: layout.prefix], alive[layout.prefix :]
    if not body.any() and head.any():
        weights = head.double() / head.sum()
        return "class", (*weights.tolist(), *(0.0,) * patches)
    if head.any() and rows[: layout.prefix].max() > 5 * rows[layout.prefix :].median():
        weights = head.double() / head.sum() / 2
        return "class and mean", (*weights.tolist(), *(0.5 / patches,) * patches)
    weights = alive.double() / alive.sum()
    return "mean", tuple(weights.tolist())


def feeding_rows(model: nn.Module, forward: Forward, images: Tensor, layout: Layout) -> tuple[Tensor | None, set[str]]:
    """(n,) the size of the gradient of a random mix of the outputs at each token; and pooling blocks that feed no output."""
    tail = LastLinear(
        layout, [Taps("logit", frozenset({"final"})), Taps("logit", frozenset({"attention"}), first=len(layout.trunk))]
    )
    with as_found(model), torch.enable_grad(), block_hooks(model, layout, tail), Watch(tail), closing(tail):
        logits = forward(images)
        for output in (logits, tail.features):
            if output is None or tail.root is None or not output.requires_grad:
                continue
            mix = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output)
            maps = {s.block.name: s.leaving for s in tail.seen[len(layout.trunk) :] if s.leaving is not None}
            found, *slopes = torch.autograd.grad(
                (output * mix).sum(), [tail.root, *maps.values()], retain_graph=True, allow_unused=True
            )
            if found is not None and found.abs().max() > 0:
                idle = {name for name, slope in zip(maps, slopes, strict=True) if slope is None}
                return as_tokens(found, layout.trunk[-1].grid)[0].double().norm(dim=-1).cpu(), idle
    return None, set()


@dataclass
class LastLinear(TraceRecorder):
    """Also keeps what the last linear layer reads: a head of zeros hides everything behind it."""

    features: Tensor | None = None

    def linear(self, given: Tensor, weight: Tensor, out: Tensor) -> None:
        super().linear(given, weight, out)
        self.features = given

    def close(self) -> None:
        super().close()
        self.features = None
