"""A shard of a plan becomes rows: every method over a few pictures of one model, every metric over every map."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from patchlight.api import compare, explain
from patchlight.bench.cell import Cell
from patchlight.bench.opened import Opened, Pictures
from patchlight.bench.plan import Plan
from patchlight.bench.store import Store, Work
from patchlight.core.errors import PatchlightError
from patchlight.core.registry import get
from patchlight.core.score import Score
from patchlight.evaluation import evaluate_many
from patchlight.explanation import Explanation
from patchlight.models.subject import Subject

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
Row = dict[str, Any]
Timed = tuple[Score, float]  # metrics that share forward passes share their time equally: seconds of a picture


@dataclass(frozen=True)
class Job:
    """What every worker must know. `threads`: of each worker, since the number of threads may move the last bit of a sum."""

    plan: Plan
    store: Store
    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True)
class Shard:
    """A range of pictures of one model and data set, and what is still to be done there: method -> metrics."""

    model: str
    data: str
    target: str
    seed: int
    start: int
    stop: int
    pictures: str  # the digest of their content
    todo: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def cells(self) -> int:
        return sum(len(metrics) for _, metrics in self.todo)


@dataclass(frozen=True)
class Done:
    """What a worker says of a shard; the rows themselves are in the store."""

    shard: Shard
    rows: int
    failed: Mapping[str, int]  # reason -> rows
    seconds: float


Tell = Callable[[Done], None]


@dataclass(eq=False)
class Worker:
    """Runs shards one after the other; models and data stay open."""

    job: Job
    opened: Opened = field(init=False)

    def __post_init__(self) -> None:
        self.opened = Opened(self.job.plan, self.job.device)

    def work_off(self, shard: Shard) -> Done:
        """All rows of a shard, a part in the store for each method as it ends."""
        if self.job.threads:
            torch.set_num_threads(self.job.threads)
        began, count, failed = time.perf_counter(), 0, dict[str, int]()
        for method, rows in self.rows(shard):
            keys = {c.key: asdict(c) for m in dict(shard.todo)[method] if (c := self.cell(shard, method, m))}
            self.job.store.write(rows, Work(tuple(keys), shard.pictures, shard.start, shard.stop - shard.start), keys)
            count += len(rows)
            for row in rows:
                if row["error"]:
                    failed[row["error"]] = failed.get(row["error"], 0) + 1
        return Done(shard, count, failed, time.perf_counter() - began)

    def cell(self, shard: Shard, method: str, metric: str) -> Cell:
        return self.opened.cell(shard.model, method, metric, shard.target, shard.seed)

    def rows(self, shard: Shard) -> Iterator[tuple[str, list[Row]]]:
        """For each method its rows."""
        subject = self.opened.subject(shard.model)
        pictures = self.opened.pictures(shard.data, shard.start, shard.stop)
        for method, explanation in self.maps(subject, pictures, shard):
            about = About(self, shard, subject, pictures, method)
            yield method, about.rows(explanation, dict(shard.todo)[method])

    # -- maps ---------------------------------------------------------------------------------------------------------------

    def maps(self, subject: Subject, pictures: Pictures, shard: Shard) -> Iterator[tuple[str, Explanation | Exception]]:
        """Methods that read one trace share it; the others come one by one, so that one map at a time is held."""
        plan = self.job.plan
        shared = [m for m, _ in shard.todo if get(plan.method(m)[0]).traced]
        found: dict[str, Explanation | Exception] = {}
        if len(shared) > 1 and len(pictures):
            try:
                with self.precision(subject):
                    found |= compare(subject, pictures.items, {m: given(plan, m) for m in shared},
                                     pictures.target(shard.target), **self.options(shard))  # fmt: skip
            except Exception:  # one of them cannot: each says for itself, by whatever it raises
                found = {}
        for method, _ in shard.todo:
            yield method, found.pop(method, None) or self.map(subject, pictures, shard, method)

    def map(self, subject: Subject, pictures: Pictures, shard: Shard, method: str) -> Explanation | Exception:
        if not len(pictures):
            return PatchlightError("none of the pictures of this shard could be read. See the rows' errors.")
        name, settings = self.job.plan.method(method)
        try:
            with self.precision(subject):
                return explain(subject, pictures.items, name, pictures.target(shard.target), **self.options(shard), **settings)
        except Exception as error:  # a method may come from anybody: what it raises is its row, and the others go on
            return error

    def options(self, shard: Shard) -> dict[str, Any]:
        """autocast: a plan's precision is what it says, also where masking methods would take half of it by themselves."""
        plan = self.job.plan
        return {"batch_size": plan.batch, "seed": shard.seed, "autocast": plan.precision in HALF}

    def precision(self, subject: Subject) -> Any:
        half = HALF.get(self.job.plan.precision)
        return nullcontext() if half is None else torch.autocast(subject.device.type, half)


