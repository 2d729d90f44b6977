"""What `evaluate` does: pictures with what is known of them, maps for them, and the scores as tables and pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from patchlight import data as sets
from patchlight.api import explain
from patchlight.cli._console import progress
from patchlight.cli._pictures import Failure, find
from patchlight.cli._run import Job, autocast
from patchlight.cli._settings import parsed
from patchlight.cli.explain import save_picture
from patchlight.core.errors import PictureError, SettingError, nearest
from patchlight.core.item import Item
from patchlight.core.maps import find_map, read_maps
from patchlight.core.metric import Metric, discover_metrics, get_metric
from patchlight.core.pictures import read_picture
from patchlight.core.registry import Method, Setting, get
from patchlight.core.score import Score, together
from patchlight.evaluation import evaluate_many
from patchlight.render.curves import curves

BASELINES = ("random", "centre", "edge")
Scores = dict[str, dict[str, Score]]
"""maps -> metric -> score"""


@dataclass(frozen=True)
class Wanted:
    """What was asked for, with the settings that belong to each."""

    method: str
    metrics: dict[str, dict[str, Any]]
    data: str | None
    method_settings: dict[str, Any] = field(default_factory=dict)
    data_settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, method: str, metrics: Iterable[str], data: str | None, given: Iterable[str]) -> Wanted:
        found = cls(get(method).name, {name: {} for name in chosen(metrics)}, data)
        for text in given:
            found.put(text)
        return found

    def put(self, text: str) -> None:
        """`NAME=VALUE` for every metric that has it, or `OWNER.NAME=VALUE` for a metric, the method or the data set."""
        left, equals, value = text.partition("=")
        owner, _, name = left.strip().rpartition(".")
        if not equals or not name:
            raise SettingError(
                f"--set takes NAME=VALUE or OWNER.NAME=VALUE, but {text!r} came. For example: --set deletion.fill=blur."
            )
        places: dict[str, tuple[Any, dict[str, Any]]] = {m: (get_metric(m), s) for m, s in self.metrics.items()}
        having = [m for m, (metric, _) in places.items() if name in metric.settings]
        places[self.method] = get(self.method), self.method_settings
        if self.data is not None:
            places[self.data] = sets.datasets()[self.data], self.data_settings
        if owner and owner not in places:
            raise SettingError(
                f"--set {text}: {owner!r} is none of the metrics, method and data of this call.{nearest(owner, places)}"
            )
        owners = [owner] if owner else having or [self.method]
        for one in owners:
            thing, into = places[one]
            into[name] = value_of(thing, name, value.strip())


def value_of(thing: Metric | Method | Any, name: str, text: str) -> Any:
    setting: Setting | None = thing.settings.get(name)
    return thing.resolve({name: text if setting is None else parsed(setting, text)})[name]


def chosen(names: Iterable[str]) -> list[str]:
    """Metric names from `a,b` and from the names of families, each once; what needs a file of weights is named by itself."""
    known, found = discover_metrics(), []
    for name in (n.strip() for part in names for n in part.split(",") if n.strip()):
        family = [m.name for m in known.values() if m.family == name and "weights" not in m.needs(m.resolve({}))]
        found += family or [get_metric(name).name]
    if not found:
        raise SettingError("no metric was named. Give names such as deletion,insertion; `patchlight metrics` lists them.")
    return list(dict.fromkeys(found))


@dataclass
class Pictures:
    """Items, read when their turn comes; those that cannot be read are remembered."""

    entries: Sequence[Any]
    total: int
    stems: Sequence[str] = ()
    failures: list[Failure] = field(default_factory=list)

    def batches(self, size: int) -> Iterator[tuple[int, list[tuple[int, str, Item]]]]:
        """(looked at, (number, stem, item) of those that could be read)"""
        for start in range(0, self.total, size):
            numbers = range(start, min(start + size, self.total))
            yield len(numbers), [(k, self.stem(k), item) for k in numbers if (item := self.read(k)) is not None]

    def stem(self, index: int) -> str:
        return self.stems[index]

    def read(self, index: int) -> Item | None:
        entry = self.entries[index]
        try:
            return entry.read() if hasattr(entry, "read") else Item(entry.file, read_picture(entry.what).image)
        except PictureError as error:
            self.failures.append(Failure(getattr(entry, "file", None) or entry.name, str(error)))
            return None


def pictures(images: Sequence[str], wanted: Wanted, *, root: Path | None, limit: int | None, seed: int) -> Pictures:
    if (wanted.data is None) == (not images):
        raise SettingError(
            "give either pictures or --data NAME, not both and not neither. For example: patchlight evaluate photos/"
        )
    if wanted.data is None:
        found = find(images)
        found = found[:limit] if limit else found
        return Pictures(found, len(found), [f.stem for f in found])
    data = sets.open(wanted.data, root=root, **wanted.data_settings)
    data = data.sample(min(limit, len(data)), seed=seed) if limit else data
    return Pictures(data.entries, len(data), [Path(n).stem for n in data.names])


def run(
    job: Job, wanted: Wanted, found: Pictures, *, maps: Path | None, truth: str | None, baselines: bool, quiet: bool
) -> Scores:
    """Every batch is explained and scored before the next is read."""
    parts: dict[str, list[dict[str, Score]]] = {}
    name = wanted.method if maps is None else str(maps)
    file = None if maps is None or maps.is_dir() else saved(maps, found.total)
    with progress("scoring", found.total, quiet=quiet) as advance:
        for count, batch in found.batches(job.size):
            if batch:
                items = [item for _, _, item in batch]
                if maps is None:
                    parts.setdefault(name, []).append(one(job, wanted, items, name, truth))
                else:
                    ours = [file[k] if file is not None else read_maps(find_map(maps, stem))[0] for k, stem, _ in batch]
                    parts.setdefault(name, []).append(elsewhere(job, wanted, items, ours, truth))
                for base in BASELINES if baselines else ():
                    if base != name:
                        parts.setdefault(base, []).append(one(job, wanted, items, base, truth))
            advance(count)
    if not parts:
        raise PictureError(f"none of the {found.total} pictures can be read. The first: {found.failures[0].reason}")
    return {row: {m: together([p[m] for p in scores]) for m in wanted.metrics if m in scores[0]} for row, scores in parts.items()}


def saved(path: Path, count: int) -> np.ndarray:
    maps = read_maps(path)
    if len(maps) != count:
        raise PictureError(
            f"{path} holds {len(maps)} maps for {count} pictures. Give one for each, in the order of the pictures."
        )
    return maps


def one(job: Job, wanted: Wanted, items: list[Item], method: str, truth: str | None) -> dict[str, Score]:
    """A method of ours."""
    settings = wanted.method_settings if method == wanted.method else {}
    with autocast(job.precision, job.subject):
        e = explain(job.subject, items, method, job.target, batch_size=job.batch_size, seed=job.seed, **settings)
    return score(job, wanted, items, e, truth)


def elsewhere(job: Job, wanted: Wanted, items: list[Item], maps: list[np.ndarray], truth: str | None) -> dict[str, Score]:
    """Maps that came in files."""
    kept = {n: s for n, s in wanted.metrics.items() if "method" not in get_metric(n).needs(get_metric(n).resolve(s))}
    if len(kept) < len(wanted.metrics):
        left = ", ".join(sorted(set(wanted.metrics) - set(kept)))
        raise SettingError(f"{left}: needs maps made anew, which --maps cannot give. Leave it out, or use --method.")
    return score(job, wanted, items, maps, truth)


def score(job: Job, wanted: Wanted, items: list[Item], e: Any | Tensor, truth: str | None) -> dict[str, Score]:
    with autocast(job.precision, job.subject):
        return evaluate_many(job.subject, items, e, wanted.metrics, truth, batch_size=job.batch_size, seed=job.seed)


def records(scores: Scores) -> dict[str, Any]:
    """All numbers, ready for JSON."""
    return {"scores": {row: {m: with_curve(s) for m, s in found.items()} for row, found in scores.items()}}


def with_curve(score: Score) -> dict[str, Any]:
    if score.curve is None or score.at is None:
        return score.record()
    mean = score.curve[score.counted].mean(0).tolist()
    return {**score.record(), "at": score.at.tolist(), "mean_curve": [v if v == v else None for v in mean]}


def write(scores: Scores, folder: Path, model: str) -> list[Path]:
    """scores.json, values.csv, curves.csv and a picture of the curves of each metric."""
    document = folder / "scores.json"
    whole(document, json.dumps({"model": model, **records(scores)}, indent=2, ensure_ascii=False, allow_nan=False))
    values = [
        (row, m, name, v)
        for row, f in scores.items()
        for m, s in f.items()
        for name, v in zip(s.names, s.values.tolist(), strict=True)
    ]
    files = [document, table(folder / "values.csv", ("maps", "metric", "picture", "value"), values)]
    lines = [(row, m, *line) for row, f in scores.items() for m, s in f.items() for line in curve_rows(s)]
    if lines:
        files.append(table(folder / "curves.csv", ("maps", "metric", "picture", "at", "value"), lines))
    for m in next(iter(scores.values())):
        drawn = {row: f[m] for row, f in scores.items() if m in f and f[m].curve is not None}
        if drawn and (at := next(iter(drawn.values())).at) is not None:
            picture = curves(
                at.cpu().numpy(),
                {row: s.curve.cpu().double().numpy() for row, s in drawn.items() if s.curve is not None},
                title=m,
            )
            path = folder / f"{m}.png"
            save_picture(picture, path)
            files.append(path)
    return files


def curve_rows(score: Score) -> Iterator[tuple[str, float, float]]:
    if score.curve is not None and score.at is not None:
        for name, row in zip(score.names, score.curve.tolist(), strict=True):
            yield from ((name, at, v) for at, v in zip(score.at.tolist(), row, strict=True))


def table(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    aside = path.with_name(f".{path.name}.part")
    with aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
    aside.replace(path)
    return path


def whole(path: Path, text: str) -> None:
    """Written aside and renamed: complete or not there at all."""
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
