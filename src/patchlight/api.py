"""`explain` and `compare`: one call for any method, on any model, over any number of pictures."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.batching import in_batches
from patchlight.core.errors import ModelError, SettingError
from patchlight.core.grid import to_grid
from patchlight.core.layout import Layout
from patchlight.core.registry import Method, get
from patchlight.core.source import Source, open_source
from patchlight.core.targets import Target, resolve
from patchlight.explanation import Explanation
from patchlight.models.load import load
from patchlight.models.subject import Subject
from patchlight.tracing.as_found import no_autocast
from patchlight.tracing.ask import Ask
from patchlight.tracing.trace import trace

log = logging.getLogger("patchlight")
Progress = Callable[[int, int], None]
BATCH = {"cuda": 64, "mps": 16, "cpu": 16}


@dataclass(frozen=True)
class Job:
    """One method with all its settings, under the name that the caller gave it."""

    label: str
    method: Method
    settings: dict[str, Any]


@dataclass(eq=False)
class Part:
    """What one method found for one batch."""

    scores: Tensor
    seconds: float
    insides: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    conservation: dict[str, Tensor] = field(default_factory=dict)


@dataclass(eq=False)
class Batch:
    """What all methods found for one batch."""

    logits: Tensor
    target: Target
    parts: dict[str, Part]


def explain(
    subject: Subject | nn.Module | str,
    images: Any,
    method: str = "transformer_mm",
    target: Any = None,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    insides: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Explanation:
    """Explain a batch of pictures by one method.

    subject: what `load` returned, or anything it takes. images: a path, folder or glob, PIL image, uint8 array (H, W, 3), a list
    of these, or a float tensor (B, 3, H, W) that is used as it is. target: None for the predicted class, a class number or label,
    a list with one for each picture, a pair (a, b) for "a rather than b", or a function of the logits (B, K) -> (B,).
    batch_size: pictures at once (found by itself when memory runs out). seed: for methods that draw; every picture has its own
    numbers, whatever the batch. insides: also keep what went on block by block. progress: called with (done, all).
    Other keywords are the method's settings: `patchlight methods NAME` shows them.
    """
    label = str(method)
    found = compare(
        subject, images, {label: settings}, target, batch_size=batch_size, seed=seed, insides=insides, progress=progress
    )
    return found[label]


def compare(
    subject: Subject | nn.Module | str,
    images: Any,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]],
    target: Any = None,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    insides: bool = False,
    progress: Progress | None = None,
) -> dict[str, Explanation]:
    """Explain by several methods: those that read attention share one forward pass, and a backward pass for each objective.

    methods: names, or a dict name -> settings; to have a method twice, {"any name": {"method": "vtranm", "gradient": "logit"}}.
    The other arguments are those of `explain`. Layouts are checked for every method before any work is done.
    """
    subject = load(subject)
    jobs = make_jobs(methods)
    if batch_size is not None and batch_size < 1:
        raise SettingError(f"batch_size takes 1 or more, or None to find it, but {batch_size} came.")
    source = open_source(images, subject.preprocess)
    like = torch.empty(0, device=subject.device, dtype=subject.dtype)
    size = tuple(source.tensor.shape[-2:]) if source.tensor is not None else subject.preprocess.size
    layouts = LayoutOnce(subject, (int(size[0]), int(size[1])))
    for job in jobs:
        check_needs(job.method, layouts, subject.name)
    run = Run(subject, jobs, layouts, target, len(source), seed, insides, progress)
    notes: list[str] = []

    def work(start: int, stop: int, size: int) -> Batch:
        with torch.inference_mode(mode=False):  # a caller's inference mode would forbid gradients
            done = run.batch(source.batch(start, stop, like=like), start, size)
        if progress is not None:
            progress(stop, len(source))
        return done

    batches = list(in_batches(len(source), batch_size or BATCH.get(like.device.type, 16), work, note=notes.append))
    return {job.label: joined(job, batches, source, run, notes) for job in jobs}


def make_jobs(methods: Sequence[str] | Mapping[str, Mapping[str, Any]]) -> list[Job]:
    if isinstance(methods, str):
        methods = [methods]
    given = methods if isinstance(methods, Mapping) else {str(name): {} for name in methods}
    if not given:
        raise SettingError("no methods came. Give names such as ['rollout', 'transformer_mm']; `patchlight methods` lists them.")
    jobs = []
    for label, settings in given.items():
        settings = dict(settings)
        method = get(settings.pop("method", label))
        jobs.append(Job(label, method, method.resolve(settings)))
    return jobs


@dataclass(eq=False)
class LayoutOnce:
    """The layout, found when the first method needs it: a plain gradient needs none."""

    subject: Subject
    size: tuple[int, int]

    def __call__(self) -> Layout:
        return self.subject.layout(self.size)


def check_needs(method: Method, layout: Callable[[], Layout], model: str) -> None:
    """A need that the model cannot meet is an error before any work."""
    reason = why_not(method, layout() if method.needs or method.traced else None)
    if reason:
        raise ModelError(f"{method.name} cannot explain {model}: {reason}.")


def why_not(method: Method, layout: Layout | None) -> str | None:
    """Why a method cannot serve a model, with what would work; None when it can."""
    if layout is None:
        return None
    reasons = (layout.missing(need) for need in method.needs)
    if not (reason := next((r for r in reasons if r), None)):
        return None
    from patchlight.core.registry import discover

    others = [m.name for m in discover().values() if m.family != "baseline" and not any(layout.missing(n) for n in m.needs)]
    return f"{reason}. Methods that work: {', '.join(others)}"


@dataclass(eq=False)
class Run:
    """Everything that stays the same from batch to batch."""

    subject: Subject
    jobs: list[Job]
    layout: LayoutOnce
    target: Any
    count: int
    seed: int
    insides: bool
    progress: Progress | None

    def batch(self, images: Tensor, start: int, size: int) -> Batch:
        images = images.clone() if images.is_inference() else images

        def find(logits: Tensor) -> Target:
            check_logits(logits, start)
            return resolve(self.target, logits, self.subject.labels, start=start, count=self.count)

        ask = Ask(self.subject.model, self.subject.forward, images, find, self.layout, self.seed, size, start, self.count)
        if self.count == len(images) and self.progress is not None:
            ask.progress = self.progress
        parts = self.traced(images, find, ask)
        for job in self.jobs:
            if not job.method.traced:
                parts[job.label] = self.asked(job, ask)
        logits, target = ask.look()
        return Batch(logits, target, parts)

    def traced(self, images: Tensor, find: Callable[[Tensor], Target], ask: Ask) -> dict[str, Part]:
        """All trace methods over one shared trace."""
        jobs = [j for j in self.jobs if j.method.taps is not None]
        if not jobs:
            return {}
        started, layout = time.perf_counter(), self.layout()
        taps = [j.method.taps(j.settings, layout) for j in jobs if j.method.taps is not None]
        shared = trace(self.subject.model, self.subject.forward, images, layout, taps=taps, target=find)
        ask.logits, ask.target = shared.logits.detach(), shared.target
        # gradients and products are taken in the precision of the forward pass or float32, never cast down again
        with closing(shared.recorder), no_autocast(images):
            views = [replace(shared, kept={} if self.insides else None, notes=[]) for _ in jobs]
            steps = [j.method.function(v, **j.settings) for j, v in zip(jobs, views, strict=True)]
            found = shared.feed(list(zip(taps, steps, strict=True)))
        seconds = time.perf_counter() - started
        parts = zip(jobs, views, found, strict=True)
        return {j.label: Part(s, seconds, dict(v.kept or {}), tuple(v.notes)) for j, v, s in parts}

    def asked(self, job: Job, ask: Ask) -> Part:
        started = time.perf_counter()
        ask.kept, ask.notes, ask.conservation = ({} if self.insides else None), [], {}
        scores = job.method.function(ask, **job.settings)
        return Part(scores, time.perf_counter() - started, dict(ask.kept or {}), tuple(ask.notes), ask.conservation)


def check_logits(logits: Tensor, start: int) -> None:
    bad = (~logits.isfinite()).flatten(1).any(1).nonzero()[:, 0].tolist()
    if bad:
        raise ModelError(
            f"the model's outputs for pictures {[start + b for b in bad[:5]]} are not finite. Use float32 or bfloat16."
        )


def joined(job: Job, batches: Sequence[Batch], source: Source, run: Run, notes: Sequence[str]) -> Explanation:
    """One explanation from the parts of all batches."""
    parts = [b.parts[job.label] for b in batches]
    scores = torch.cat([p.scores for p in parts]).detach()
    layout = run.layout() if job.method.traced else None
    on_tokens = job.method.returns(job.settings) == "tokens"
    if scores.dim() == 2 and layout is not None:
        scores = to_grid(scores, grid_of(layout, scores.shape[1]))
    targets = [b.target for b in batches]
    found = [*(n for p in parts for n in p.notes), *notes, *reports(job.method, scores, source)]
    return Explanation(
        method=job.method.name,
        settings=job.settings,
        tokens=scores if on_tokens else None,
        pixel_scores=None if on_tokens else scores,
        target=torch.cat([t.index for t in targets]),
        against=None if targets[0].against is None else torch.cat([t.against for t in targets if t.against is not None]),
        logits=torch.cat([b.logits for b in batches]),
        seconds=sum(p.seconds for p in parts),
        size=run.layout.size,
        model=run.subject.name,
        source=source,
        labels=run.subject.labels,
        notes=tuple(found),
        insides=join_insides([p.insides for p in parts]),
        conservation=join_insides([p.conservation for p in parts]),
    )


def grid_of(layout: Layout, tokens: int) -> tuple[int, int]:
    """The grid that this many scores lie on: the last one, or an earlier stage's."""
    grids = [layout.grid, *(g for g, _ in layout.stages)]
    return next((g for g in grids if tokens in (g[0] * g[1], g[0] * g[1] + layout.prefix, g[0] * g[1] + 1)), layout.grid)


def reports(method: Method, scores: Tensor, source: Source) -> list[str]:
    """What a reader must know: constant and broken maps are said, never hidden."""
    notes = ["class-blind: the map does not depend on the target"] if method.class_blind else []
    flat = scores.flatten(1)
    for index in (~flat.isfinite()).any(1).nonzero()[:, 0].tolist():
        notes.append(f"{source.name(index)}: {method.name} overflowed and the map holds NaN or infinity; use float32 or float64")
    for index in (flat.amax(1) == flat.amin(1)).nonzero()[:, 0].tolist():
        notes.append(f"{source.name(index)}: the map of {method.name} is constant ({flat[index, 0]:g}): it says nothing here")
    for note in notes[1 if method.class_blind else 0 :]:
        log.warning(note)
    return notes


def join_insides(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """name -> {block: (B, ...)}, or name -> (B, ...), over all batches."""

    def join(values: Sequence[Any]) -> Any:
        if isinstance(values[0], Mapping):
            return {k: join([v[k] for v in values]) for k in sorted(values[0])}
        return torch.cat(list(values))

    return {name: join([p[name] for p in parts]) for name in parts[0]}
