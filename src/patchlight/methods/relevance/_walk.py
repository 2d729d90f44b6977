"""One forward pass with its way back open, the relevance that a table sends back, and the account of where it went."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import ModelError, SettingError, TraceError
from patchlight.core.grid import to_grid
from patchlight.core.layout import Layout
from patchlight.methods.relevance._tables import Table
from patchlight.tracing.ask import Ask
from patchlight.tracing.probe import spatial
from patchlight.tracing.seen import as_tokens
from patchlight.tracing.tape import Call, Messages, Tape, gradient, taped

Precision = Literal["float64", "float32"]
At = Literal["pixels", "tokens"]
CANCELS = (
    "relevance in float32: on DeiT-tiny the same rules on the same weights gave maps that correlate with those of float64 by "
    "-0.27 to 1.0 (LRP) and -0.23 to 1.0 (Transformer Attribution), as activations that nearly cancel are divided by"
)
STABLE = (
    "relevance in float32: on DeiT-tiny the maps of this method correlate with those of float64 by 0.9999 and more (10 pictures)"
)
CAUSES = {  # multipliers: what an operation keeps back is its bias
    "linear": "bias", "convolution": "bias", "batch_norm": "normalisation", "layer_norm": "normalisation",
    "rms_norm": "normalisation", "normalize": "normalisation", "softmax": "attention", "quotient": "normalisation",
}  # fmt: skip
NAMES = (("rel", "relative position"), ("bias", "relative position"), ("pos", "position embedding"), ("mask", "attention mask"),
         ("token", "class token"), ("class", "class token"), ("latent", "class token"), ("query", "class token"))  # fmt: skip


@dataclass(eq=False)
class Walk:
    """The tape of one batch, the table, and what each cause has kept back so far, (b,) for each."""

    tape: Tape
    table: Table
    logits: Tensor
    start: Tensor  # (b, k) what is sent back from the logits
    layout: Layout | None
    lost: dict[str, Tensor] = field(default_factory=dict)

    @property
    def pictures(self) -> int:
        return len(self.logits)

    # -- the account ------------------------------------------------------------------------------------------------------

    def total(self, values: Tensor, message: Tensor | None) -> Tensor:
        """(b,) the relevance that a message stands for."""
        if message is None:
            return values.new_zeros(self.pictures)
        whole = message if self.table.carries == "relevance" else values * message
        if whole.shape[0] % self.pictures:
            raise TraceError(
                f"{self.table.name}: a tensor {tuple(whole.shape)} does not keep {self.pictures} pictures apart along its first "
                "axis. Give one picture at a time: batch_size=1."
            )
        found = whole.reshape(self.pictures, -1).sum(1)
        if not found.isfinite().all():  # -inf of a mask, to which no message comes
            return torch.where(message == 0, 0.0, whole).reshape(self.pictures, -1).sum(1)
        return found

    def answer(self, call: Call, message: Tensor) -> Messages:
        kept = self.total(call.out, message)  # tells apart the pictures before any rule sums over them
        found = self.table.answer(call, message)
        for values, part in zip(call.inputs, found, strict=True):
            kept = kept - self.total(values, part)
        cause = self.cause(call)
        self.lost[cause] = self.lost[cause] + kept if cause in self.lost else kept
        return found

    def cause(self, call: Call) -> str:
        """In words: the bias of a layer, the constant of a sum by the name of its parameter, or the rule."""
        if call.op == "padding" and self.table.carries == "relevance":
            return "padding"  # a padded place has no number, but behind a bias it may be given relevance
        if self.table.keeps_all(call):
            return "rounding"
        if call.constants and call.op in ("add", "concatenation", "subtract from"):
            return next((word for part, word in NAMES if any(part in name.lower() for name in call.owned)), "constants")
        if self.table.carries == "multiplier":
            return CAUSES.get(call.op, call.op)
        return f"rule of {call.op}"

    def account(self, arrived: Tensor, stayed: Tensor | None = None) -> dict[str, Tensor]:
        """(b,) each: what was received, what arrived, and what every cause kept back; `stayed` came to rest on prefix tokens."""
        received = self.start if self.table.carries == "relevance" else self.start * self.logits
        lost = {"rounding": torch.zeros_like(arrived)} | self.lost
        if stayed is not None:
            lost["class token"] = lost.get("class token", 0) + stayed
        return {"received": received.sum(1), "arrived": arrived, **dict(sorted(lost.items()))}

    # -- passes -----------------------------------------------------------------------------------------------------------

    def back(self, wanted: list[Tensor]) -> tuple[Tensor, ...]:
        """The messages that reach these tensors by the table; zero where none does."""
        self.tape.answer, self.lost = self.answer, {}
        if self.table.additive or not (self.start < 0).any():
            return self.pass_back(wanted, self.start)
        # a rule that keeps Σ R has nothing to keep where a contrast sums to 0: what speaks for it and against it go apart
        speaking = [part for part in (self.start.clamp_min(0), self.start.clamp_max(0)) if part.any()]
        passes = zip(*(self.pass_back(wanted, part) for part in speaking), strict=True)
        return tuple(torch.stack(messages).sum(0) for messages in passes)

    def slopes(self, wanted: list[Tensor]) -> tuple[Tensor, ...]:
        """The plain gradients of the explained score at these tensors."""
        self.tape.answer = gradient
        return self.pass_back(wanted, self.start)

    def pass_back(self, wanted: list[Tensor], start: Tensor) -> tuple[Tensor, ...]:
        assert self.tape.logits is not None
        found = torch.autograd.grad(self.tape.logits, wanted, start, retain_graph=True, allow_unused=True)
        return tuple(torch.zeros_like(w) if m is None else m.detach() for w, m in zip(wanted, found, strict=True))

    def read(self, at: At, ask: Ask) -> Tensor:
        """Relevance of the pixels (b, H, W), or of the tokens that enter the first block (b, h, w); the account goes to `ask`."""
        if at == "pixels":
            assert self.tape.pixels is not None
            (message,) = self.back([self.tape.pixels])
            scores = self.of(self.tape.pixels, message).sum(1)
            ask.conservation = self.account(scores.flatten(1).sum(1))
            return scores
        assert self.layout is not None
        assert self.tape.tokens is not None
        grid = entering_grid(self.tape.tokens, self.layout, self.table.name)
        (message,) = self.back([self.tape.tokens])
        tokens = as_tokens(self.of(self.tape.tokens, message), grid).sum(-1)  # (b, n)
        scores = to_grid(tokens, grid)
        arrived = scores.flatten(1).sum(1)
        prefix = tokens.shape[1] > scores[0].numel()
        ask.conservation = self.account(arrived, tokens.sum(1) - arrived if prefix else None)
        ask.keep("tokens", tokens)
        return scores

    def of(self, values: Tensor, message: Tensor) -> Tensor:
        return message if self.table.carries == "relevance" else values.detach() * message

    def places(self, first: int = 0) -> tuple[list[int], list[Tensor]]:
        """The attention maps from block `first` on: numbers of blocks and maps (b, h, q, k), the first map of each block."""
        assert self.layout is not None
        kept = {p.block: p.map for p in reversed(self.tape.places) if p.block >= first}
        missed = [block.name for i, block in enumerate(self.layout.blocks) if i >= first and i not in kept]
        if missed:
            raise TraceError(
                f"{self.table.name}: no attention map was seen in {', '.join(missed)}. Build the model with PyTorch's own "
                "attention (transformers: attn_implementation='sdpa'), or use a method that needs no maps, such as lrp."
            )
        blocks = sorted(kept)
        return blocks, [kept[b] for b in blocks]


def token_grid(layout: Layout | None, method: str) -> tuple[int, int]:
    if layout is None or not layout.blocks or min(layout.trunk[0].grid) < 1:
        raise ModelError(
            f"{method}: at='tokens' takes a model whose first block reads tokens on a patch grid, which this one does not have. "
            "Use at='pixels'."
        )
    return layout.trunk[0].grid


def entering_grid(tokens: Tensor, layout: Layout, method: str) -> tuple[int, int]:
    """The patch grid of what enters the first block, which may itself merge patches."""
    grid = token_grid(layout, method)
    merging = tokens.dim() == 4 and grid not in (tuple(tokens.shape[1:3]), tuple(tokens.shape[2:]))
    found = spatial(tokens.shape, layout, layout.size) if merging else grid
    assert found is not None
    return found


@contextmanager
def walked(ask: Ask, table: Table, precision: Precision, *, layout: Layout | None = None) -> Iterator[Walk]:
    """One forward pass of the batch, ready to be walked back."""
    check_device(ask.images.device.type, precision, table.name)
    dtype = torch.float64 if precision == "float64" else torch.float32
    if precision == "float32":
        ask.notes.append(CANCELS if table.cancels else STABLE)
    with taped(ask.model, ask.forward, ask.images, layout, dtype=dtype) as tape:
        assert tape.logits is not None
        logits = tape.logits.detach()
        if ask.target is None:
            ask.learn(logits)
        assert ask.target is not None
        leaf = logits.clone().requires_grad_()
        (start,) = torch.autograd.grad(ask.target.scalar(leaf, "logit"), leaf)
        yield Walk(tape, table, logits, start.to(logits.dtype), layout)


def check_device(kind: str, precision: Precision, method: str) -> None:
    if kind == "mps" and precision == "float64":
        raise SettingError(
            f"{method}: relevance is computed in float64, which {kind} devices do not have. Use device='cpu', or "
            "precision='float32' and look at its note."
        )


def read_off(ask: Ask, table: Table, at: At, precision: Precision) -> Tensor:
    """The scores of a method that is its table, at the pixels or at the tokens."""
    layout = ask.layout()
    if at == "tokens":
        token_grid(layout, table.name)
    with walked(ask, table, precision, layout=layout) as walk:
        return walk.read(at, ask)


def checked_gamma(method: str, *amounts: float) -> None:
    for amount in amounts:
        if not 0 <= amount < float("inf"):
            raise SettingError(f"{method}: gamma takes a number from 0 up, but {amount!r} came. 0 is the plain rule.")
