"""Whether a model can be explained: its layout, its traced passes against untraced ones, and every method tried."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.api import compare
from patchlight.core.errors import PatchlightError
from patchlight.core.layout import Layout
from patchlight.core.registry import Method, Taps, discover
from patchlight.core.targets import Target
from patchlight.models.subject import Subject, brief
from patchlight.tracing.as_found import as_found
from patchlight.tracing.trace import Recorder, block_hooks, first_tensor, trace

# enough to see that a method runs; what ReLU cuts off may be everything
SMALL = {"steps": 2, "samples": 2, "relu": False, "top": 4, "threshold": 0.5, "grid": (2, 2)}
OWN = {"shapley": {"samples": 16}}  # the fewest for four cells
MOST_TOKENS = {"attention_flow": 300}  # where the work is not in the passes, and more tokens would take minutes
PASS = Taps("logit", frozenset({"attention"}))  # what most methods ask of the forward pass
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


@dataclass(frozen=True)
class Finding:
    """What became of one method: it works, or `reason` says why not; `broken` when that is no answer but a fault."""

    name: str
    works: bool
    reason: str = ""
    broken: bool = False


@dataclass(frozen=True)
class Report:
    """What was found out about a model at one input size."""

    model: str
    size: tuple[int, int]
    layout: Layout
    seen: int = 0
    """Attention maps seen, of `expected`."""
    difference: float = float("nan")
    """The largest relative difference between a traced and an untraced block, and the block that has it."""
    worst: str = ""
    dtype: torch.dtype = torch.float64
    problem: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def expected(self) -> int:
        return sum(b.kind != "none" for b in self.layout.blocks)

    @property
    def healthy(self) -> bool:
        return not self.problem and not any(f.broken for f in self.findings)


def examine(subject: Subject, *, size: tuple[int, int] | None = None) -> Report:
    """Find the layout, trace one random picture, compare the blocks with an untraced pass, and try every method."""
    size = size or subject.preprocess.size
    layout = subject.layout(size)
    images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0)).to(subject.device, subject.dtype)
    report = traced(Report(subject.name, size, layout), subject, images)
    return replace(report, findings=tuple(tried(m, subject, images, layout) for m in discover().values()))


# -- the traced pass --------------------------------------------------------------------------------------------------


def traced(report: Report, subject: Subject, images: Tensor) -> Report:
    """The report with what the passes showed, or with the problem that they met."""
    if not report.expected:
        missed = report.layout.missed
        hidden = (
            f"the attention of {', '.join(missed[:3])} runs in a kernel that cannot be watched"
            if missed
            else "it has no attention"
        )
        return replace(report, problem=f"{hidden}, so only methods that need none can explain it")
    try:
        precise, dtype = in_double(subject, images)
        seen, found = watched(precise, images.to(dtype), report.layout)
        plain = untraced(precise, images.to(dtype), report.layout)
    except PatchlightError as error:
        return replace(report, problem=str(error))
    worst, difference = largest_difference(plain, found)
    if seen < report.expected:
        return replace(report, seen=seen, problem=f"attention maps were seen in {seen} of {report.expected} blocks only")
    problem = "" if difference <= TOLERANCE.get(dtype, 0.1) else f"tracing changes the output of {worst} by {difference:.1e}"
    return replace(report, seen=seen, difference=difference, worst=worst, dtype=dtype, problem=problem)


def in_double(subject: Subject, images: Tensor) -> tuple[Subject, torch.dtype]:
    """A copy in float64, where a difference is a fault and not rounding; the model itself where it cannot be had."""
    if subject.device.type == "mps":
        return subject, subject.dtype
    try:
        copy = replace(subject, model=deepcopy(subject.model).double())
        with as_found(copy.model), torch.no_grad():
            copy.forward(images.double())
    except (RuntimeError, TypeError, ValueError):
        return subject, subject.dtype
    return copy, torch.float64


def watched(subject: Subject, images: Tensor, layout: Layout) -> tuple[int, dict[str, Tensor]]:
    """The number of attention maps seen, and the output of each block and of the model under the watch."""

    def predicted(logits: Tensor) -> Target:
        return Target(logits.argmax(-1))

    outputs = Outputs(layout, ())
    with block_hooks(subject.model, layout, outputs):
        found = trace(subject.model, subject.forward, images, layout, taps=[PASS], target=predicted)
    seen = sum(block.count > 0 for block in found.recorder.seen)
    found.recorder.close()
    return seen, outputs.kept | {"the logits": found.logits.detach()}


def untraced(subject: Subject, images: Tensor, layout: Layout) -> dict[str, Tensor]:
    outputs = Outputs(layout, ())
    with as_found(subject.model), torch.no_grad(), block_hooks(subject.model, layout, outputs):
        logits = subject.forward(images)
    return outputs.kept | {"the logits": logits}


@dataclass
class Outputs(Recorder):
    """Keeps what each block gives, and nothing else."""

    kept: dict[str, Tensor] = field(default_factory=dict)

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None: ...

    def leave(self, module: nn.Module, args: Any, out: Any) -> None:  # noqa: ARG002
        tensor = first_tensor(out)
        if tensor is not None:
            name = self.layout.blocks[min(len(self.kept), len(self.layout.blocks) - 1)].name
            self.kept[name if name not in self.kept else f"{name} ({len(self.kept)})"] = tensor.detach().clone()


def largest_difference(plain: dict[str, Tensor], found: dict[str, Tensor]) -> tuple[str, float]:
    """(where, max |a - b| / max |a|); infinite where one pass has a block that the other has not."""
    if plain.keys() != found.keys():
        return ", ".join(sorted(plain.keys() ^ found.keys())), float("inf")
    each = {name: relative(a, found[name]) for name, a in plain.items()}
    worst = max(each, key=lambda name: each[name])
    return worst, each[worst]


def relative(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    found = float((a - b).abs().max() / a.abs().max().clamp_min(torch.finfo(a.dtype).tiny))
    return float("inf") if isnan(found) else found


# -- the methods ------------------------------------------------------------------------------------------------------


def tried(method: Method, subject: Subject, images: Tensor, layout: Layout) -> Finding:
    """One method on one picture, unless the layout says why not."""
    if reason := next((r for need in method.needs if (r := layout.missing(need))), None) or method.lacks({}):
        return Finding(method.name, works=False, reason=reason)
    if layout.tokens > (most := MOST_TOKENS.get(method.name, layout.tokens)):
        return Finding(
            method.name, works=False, reason=f"not tried: {layout.tokens} tokens take it minutes, up to {most} seconds"
        )
    half = min(images.shape[-2:]) // 2
    wanted = {**SMALL, "window": half, "stride": half}
    settings = {name: value for name, value in wanted.items() if name in method.settings} | OWN.get(method.name, {})
    try:
        found = compare(subject, images, {method.name: settings})[method.name].scores
    except PatchlightError as error:
        return Finding(method.name, works=False, reason=str(error))
    except Exception as error:  # a fault in patchlight or in the model: the report names it and goes on
        return Finding(method.name, works=False, reason=f"{type(error).__name__}: {brief(error)}", broken=True)
    if not found.isfinite().all():
        return Finding(method.name, works=False, reason="its scores are not finite", broken=True)
    if found.amax() == found.amin() and method.family != "baseline":  # all four patches of 2 x 2 lie as far from the centre
        return Finding(method.name, works=False, reason="its map is constant", broken=True)
    return Finding(method.name, works=True)


def redrawn(subject: Subject, *, seed: int = 0) -> Subject:
    """Random weights that hide nothing: at fresh ones, some blocks and heads are scaled to almost or exactly zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in subject.model.named_parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(scaled(noise, name))
    return subject


def scaled(noise: Tensor, name: str) -> Tensor:
    """Matrices keep the variance of what they carry; scales lie about one and biases about zero."""
    if noise.dim() > 1:
        return noise / max(1, noise[0].numel()) ** 0.5
    return 0.1 * noise + (0.0 if "bias" in name.rpartition(".")[2] else 1.0)
