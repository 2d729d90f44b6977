"""`patchlight evaluate`: how good are the maps of a method, or maps made elsewhere, beside random, centre and edges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from patchlight.cli import _options as o
from patchlight.cli._console import err, out, say, say_json

if TYPE_CHECKING:
    from patchlight.cli._scores import Scores
    from patchlight.core.score import Score

Pictures = Annotated[list[str] | None, typer.Argument(metavar="IMG", help="Files, folders or globs; or use --data.")]
Method = Annotated[str, typer.Option("--method", "-M", help="The method whose maps are scored.")]
Metrics = Annotated[list[str] | None, typer.Option("--metric", help="a,b,c or a family. [default: deletion,insertion]")]
Maps = Annotated[Path | None, typer.Option("--maps", help="Maps made elsewhere: a folder with one a picture, or a file.")]
Data = Annotated[str | None, typer.Option("--data", help="A data set, which brings labels, boxes and masks.")]
Root = Annotated[Path | None, typer.Option("--root", help="Where the data set lies. [default: $PATCHLIGHT_DATA/NAME]")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="So many pictures: the first, or of a data set some drawn by the seed.")
]
Truth = Annotated[str | None, typer.Option("--truth", help="The class (number or name) that all pictures show.")]
Baselines = Annotated[bool, typer.Option("--baselines/--no-baselines", help="Also score random, centre and edge maps.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="[OWNER.]NAME=VALUE",
        help="A setting, of all metrics that have it, or of the OWNER named: a metric, the method or the data set.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="A folder for scores.json, values.csv, curves.csv and pictures.")]


def command(
    images: Pictures = None,
    *,
    model: o.Model = "pets-vit",
    method: Method = "transformer_mm",
    metric: Metrics = None,
    maps: Maps = None,
    data: Data = None,
    root: Root = None,
    limit: Limit = None,
    truth: Truth = None,
    target: o.Target = None,
    baselines: Baselines = True,
    folder: Out = None,
    settings: Settings = None,
    weights: o.Weights = None,
    labels: o.Labels = None,
    device: o.Device = "auto",
    precision: o.PrecisionOption = o.Precision.float32,
    batch_size: o.BatchSize = None,
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Score maps: one number for each metric, with its interval, n and the baselines that any map must beat."""
    from patchlight.cli import _run, _scores
    from patchlight.cli.explain import make_folder

    wanted = _scores.Wanted.of(method, metric or ["deletion", "insertion"], data, settings or [])
    if folder is not None:
        make_folder(folder)
    pictures = _scores.pictures(images or [], wanted, root=root, limit=limit, seed=seed)
    subject = _run.load_subject(model, weights=weights, labels=labels, device=device, precision=precision)
    job = _run.Job(subject, {wanted.method: wanted.method_settings}, target, batch_size, seed, precision=precision)
    scores = _scores.run(job, wanted, pictures, maps=maps, truth=truth, baselines=baselines, quiet=as_json)
    files = [] if folder is None else _scores.write(scores, folder, subject.name)
    if as_json:
        failures = [{"file": f.file, "reason": f.reason} for f in pictures.failures]
        say_json({"model": subject.name, **_scores.records(scores), "failures": failures, "files": [str(f) for f in files]})
    else:
        tell(scores, files)
        _run.name_failures(pictures.failures)
    if pictures.failures:
        raise typer.Exit(1)


def tell(scores: Scores, files: list[Path]) -> None:
    names = list(next(iter(scores.values())))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("maps", no_wrap=True)
    for name in names:
        table.add_column(heading(next(iter(scores.values()))[name], name), justify="right", no_wrap=True)
    for row, found in scores.items():
        table.add_row(row, *(cell(found[name]) if name in found else "-" for name in names))
    out().print(table)
    first = next(iter(scores.values()))
    say(out(), f"n = {max(s.n for s in first.values())}; in brackets the 95 % bootstrap interval", style="dim")
    for note in dict.fromkeys(n for found in scores.values() for s in found.values() for n in s.notes):
        say(err(), f"  {note}", style="dim")
    for file in files:
        say(out(), str(file))


def heading(score: Score, name: str) -> str:
    arrow = {"higher": " \N{UPWARDS ARROW}", "lower": " \N{DOWNWARDS ARROW}"}
    return name + arrow.get(score.metric.better, "")


def cell(score: Score) -> str:
    low, high = score.interval
    spread = f" [{low:.3f}, {high:.3f}]" if low == low else ""
    return f"{score.mean:.4f}{spread}"