def given(plan: Plan, label: str) -> dict[str, Any]:
    name, settings = plan.method(label)
    return {"method": name, **settings}


@dataclass(frozen=True, eq=False)
class About:
    """One method on the pictures of a shard: its cells and its rows."""

    worker: Worker
    shard: Shard
    subject: Subject
    pictures: Pictures
    method: str

    def rows(self, found: Explanation | Exception, metrics: Sequence[str]) -> list[Row]:
        """One row for each picture and metric; what failed has its reason in place of the value."""
        if isinstance(found, Exception):
            return self.filled(metrics, reason(found))
        rows: list[Row] = []
        for metric, score in self.scores(found, metrics):
            if isinstance(score, Exception):
                rows += self.filled([metric], reason(score), found)
            else:
                rows += [self.row(metric, i, found, *score) for i in range(len(self.pictures))]
                rows += self.unread(metric)
        return rows

    def scores(self, found: Explanation, metrics: Sequence[str]) -> Iterator[tuple[str, Timed | Exception]]:
        """All metrics at once, so that they share their forward passes; where one fails, each for itself."""
        together = self.measured(found, metrics)
        if not isinstance(together, Exception):
            yield from together.items()
            return
        for metric in metrics:
            alone = together if len(metrics) == 1 else self.measured(found, [metric])
            yield metric, alone if isinstance(alone, Exception) else alone[metric]

    def measured(self, found: Explanation, metrics: Sequence[str]) -> dict[str, Timed] | Exception:
        plan = self.worker.job.plan
        asked = {m: {"metric": plan.metric(m)[0], **plan.metric(m)[1]} for m in metrics}
        began = time.perf_counter()
        try:
            with self.worker.precision(self.subject):
                scores = evaluate_many(
                    self.subject, self.pictures.items, found, asked, seed=self.shard.seed, batch_size=plan.batch
                )
            share = (time.perf_counter() - began) / len(scores) / len(self.pictures)
            return {m: (score, share) for m, score in scores.items()}
        except Exception as error:
            return error

    # -- rows ---------------------------------------------------------------------------------------------------------------

    def row(self, metric: str, i: int, found: Explanation, score: Score, seconds: float) -> Row:
        share = found.logits[i].double().softmax(-1)
        explained = int(found.target[i])
        value = float(score.values[i])
        curve = None if score.curve is None else score.curve[i].double().tolist()
        return {
            **self.common(metric, self.pictures.numbers[i], self.pictures.names[i], self.pictures.labels[i]),
            "explained": explained,
            "predicted": int(found.logits[i].argmax()),
            "probability": float(share[explained]),
            "value": value if value == value else None,
            "error": None if value == value else "the metric gave no number for this picture",
            "curve": curve,
            "at": None if score.at is None or curve is None else score.at.double().tolist(),
            "parts": json.dumps({n: p[i].double().tolist() for n, p in score.parts.items()}) if score.parts else None,
            "map_seconds": found.seconds / len(self.pictures),
            "metric_seconds": seconds,
        }

    def filled(self, metrics: Sequence[str], error: str, found: Explanation | None = None) -> list[Row]:
        """Rows without a value, for every picture that could be read, and for those that could not."""
        rows: list[Row] = []
        for metric in metrics:
            for number, name, label in zip(self.pictures.numbers, self.pictures.names, self.pictures.labels, strict=True):
                seconds = None if found is None else found.seconds / len(self.pictures)
                rows.append({**self.common(metric, number, name, label), "error": error, "map_seconds": seconds})
            rows += self.unread(metric)
        return rows

    def unread(self, metric: str) -> list[Row]:
        return [{**self.common(metric, n, name, None), "error": error} for n, name, error in self.pictures.unread]

    def common(self, metric: str, number: int, picture: str, label: int | None) -> Row:
        cell = self.worker.cell(self.shard, self.method, metric)
        return {
            "cell": cell.key, "model": self.shard.model, "data": self.shard.data, "method": self.method, "metric": metric,
            "method_name": cell.method, "method_settings": cell.method_settings, "metric_name": cell.metric,
            "metric_settings": cell.metric_settings, "target": cell.target, "seed": cell.seed, "precision": cell.precision,
            "picture": picture, "content": self.pictures.contents.get(number), "index": number, "label": label, "error": None,
            "device": device_name(self.subject.device),
        }  # fmt: skip


def reason(error: Exception) -> str:
    """The first line, with the kind of error where it is none of ours."""
    text = (str(error).strip().splitlines() or ["no message"])[0]
    return text if isinstance(error, PatchlightError) else f"{type(error).__name__}: {text}"


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
