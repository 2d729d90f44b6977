"""What `explain` and `compare` share: a model from the options, and every readable picture put to every method."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from patchlight.api import BATCH, compare
from patchlight.cli._console import err, progress, say
from patchlight.cli._options import Precision
from patchlight.cli._pictures import Batch, Failure, Item, Reader
from patchlight.core.errors import SettingError, TargetError
from patchlight.core.interrupt import Interrupted
from patchlight.explanation import Explanation
from patchlight.models.load import load
from patchlight.models.subject import Subject

HALF = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


def load_subject(model: str, *, weights: str | None, labels: Path | None, device: str, precision: Precision) -> Subject:
    subject = load(model, weights=weights, labels=None if labels is None else read_labels(labels), device=device)
    if precision is Precision.float64:
        subject.model.double()
    return subject


def read_labels(path: Path) -> list[str]:
    """Class names, one a line or as a JSON list."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"--labels {path} cannot be read as text ({type(error).__name__}). Give a file of names, one a line."
        ) from error
    if not text.lstrip().startswith("["):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        names = json.loads(text)
    except ValueError as error:
        raise SettingError(f"--labels {path} begins like a JSON list, but is none: {error}. Give names, one a line.") from error
    return [str(name) for name in names]


def make_target(target: str | None, against: str | None) -> Any:
    if against is None:
        return target
    if target is None:
        raise TargetError(
            f"--against {against} needs --target: a contrast explains one class rather than another. Add --target CLASS."
        )
    return target, against


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that stays the same from batch to batch."""

    subject: Subject
    methods: dict[str, dict[str, Any]]
    target: Any = None
    batch_size: int | None = None
    seed: int = 0
    insides: bool = False
    precision: Precision = Precision.float32

    @property
    def size(self) -> int:
        return self.batch_size or BATCH.get(self.subject.device.type, 16)

    def explain(self, batch: Batch, tell: Callable[[int, int], None] | None = None) -> dict[str, Explanation]:
        options = {"batch_size": self.batch_size, "seed": self.seed, "insides": self.insides}
        with autocast(self.precision, self.subject):
            return compare(self.subject, batch, self.methods, self.target, progress=tell, **options)


def autocast(precision: Precision, subject: Subject) -> AbstractContextManager[Any]:
    return torch.autocast(subject.device.type, HALF[precision]) if precision in HALF else nullcontext()


@dataclass
class Work:
    """One pass over the pictures."""

    job: Job
    items: Sequence[Item]
    quiet: bool = False
    partial: bool = False  # of a batch that was interrupted, also hand over the methods that were done
    failures: list[Failure] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Batch, dict[str, Explanation]]]:
        """Each batch of readable pictures and what the methods found in it."""
        with progress("explaining", len(self.items), quiet=self.quiet) as advance:
            for count, batch in Reader(self.items, self.job.subject.preprocess, self.job.size, self.failures):
                steps = Steps(count, len(self.job.methods), advance)
                if len(batch):
                    try:
                        yield batch, self.job.explain(batch, steps.tell)
                    except Interrupted as stop:
                        whole = {name: e for name, e in stop.found.items() if len(e) == len(batch)}
                        if whole and (self.partial or len(whole) == len(self.job.methods)):
                            yield batch, whole  # with a note on samples that are missing
                        raise
                steps.end()


@dataclass
class Steps:
    """Pictures on a bar, in the parts that a method tells: each of the methods takes a share of the batch."""

    count: int
    methods: int
    advance: Callable[[float], None]
    seen: float = 0.0
    before: float = 0.0
    latest: float = 0.0

    def tell(self, done: int, total: int) -> None:
        """A step back means that the next method has begun."""
        now = done / max(1, total)
        if now < self.latest:
            self.before += self.latest
        self.latest = now
        self.to(self.count * min(1.0, (self.before + now) / self.methods))

    def to(self, place: float) -> None:
        self.advance(place - self.seen)
        self.seen = place

    def end(self) -> None:
        self.to(self.count)


def single(explanation: Explanation, index: int) -> Explanation:
    """The part of an explanation that belongs to one picture."""
    source = explanation.source
    assert isinstance(source, Batch)
    one = replace(source, read=source.read[index : index + 1])

    def part(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[index : index + 1]

    return replace(
        explanation,
        source=one,
        tokens=part(explanation.tokens),
        pixel_scores=part(explanation.pixel_scores),
        target=explanation.target[index : index + 1],
        against=part(explanation.against),
        logits=explanation.logits[index : index + 1],
        notes=notes_of(explanation, index),
        error=part(explanation.error),
        samples=part(explanation.samples),
        conservation=of_insides(explanation.conservation, lambda t: t[index : index + 1]),
        insides=of_insides(explanation.insides, lambda t: t[index : index + 1]),
    )


def of_insides(insides: Any, change: Callable[[Any], Any]) -> Any:
    return {k: of_insides(v, change) for k, v in insides.items()} if hasattr(insides, "items") else change(insides)


def notes_of(explanation: Explanation, index: int) -> tuple[str, ...]:
    """What concerns one picture: its own notes and those of the whole call, then what had to be done to read it."""
    source = explanation.source
    others = {source.name(i) for i in range(len(source))} - {source.name(index)}
    kept = [n for n in explanation.notes if not any(n.startswith(f"{other}: ") for other in others)]
    return (*dict.fromkeys(kept), *source.picture(index).notes)


def class_and_share(explanation: Explanation, index: int) -> tuple[str, float]:
    target = int(explanation.target[index])
    return explanation.class_name(target), float(explanation.logits[index].double().softmax(-1)[target])


def name_failures(failures: Sequence[Failure]) -> None:
    """At the end, on standard error: what could not be explained and why."""
    if not failures:
        return
    console = err()
    say(console, f"{len(failures)} {'picture' if len(failures) == 1 else 'pictures'} could not be read:", style="bold")
    for failure in failures:
        say(console, f"  {failure.file}: {failure.reason}")
