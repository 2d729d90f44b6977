"""A forward pass whose way back is open: every operation is known by name, and a rule says what it makes of a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from patchlight.core.errors import TraceError, without_gradient
from patchlight.core.layout import Layout
from patchlight.tracing.as_found import as_found, in_precision, no_autocast
from patchlight.tracing.attention import fused, multi_head
from patchlight.tracing.operations import IN_PLACE, OPERATIONS, STRUCTURAL
from patchlight.tracing.probe import all_hooks
from patchlight.tracing.trace import first_tensor

STAYS_A_MAP = ("scale", "masking", "linear")  # talking heads mix maps through a linear layer
NARROWING: dict[Any, torch.dtype] = {Tensor.float: torch.float32, Tensor.half: torch.float16, Tensor.bfloat16: torch.bfloat16}
Messages = tuple[Tensor | None, ...]
# the nodes that the functions of STRUCTURAL leave in a graph of autograd
MOVING = re.compile(
    r"(torch::autograd::)?(AccumulateGrad|CopySlices|CopyBackwards|(View|UnsafeView|ReshapeAlias|AsStrided|Alias|Permute|Transpose|T|"
    r"Clone|ToCopy|Squeeze|Unsqueeze|Expand|Split|SplitWithSizes|UnsafeSplit|Unbind|Slice|Select|Index|IndexSelect|IndexPut|Gather|Roll|"
    r"Flip|Repeat|Copy|Max|Amax|MaxPool\w*|Im2Col|Unfold|PixelShuffle|PixelUnshuffle|Diagonal|NanToNum|Cat|Stack|Narrow|Detach)"
    r"Backward\w*)",
    re.IGNORECASE,
)


@dataclass(eq=False)
class Call:
    """One operation of the forward pass. `inputs` are the tensors that depend on the picture; `constants` are the others."""

    op: str
    function: Callable[..., Any]
    leaves: list[Any]
    spec: Any
    places: list[int]  # which leaves are the inputs
    module: str = ""
    block: int | None = None
    attends: int | None = None  # which input of a matrix product is an attention map; the other holds values
    projects: bool = False  # a linear layer in front of the attention of a block, or right behind it
    of_pixels: bool = False
    gated: int | None = None  # which input of a product comes out of a gate
    readers: int = 0  # how many operations read the output
    pictures: int = 1  # the size of the batch
    owned: tuple[str, ...] = ()  # the parameters and buffers that the constants were made of
    inputs: tuple[Tensor, ...] = ()
    out: Tensor = field(default_factory=lambda: torch.empty(0))
    graph: tuple[tuple[Tensor, ...], Tensor] | None = None  # the inputs and the output once more, joined by autograd

    @property
    def constants(self) -> list[Tensor]:
        """The first is the weight of a layer, the second its bias."""
        return [t for i, t in enumerate(self.leaves) if isinstance(t, Tensor) and i not in self.places]

    def compute(self) -> Tensor:
        self.inputs = tuple(self.leaves[i].detach() for i in self.places)
        for place, tensor in zip(self.places, self.inputs, strict=True):
            self.leaves[place] = tensor
        if self.function is F.linear and self.places == [0]:
            self.out = self.run(*self.inputs)  # its gradient needs no graph
        else:
            with torch.enable_grad():
                leaves = tuple(t.detach().requires_grad_() for t in self.inputs)
                self.graph = leaves, self.run(*leaves)
            self.out = self.graph[1].detach()
        return self.out.detach()  # another tensor than the call holds: else the two would hold each other

    def run(self, *inputs: Tensor, constants: Sequence[Tensor | None] | None = None) -> Tensor:
        """The operation on other inputs, and on other constants in the order of `constants`."""
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, inputs, strict=True):
            leaves[place] = tensor
        if constants is not None:
            others = [i for i, t in enumerate(self.leaves) if isinstance(t, Tensor) and i not in self.places]
            for place, constant in zip(others, constants, strict=True):
                leaves[place] = constant
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)

    def gradient(self, message: Tensor) -> Messages:
        """Jᵀ m, for every input: what plain autograd makes of a message."""
        if self.graph is None:
            return (message @ self.constants[0],)
        inputs, out = self.graph
        return torch.autograd.grad(out, inputs, message, retain_graph=True, allow_unused=True)


class Ruled(torch.autograd.Function):
    """An operation whose way back is left to the tape."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, call: Call, *inputs: Tensor) -> Tensor:  # noqa: ARG004  they are in the call
        ctx.set_materialize_grads(False)
        ctx.tape, ctx.call = tape, call
        return call.compute()

    @staticmethod
    def backward(ctx: Any, *messages: Tensor | None) -> tuple[Any, ...]:
        (message,) = messages
        found = (None,) * len(ctx.call.inputs) if message is None else ctx.tape.answer(ctx.call, message)
        return (None, None, *found)


