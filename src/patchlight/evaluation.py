"""`evaluate`: how good is a map, by one metric or by several that share one ranking and one run of forward passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.api import BATCH, check_logits, explain
from patchlight.core.annotations import Annotations
from patchlight.core.errors import PictureError, SettingError, TargetError
from patchlight.core.grid import to_pixels
from patchlight.core.maps import read_maps, seen_map
from patchlight.core.metric import Case, Found, Metric, get_metric
from patchlight.core.score import Score, added
from patchlight.core.source import Source, open_source
from patchlight.explanation import Explanation
from patchlight.metrics._pictures import Pictures
from patchlight.models.load import load
from patchlight.models.subject import Subject

log = logging.getLogger("patchlight")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """One metric with all its settings, under the name that the caller gave it."""

    label: str
    metric: Metric
    settings: dict[str, Any]


def evaluate(
    subject: Subject | nn.Module | str,
    images: Any,
    e: Explanation | Tensor | Sequence[Any] | str | Path,
    metric: str = "deletion",
    labels: Any = None,
    masks: Any = None,
    boxes: Any = None,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Score:
    """Score maps by one metric.

    subject, images: as for `explain`; images may be `Item`s, which bring labels, boxes and masks. e: an Explanation, or bare
    scores (B, H, W) at the model's input size or at that of the picture, or (B, h, w) on a grid, which are enlarged bilinearly,
    or a list of such maps, or a file of them (.npz, .npy, PNG). labels: class numbers or names. masks, boxes: one for each
    picture, in the picture's own pixels (`Item` says how) or in those of a given tensor. None stands for a label, a mask or
    boxes that are not known: that picture has no value in metrics that need them.
    batch_size: pictures scored at once (found by itself). seed: for metrics that draw. progress: called with (done, all).
    Other keywords are the metric's settings: `patchlight metrics NAME` shows them.
    """
    label = str(metric)
    found = evaluate_many(
        subject, images, e, {label: settings}, labels, masks, boxes, batch_size=batch_size, seed=seed, progress=progress
    )
    return found[label]


def evaluate_many(
    subject: Subject | nn.Module | str,
    images: Any,
    e: Explanation | Tensor | Sequence[Any] | str | Path,
    metrics: Sequence[str] | Mapping[str, Mapping[str, Any]],
    labels: Any = None,
    masks: Any = None,
    boxes: Any = None,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Score]:
    """Score maps by several metrics, which share one ranking and score each distinct picture once.

    metrics: names, or a dict name -> settings; to have a metric twice, {"any name": {"metric": "deletion", "fill": "blur"}}.
    The other arguments are those of `evaluate`. Needs are checked for every metric before any work is done.
    """
    subject = load(subject)
    jobs = make_jobs(metrics)
    e = torch.from_numpy(read_maps(e)) if isinstance(e, (str, Path)) else e
    source = open_source(images, subject.preprocess)
    told = Annotations.of(images, source, labels=labels, masks=masks, boxes=boxes, names=subject.labels)
    for job in jobs:
        check_needs(job, told, e)
    maps, explained = given_maps(e, source)
    run = Run(subject, jobs, source, told, maps, explained, again(subject, e), seed, batch_size)
    size = BATCH.get(subject.device.type, 16)
    parts: list[dict[str, Found]] = []
    for start in range(0, len(source), size):
        stop = min(start + size, len(source))
        parts.append(run.batch(start, stop))
        if progress is not None:
            progress(stop, len(source))
    return {job.label: run.joined(job, [p[job.label] for p in parts]) for job in jobs}


def make_jobs(metrics: Sequence[str] | Mapping[str, Mapping[str, Any]]) -> list[Job]:
    if isinstance(metrics, str):
        metrics = [metrics]
    given = metrics if isinstance(metrics, Mapping) else {str(name): {} for name in metrics}
    if not given:
        raise SettingError("no metrics came. Give names such as ['deletion', 'insertion']; `patchlight metrics` lists them.")
    jobs = []
    for label, settings in given.items():
        settings = dict(settings)
        metric = get_metric(settings.pop("metric", label))
        jobs.append(Job(label, metric, metric.resolve(settings)))
    return jobs


def check_needs(job: Job, told: Annotations, e: Any) -> None:
    """A need that the call does not meet is an error before any work."""
    have = {"labels": told.labels is not None, "masks": told.masks is not None, "boxes": told.boxes is not None}
    have |= {"boxes or masks": have["boxes"] or have["masks"], "method": isinstance(e, Explanation)}
    for need in job.metric.needs(job.settings):
        if need == "method" and not have[need]:
            raise SettingError(
                f"{job.metric.name} makes maps anew, so it needs what `explain` returned, but bare scores came. "
                "Give the Explanation."
            )
        if need == "method" and e.against is not None:
            raise SettingError(
                f"{job.metric.name} makes maps of one class anew, but these are for one class rather than another. "
                "Give maps that `explain` made for a single class."
            )
        if need == "weights":
            raise SettingError(
                f"{job.metric.name} compares with the same network trained on random labels, but no weights= came. "
                "Train it, save its state_dict, and give the file."
            )
        if not have[need]:
            raise SettingError(f"{job.metric.name} needs {need}, but none came. Give {need}, or Items with them, or --data.")


def given_maps(e: Any, source: Source) -> tuple[Tensor, Tensor]:
    """(B, h, w) scores as they came, in float32 or better, and (B,) the classes they are for, -1 where unknown."""
    raw = e.scores if isinstance(e, Explanation) else bare_maps(e, source)
    raw = raw[None] if raw.dim() == 2 and len(source) == 1 else raw
    if raw.dim() != 3 or not raw.numel():
        raise PictureError(f"maps are (B, H, W), but {tuple(raw.shape)} came. Give e, e.pixels or e.tokens.")
    if len(raw) != len(source):
        raise PictureError(f"{len(source)} pictures need {len(source)} maps, but {len(raw)} came. Give one map for each picture.")
    maps = raw.detach().to(torch.promote_types(raw.dtype, torch.float32))
    return maps, e.target if isinstance(e, Explanation) else torch.full((len(raw),), -1)


def bare_maps(e: Any, source: Source) -> Tensor:
    """A tensor, an array, or a list of maps; where these differ in size, each carried to the model's input for itself."""
    try:
        if not isinstance(e, (list, tuple)):
            return real(torch.as_tensor(e))
        rows = [real(torch.as_tensor(m)) for m in e]
        if not rows:
            raise ValueError("it is empty")
    except (TypeError, ValueError, RuntimeError) as error:
        raise PictureError(f"maps are numbers (B, H, W), but a {type(e).__name__} came ({error}). Give a tensor.") from error
    if len({r.shape for r in rows}) > 1 and len(rows) == len(source) and source.tensor is None:
        arrays = [r.detach().double().cpu().numpy() for r in rows]
        rows = [torch.from_numpy(seen_map(source.preprocess, a, source.extent(i))) for i, a in enumerate(arrays)]
    shapes = sorted({tuple(r.shape) for r in rows})
    if len(shapes) != 1:
        raise PictureError(
            f"the maps have different sizes ({', '.join(map(str, shapes[:4]))}), and are not those of their pictures. "
            "Give all at the model's input size, at their picture's own, or on one grid."
        )
    return torch.stack(rows)


