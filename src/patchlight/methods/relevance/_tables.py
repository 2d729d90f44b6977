"""One table of rules for each method: the first entry that fits an operation is its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from patchlight.core.errors import TraceError
from patchlight.methods.relevance import _rules as r
from patchlight.tracing.tape import Call, Messages

Match = str | Callable[[Call], bool]


@dataclass(frozen=True)
class Table:
    """`entries` pair operations (names, or a test of the call) with rules; `carries` says what a message is.

    `cancels`: a rule divides by sums that may nearly vanish, so that rounding in the activations is amplified. `additive`: what
    comes of a sum of messages is the sum of what comes of each.
    """

    name: str
    carries: Literal["relevance", "multiplier"]
    entries: tuple[tuple[Match, r.Rule], ...]
    cancels: bool = False
    additive: bool = True

    def rule(self, call: Call) -> r.Rule:
        for match, rule in self.entries:
            if call.op in match.split() if isinstance(match, str) else match(call):
                return rule
        known = " ".join(m for m, _ in self.entries if isinstance(m, str))
        raise TraceError(
            f"{self.name}: the operation {call.op!r} in {call.module or 'the model itself'} has no rule. "
            f"Rules are known for {known}. A method without rules, such as transformer_mm or integrated_gradients, works."
        )

    def answer(self, call: Call, message: Tensor) -> Messages:
        return self.rule(call)(call, message)

    def keeps_all(self, call: Call) -> bool:
        """Nothing is kept back here but by rounding: the rule says so, or numbers are only moved, summed and scaled."""
        rule = self.rule(call)
        if rule is r.by_gradient:
            return call.op in LINEAR and not (call.constants and call.op in ("add", "concatenation", "subtract from"))
        return rule in r.KEEPING


def pixels(call: Call) -> bool:
    return call.of_pixels and call.op in ("convolution", "linear")


def attention_values(call: Call) -> bool:
    return call.attends is not None


def gated(call: Call) -> bool:
    return call.gated is not None


def projections(call: Call) -> bool:
    return call.projects


LINEAR = ("structure", "concatenation", "masking", "padding", "add", "sum", "scale")
MOVES = ("structure concatenation masking padding", r.by_gradient)
PASSES = ("layer_norm rms_norm batch_norm normalize activation softmax scale quotient", r.unchanged)
GATES = ("gate", r.stop)


def chefer(name: str, rules: str) -> Table:
    """The two engines of Chefer et al. 2021: `joint` for their own method, `separate` for their LRP baseline."""
    linear, add = (r.linear_joint, r.balanced_sum) if rules == "joint" else (r.linear_separate, r.proportional_sum)
    entries = (
        (pixels, r.pixel_box),
        ("linear convolution", linear),
        ("matmul product", r.halves),
        ("add subtract from", add),
        ("sum", r.proportional),
        PASSES,
        GATES,
        MOVES,
    )
    return Table(name, "relevance", entries, cancels=True, additive=rules != "joint")


def positive(name: str) -> Table:
    """Deep Taylor: contributions with the sign of the output in products, sizes in sums, so that no relevance turns negative."""
    entries = (
        (pixels, r.pixel_box),
        ("linear convolution", r.linear_aligned),
        ("matmul product", r.aligned_halves),
        ("add subtract from", r.sum_by_size),
        ("sum", r.pooled_by_size),
        PASSES,
        GATES,
        MOVES,
    )
    return Table(name, "relevance", entries)


def detached(
    name: str, *, activation: str = "identity", softmax: bool = False, gamma_conv: float = 0.0, gamma_linear: float = 0.0
) -> Table:
    """Gradient times input with norms held constant; `softmax`: attention is explained too (AttnLRP), else held constant."""
    attention = () if softmax else ((attention_values, r.values_only),)
    plain = (("gate", r.by_gradient), (gated, r.by_gradient)) if activation == "gradient" else ()
    entries = (
        *attention,
        *plain,
        (projections, r.by_gradient),
        ("linear", r.gamma(gamma_linear)),
        ("convolution", r.gamma(gamma_conv)),
        ("matmul product", r.multiplier_halves),
        ("layer_norm", r.layer_norm_detached),
        ("rms_norm", r.rms_norm_detached),
        ("normalize", r.normalize_detached),
        ("activation", r.activation_identity if activation == "identity" else r.by_gradient),
        ("softmax", r.by_gradient if softmax else r.stop),
        ("quotient", r.numerator),
        ("add subtract from sum scale batch_norm", r.by_gradient),
        GATES,
        MOVES,
    )
    return Table(name, "multiplier", entries)