def gradient(call: Call, message: Tensor) -> Messages:
    """The plain gradient."""
    return call.gradient(message)


@dataclass(eq=False)
class Place:
    """An attention map of the forward pass, and the block that it belongs to."""

    block: int
    map: Tensor


class Tape(TorchFunctionMode):
    """Turns each operation on what depends on the picture into one that asks `answer` on the way back.

    `answer` may be changed between passes: one forward pass serves a relevance pass and a plain gradient.
    """

    def __init__(self, layout: Layout | None, names: dict[int, str], dtype: torch.dtype) -> None:
        super().__init__()
        self.layout, self.dtype = layout, dtype
        self.names = names  # of parameters and buffers, and of what was made of them, by address
        self.made_of_names: list[Tensor] = []  # holding them keeps their addresses
        self.answer: Callable[[Call, Tensor], Messages] = gradient
        self.pixels: Tensor | None = None
        self.logits: Tensor | None = None
        self.tokens: Tensor | None = None  # what enters the first block
        self.places: list[Place] = []
        self.maps: dict[int, Tensor] = {}  # what softmax gave and what was made of it, by id: holding it keeps the id
        self.gates: dict[int, Tensor] = {}
        self.raw: dict[int, Tensor] = {}  # the picture, moved about
        self.made: dict[int, tuple[Tensor, Call]] = {}
        self.modules: list[str] = []
        self.block: int | None = None
        self.entered = 0
        self.before_projection = False

    @property
    def pictures(self) -> int:
        return 1 if self.pixels is None else len(self.pixels)

    # -- where we are ---------------------------------------------------------------------------------------------------

    def enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        self.modules.append(name)
        blocks = self.layout.blocks if self.layout is not None else ()
        if self.block is None and self.entered < len(blocks) and blocks[self.entered].name == name:
            self.block, self.before_projection = self.entered, True
            if self.entered == 0:
                self.tokens = first_tensor((args, kwargs))
            self.entered += 1

    def leave(self, name: str, module: nn.Module, args: Any, out: Any) -> None:  # noqa: ARG002
        self.modules.pop()
        if self.block is not None and self.layout is not None and self.layout.blocks[self.block].name == name:
            self.block = None

    def close(self) -> None:
        """Calls hold this tape and it holds tensors, by way of autograd, where no collector looks: it is cut here."""
        self.pixels = self.logits = self.tokens = None
        self.answer = gradient
        self.made_of_names.clear()
        for kept in (self.places, self.maps, self.gates, self.raw, self.made):
            kept.clear()

    # -- the mode -------------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(self.narrower(v, args) for v in (func, *args[1:], *(kwargs or {}).values())):
            return self.kept_wide(func, args, kwargs or {})
        kwargs = kwargs or {}
        if func in STRUCTURAL:
            return self.carried(args, self.named(args, func(*args, **kwargs)))
        if func in OPERATIONS:
            return self.record(OPERATIONS[func], func, args, kwargs)
        if func in COMPOSED:
            with self:
                return COMPOSED[func](*args, **kwargs)
        if func in IN_PLACE:
            with self:
                return args[0].copy_(IN_PLACE[func](args[0].clone(), *args[1:], **kwargs))
        return self.unknown(func, args, kwargs)

    def narrower(self, value: Any, args: Any) -> bool:
        """A precision below that of the pass, asked for where a tensor of the pass comes in."""
        asked = NARROWING.get(value) if callable(value) else value
        if not isinstance(asked, torch.dtype) or not asked.is_floating_point or not args or not isinstance(args[0], Tensor):
            return False
        return args[0].dtype == self.dtype and asked.itemsize < self.dtype.itemsize

    def kept_wide(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Models that go to float32 for a softmax or a norm do so for precision: here that would lose some."""
        if func in NARROWING:
            return args[0]
        args = tuple(self.dtype if self.narrower(v, args) else v for v in args)
        return self.__torch_function__(
            func, (), args, {n: self.dtype if self.narrower(v, args) else v for n, v in kwargs.items()}
        )

    def carried(self, args: Any, out: Any) -> Any:
        """What only moves numbers leaves a map a map, a gate a gate, and pixels pixels."""
        if args and isinstance(out, Tensor) and isinstance(args[0], Tensor) and out is not args[0]:
            self.read([args[0]])
            for kept in (self.maps, self.gates, self.raw):
                if id(args[0]) in kept:
                    kept[id(out)] = out
        return out

    def read(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if id(tensor) in self.made:
                self.made[id(tensor)][1].readers += 1

    def named(self, args: Any, out: Any) -> Any:
        """What is made of a parameter bears its name: a position embedding may be looked up, resized or moved about."""
        if isinstance(out, Tensor) and not out.requires_grad and out.data_ptr() not in self.names:
            tensors = (t for t in tree_flatten(args)[0] if isinstance(t, Tensor))
            if name := next((self.names[t.data_ptr()] for t in tensors if t.data_ptr() in self.names), None):
                self.names[out.data_ptr()] = name
                self.made_of_names.append(out)
        return out

    def unknown(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation without a name: harmless unless a message comes back to it."""
        out = self.named(args, func(*args, **kwargs))
        name, module = f"{name_of(func)}()", self.modules[-1] if self.modules else ""

        def barred(tensor: Any) -> Any:
            if not isinstance(tensor, Tensor) or not tensor.requires_grad:
                return tensor
            call = Call(name, func, [tensor], None, [0], module=module, inputs=(tensor.detach(),), out=tensor.detach())
            return Barred.apply(self, call, tensor)

        if isinstance(out, (tuple, list)):
            return type(out)(map(barred, out)) if type(out) in (tuple, list) else out
        return barred(out)

    def record(self, op: str, func: Any, args: Any, kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.requires_grad]
        if not places:
            return self.named(args, func(*args, **kwargs))
        given = [leaves[i] for i in places]
        if op == "activation" or op == "gate":  # never in place: what was there before is needed
            leaves = [False if leaf is True else leaf for leaf in leaves]
        call = Call(self.exact(op, leaves, places), func, leaves, spec, places)
        call.module, call.block = (self.modules[-1] if self.modules else ""), self.block
        call.of_pixels, call.pictures = id(given[0]) in self.raw, self.pictures
        call.owned = tuple(self.names[t.data_ptr()] for t in call.constants if t.data_ptr() in self.names)
        self.mark(call, given)
        self.read(given)
        out = Ruled.apply(self, call, *given)
        self.made[id(out)] = out, call
        if call.op == "softmax" or (call.op in STAYS_A_MAP and id(given[0]) in self.maps):
            self.maps[id(out)] = out
        if call.op == "gate":
            self.gates[id(out)] = out
        return out

    def exact(self, op: str, leaves: list[Any], places: list[int]) -> str:
        """A product with a constant is a scale, a matrix product with a constant is linear, -inf added is a mask."""
        tensors = [t for t in leaves if isinstance(t, Tensor)]
        if op == "add" and len(places) == 1 and any(t.isneginf().any() for t in tensors if not t.requires_grad):
            return "masking"
        if op in ("product", "quotient") and len(places) == 1 and (op == "product" or places[0] == 0):
            return "scale"
        if op == "matmul" and len(places) == 1:
            return "linear"
        if op == "concatenation" and len(places) == len(tensors):
            return "structure"
        return op

    def mark(self, call: Call, given: list[Tensor]) -> None:
        """The attention of a block, the projections around it, and the gates of products."""
        if call.op == "matmul" and any(id(t) in self.maps for t in given):
            call.attends = 0 if id(given[0]) in self.maps else 1
            if self.block is not None:
                self.places.append(Place(self.block, given[call.attends]))
        elif call.op == "linear" and self.block is not None and self.before_projection:
            call.projects = True
            self.before_projection = not any(p.block == self.block for p in self.places)
        elif call.op == "product":
            call.gated = next((i for i, t in enumerate(given) if id(t) in self.gates), None)


class Barred(torch.autograd.Function):
    """Lets numbers through and stops messages: no plain gradient takes the place of a missing rule."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, call: Call, tensor: Tensor) -> Tensor:
        ctx.tape, ctx.call = tape, call
        ctx.set_materialize_grads(False)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *messages: Tensor | None) -> tuple[Any, ...]:
        (message,) = messages
        if message is None or ctx.tape.answer is gradient:
            return None, None, message
        return None, None, ctx.tape.answer(ctx.call, message)[0]


def name_of(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def attend(*args: Any, **kwargs: Any) -> Tensor:
    """Fused attention, one operation after the other; the scale behind the product, as the published rules have it."""
    call = fused(*args, **kwargs)
    query, key = call.query, call.key
    scores = (query @ key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if call.scale is None else call.scale)
    if call.is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if call.mask is not None:
        hidden = call.mask.dtype == torch.bool
        scores = scores.masked_fill(~call.mask, float("-inf")) if hidden else scores + call.mask
    return scores.softmax(-1) @ call.value


COMPOSED: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: attend,
    F.multi_head_attention_forward: lambda *args, **kwargs: multi_head(attend, F.linear, *args, **kwargs),
    torch.Tensor.__iter__: lambda tensor: iter(tensor.unbind(0)),
}


def parameter_names(model: nn.Module) -> dict[int, str]:
    """The parameters and buffers that stand in the model now, by their address."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {t.data_ptr(): name for name, t in tensors if t.numel()}


def check_seen(logits: Tensor) -> None:
    """Everything between picture and logits has passed the tape: else autograd would answer where a rule should."""
    if logits.grad_fn is None:
        raise without_gradient()
    waiting: list[tuple[Any, str]] = [(logits.grad_fn, "the output")]
    met = set()
    while waiting:
        node, reader = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if node.name() == "BarredBackward":
            continue  # no message passes it
        call = getattr(node, "call", None)
        if call is None and not MOVING.fullmatch(node.name()):
            raise TraceError(
                f"{node.name()} in front of {reader} runs where no torch function shows it, as kernels of their own do: "
                "no rule of relevance can be applied to it. Build the model with PyTorch's own operations, or use a method "
                "without rules, such as integrated_gradients."
            )
        where = reader if call is None else f"{call.op} in {call.module or 'the model itself'}"
        waiting += [(parent, where) for parent, _ in node.next_functions]


@contextmanager
def taped(
    model: nn.Module, forward: Callable[[Tensor], Tensor], images: Tensor, layout: Layout | None, *, dtype: torch.dtype
) -> Iterator[Tape]:
    """One forward pass in the given precision, with the way back open until the end of the block."""
    tape = Tape(layout, {}, dtype)
    try:
        with as_found(model), in_precision(model, dtype), torch.enable_grad(), no_autocast(images), all_hooks(model, tape):
            tape.names |= parameter_names(model)
            tape.pixels = images.detach().to(dtype).clone().requires_grad_()
            start = tape.pixels.clone()  # some models normalise in place
            tape.raw[id(start)] = start
            with tape:
                tape.logits = forward(start)
            check_seen(tape.logits)
            yield tape
    finally:
        tape.close()