def real(rows: Tensor) -> Tensor:
    if rows.is_complex():
        raise ValueError("complex numbers")
    return rows


def again(subject: Subject, e: Any) -> Callable[..., Tensor] | None:
    """Maps of other pictures, or for other classes, by the method and the settings that made `e`."""
    if not isinstance(e, Explanation):
        return None

    def remade(images: Tensor, *, target: Any = None, seed: int = 0) -> Tensor:
        return explain(subject, images, e.method, target, seed=seed, **e.settings).pixels

    return remade


@dataclass(eq=False)
class Run:
    """Everything that stays the same from batch to batch."""

    subject: Subject
    jobs: list[Job]
    source: Source
    told: Annotations
    maps: Tensor
    explained: Tensor
    explain: Callable[..., Tensor] | None
    seed: int
    batch_size: int | None
    notes: list[str] = field(default_factory=list)

    def batch(self, start: int, stop: int) -> dict[str, Found]:
        """What every metric found in these pictures, NaN for broken maps."""
        case = self.case(start, stop)
        sound = self.sound(case.pixels, start)
        if len(sound) < len(case):
            case = case.part(sound)
        found = self.drive(case, start) if len(case) else {}
        known = {job.label: self.labelled(job, found[job.label], start + sound) for job in self.jobs if found}
        return {job.label: spread(known.get(job.label), sound, stop - start) for job in self.jobs}

    def case(self, start: int, stop: int) -> Case:
        like = torch.empty(0, device=self.subject.device, dtype=self.subject.dtype)
        images = self.source.batch(start, stop, like=like)
        size = (int(images.shape[-2]), int(images.shape[-1]))
        told = self.told.part(start, stop, size=size, device=images.device)
        told["labels"] = None if told["labels"] is None else told["labels"].clamp_min(0)  # `labelled` takes out the unknown ones
        return Case(
            images=images,
            pixels=self.pixels(start, stop, size).to(images.device),
            explained=self.explained[start:stop].to(images.device),
            **told,
            seed=self.seed,
            model=self.subject.model,
            explain=self.explain,
            score=self.subject.scorer,
            layout=lambda: self.subject.layout(size),
        )

    def pixels(self, start: int, stop: int, size: tuple[int, int]) -> Tensor:
        """(b, H, W): a map on a grid is enlarged, one as large as its picture goes through the picture's resize and crop."""
        maps = self.maps[start:stop]
        if maps.shape[1:] == size:
            return maps
        ours = self.explain is not None or self.source.tensor is not None
        if ours and maps.shape[1] <= size[0] and maps.shape[2] <= size[1]:
            return to_pixels(maps, size)
        return torch.stack([self.seen(index, values, size) for index, values in enumerate(maps, start)])

    def seen(self, index: int, values: Tensor, size: tuple[int, int]) -> Tensor:
        """(H, W): a picture may be smaller than the model's input, so its own size is asked for before a grid is."""
        own = self.source.extent(index)
        if tuple(values.shape) == own[::-1]:
            return torch.from_numpy(seen_map(self.source.preprocess, values.cpu().numpy(), own)).to(values)
        if values.shape[0] <= size[0] and values.shape[1] <= size[1]:
            return to_pixels(values[None], size)[0]
        raise PictureError(
            f"the map of {self.source.name(index)} is {tuple(values.shape)}: larger than the model's input {size}, "
            f"and not of the size of its picture {own[::-1]} (height, width). Give one of these sizes, or a grid."
        )

    def labelled(self, job: Job, found: Found, numbers: Tensor) -> Found:
        """Without a value for the pictures whose label is not known, where the metric reads labels."""
        if self.told.labels is None or "labels" not in job.metric.needs(job.settings):
            return found
        unknown = torch.tensor([self.told.labels[i] < 0 for i in numbers.tolist()], device=found.values.device)
        if not unknown.any():
            return found
        curve = None if found.curve is None else found.curve.masked_fill(unknown[:, None], torch.nan)
        note = f"{int(unknown.sum())} pictures without a label: no value"
        return replace(found, values=found.values.masked_fill(unknown, torch.nan), curve=curve, notes=(*found.notes, note))

    def sound(self, pixels: Tensor, start: int) -> Tensor:
        """The numbers of the maps that can be read; the others, and those that say nothing, are named."""
        flat = pixels.flatten(1)
        finite = flat.isfinite().all(1)
        for index in (~finite).nonzero()[:, 0].tolist():
            self.note(f"{self.source.name(start + index)}: the map holds NaN or infinity: no value")
        for index in (finite & (flat.amax(1) == flat.amin(1))).nonzero()[:, 0].tolist():
            self.note(f"{self.source.name(start + index)}: the map is constant: ranked by index, flat everywhere else")
        return finite.nonzero()[:, 0]

    def note(self, text: str) -> None:
        self.notes.append(text)
        log.warning(text)

    def drive(self, case: Case, start: int) -> dict[str, Found]:
        """Ask all metrics which pictures they want, score each distinct one once, hand out the answers; until all are done."""
        mean, std = self.subject.preprocess.mean, self.subject.preprocess.std
        black = (-mean[0] / std[0], -mean[1] / std[1], -mean[2] / std[2])
        pictures = Pictures(case, self.subject.scorer.in_batches_of(self.batch_size), black)
        reads = any("labels" in job.metric.needs(job.settings) for job in self.jobs)
        running, found = {}, {}
        for job in self.jobs:
            step = job.metric.function(case, **job.settings)
            if isinstance(step, Found):
                found[job.label] = step
            else:
                running[job.label] = step, next(step)
        while running:
            pictures.learn(edit for _, edits in running.values() for edit in edits)
            following = {}
            for label, (steps, edits) in running.items():
                answer = pictures.answer(edits)
                check_logits(answer.flatten(1), start)
                check_labels(case.labels if reads else None, answer.shape[-1])
                try:
                    following[label] = steps, steps.send(answer)
                except StopIteration as done:
                    found[label] = done.value
            running = following
        return found

    def joined(self, job: Job, parts: Sequence[Found]) -> Score:
        """One score from what was found in all batches."""
        curves = [p.curve for p in parts if p.curve is not None]
        names = next((tuple(p.parts) for p in parts if p.parts), ())
        shapes = {n: next(p.parts[n].shape[1:] for p in parts if p.parts) for n in names}
        return Score(
            metric=job.metric,
            settings=job.settings,
            values=torch.cat([p.values for p in parts]),
            curve=torch.cat([curve_of(p, curves[0]) for p in parts]) if curves else None,
            at=next((p.at for p in parts if p.at is not None), None),
            parts={n: torch.cat([p.parts.get(n, empty(p.values, shapes[n])) for p in parts]) for n in names},
            names=tuple(self.source.name(i) for i in range(len(self.source))),
            notes=tuple(dict.fromkeys([*self.notes, *added(n for p in parts for n in p.notes)])),
        )


def check_labels(labels: Tensor | None, classes: int) -> None:
    if labels is not None and int(labels.max()) >= classes:
        raise TargetError(
            f"labels: {int(labels.max())} came, but the model counts its classes from 0 to {classes - 1}. "
            "Give labels in the model's own numbers."
        )


def spread(found: Found | None, sound: Tensor, count: int) -> Found:
    """The numbers at the places of their pictures, NaN at the others."""
    if found is None:
        return Found(torch.full((count,), torch.nan, dtype=torch.float64, device=sound.device))
    if len(sound) == count:
        return found

    def over(rows: Tensor) -> Tensor:
        every = torch.full((count, *rows.shape[1:]), torch.nan, dtype=torch.float64, device=rows.device)
        every[sound] = rows.double()
        return every

    curve = None if found.curve is None else over(found.curve)
    return Found(over(found.values), curve, found.at, {n: over(p) for n, p in found.parts.items()}, found.notes)


def curve_of(part: Found, like: Tensor) -> Tensor:
    return empty(part.values, like.shape[1:]) if part.curve is None else part.curve


def empty(values: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.full((len(values), *shape), torch.nan, dtype=torch.float64, device=values.device)
