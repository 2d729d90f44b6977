"""`patchlight compare`: a contact sheet of pictures and methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patchlight.cli import _options as o
from patchlight.cli._console import out, say, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from patchlight.cli._pictures import Batch, Item
    from patchlight.cli._run import Work
    from patchlight.core.layout import Layout
    from patchlight.explanation import Explanation
    from patchlight.render.sheet import Row

DEFAULT = ("raw_attention", "rollout", "grad_cam", "ag_cam", "attcat", "transformer_mm", "vtranm", "random")
ENOUGH = 4  # a default choice of which fewer work is replaced by all fast methods
MOST = 100  # pictures on a sheet
LONGEST = 1024  # pixels that are kept of a photo until the sheet is drawn


def command(
    images: o.Images,
    *,
    model: o.Model = "pets-vit",
    methods: Annotated[
        list[str] | None, typer.Option("--methods", "-M", help="a,b,c, all, or fast. [default: a selection]")
    ] = None,
    target: o.Target = None,
    against: o.Against = None,
    file: Annotated[Path, typer.Option("--out", "-o", help="The picture to write.")] = Path("sheet.png"),
    settings: o.Set = None,
    until: o.Until = None,
    weights: o.Weights = None,
    labels: o.Labels = None,
    device: o.Device = "auto",
    precision: o.PrecisionOption = o.Precision.float32,
    batch_size: o.BatchSize = None,
    seed: o.Seed = 0,
    html: Annotated[Path | None, typer.Option("--html", help="Also write this page, which opens offline in any browser.")] = None,
    dark: Annotated[bool, typer.Option("--dark", help="On a dark page.")] = False,
    as_json: o.Json = False,
) -> None:
    """Compare methods on one contact sheet: pictures down, methods across, one colour scale for each method."""
    from patchlight.cli import _pictures, _run, _settings
    from patchlight.cli.explain import picture_format

    picture_format(file)  # an ending that nobody can write is said before the work, not after it
    if methods:
        _settings.settings_for(_settings.chosen(methods), [*(settings or []), *_settings.ending(until)])
    wanted = _run.make_target(target, against)
    items = few_enough(_pictures.find(images))
    subject = _run.load_subject(model, weights=weights, labels=labels, device=device, precision=precision)
    names = _settings.chosen(methods) if methods else selection(subject.layout())
    given = _settings.settings_for(names, [*(settings or []), *_settings.ending(until)])
    reasons = why_not(names, subject.layout(), subject.name)
    typed = {n.strip() for part in methods or [] for n in part.split(",")}
    names = [n for n in names if n not in reasons or n in typed]  # what a word chose and cannot serve needs no empty column
    job = _run.Job(subject, {n: given[n] for n in names if n not in reasons}, wanted, batch_size, seed, precision=precision)
    work = _run.Work(job, items, quiet=as_json)
    _, pictures, files = gathered(work, names, reasons, file, dark=dark, html=html)
    told = {"model": subject.name, "methods": names, "left_out": reasons, "pictures": pictures, "files": files}
    if as_json:
        say_json({**told, "failures": [{"file": f.file, "reason": f.reason} for f in work.failures]})
    else:
        tell(told)
        _run.name_failures(work.failures)
    if work.failures:
        raise typer.Exit(1)


def gathered(
    work: Work, names: list[str], reasons: dict[str, str], file: Path, *, dark: bool, html: Path | None
) -> tuple[list[Row], list[Any], list[str]]:
    """The rows of the sheet, the records of the pictures and the files written; an interrupt keeps the pictures that are done."""
    rows: list[Row] = []
    pictures: list[Any] = []
    pages: list[Any] = []
    files: list[str] = []
    try:
        for batch, found in work:
            rows += rows_of(batch, found, names, reasons)
            pictures += records(batch, found)
            pages += [page_of(found, len(batch), len(work.items))] if html else []
    finally:
        if rows:
            save_sheet(rows, names, file, dark=dark)
            files = [str(file), *([save_pages(pages, html)] if html else [])]
    return rows, pictures, files


def tell(told: Mapping[str, Any]) -> None:
    for name, reason in told["left_out"].items():
        say(out(), f"{name} cannot explain {told['model']}: {reason}", style="dim")
    if told["files"]:
        say(out(), f"{len(told['pictures'])} pictures, {len(told['methods'])} methods: {', '.join(told['files'])}")


def few_enough(items: list[Item]) -> list[Item]:
    from patchlight.core.errors import SettingError

    if len(items) > MOST:
        raise SettingError(
            f"a sheet holds at most {MOST} pictures, but {len(items)} came. Give fewer, or use `patchlight explain`."
        )
    return items


def selection(layout: Layout) -> list[str]:
    """The usual methods that serve the layout, or where these are few, all fast ones that do."""
    from patchlight.cli._settings import chosen, missing
    from patchlight.core.registry import get

    usual, fast = ([n for n in chosen(names) if not missing(get(n), layout)] for names in (DEFAULT, ["fast"]))
    return usual if len(usual) >= ENOUGH else fast


def why_not(names: Sequence[str], layout: Layout, model: str) -> dict[str, str]:
    """The methods that cannot serve the layout, and why; an error where that is all of them."""
    from patchlight.cli._settings import missing
    from patchlight.core.errors import ModelError
    from patchlight.core.registry import get

    found = {name: reason for name in names if (reason := missing(get(name), layout))}
    if len(found) == len(names):
        told = "; ".join(f"{n}: {r}" for n, r in found.items())
        raise ModelError(f"none of the methods can explain {model}: {told}. `patchlight doctor {model}` shows which can.")
    return found


def rows_of(batch: Batch, found: Mapping[str, Explanation], names: Sequence[str], reasons: Mapping[str, str]) -> Iterator[Row]:
    """A row of the sheet for each picture; of a large photo only what the sheet can show is kept."""
    from patchlight.cli._run import class_and_share
    from patchlight.render.overlay import shrunk
    from patchlight.render.sheet import Row

    some = next(iter(found.values()))
    for index in range(len(batch)):
        photo = batch.picture(index).image
        picture, box = shrunk(photo, batch.box(photo.size), LONGEST)
        label, share = class_and_share(some, index)
        rather = "" if some.against is None else f" rather than {some.class_name(int(some.against[index]))}"
        yield Row(
            picture=picture,
            title=f"{label} {share:.2f}{rather}",
            subtitle=batch.name(index),
            maps=tuple(found[n].array(index) if n in found else None for n in names),
            box=box,
            notes=tuple(reasons.get(n, "") for n in names),
        )


def records(batch: Batch, found: Mapping[str, Explanation]) -> list[dict[str, Any]]:
    """What is said of each picture in JSON."""
    from patchlight.cli._run import class_and_share

    some = next(iter(found.values()))
    said = [class_and_share(some, i) for i in range(len(batch))]
    return [
        {"file": batch.item(i).file, "target": int(some.target[i]), "label": label, "probability": round(share, 6)}
        for i, (label, share) in enumerate(said)
    ]


def save_sheet(rows: Sequence[Row], names: Sequence[str], file: Path, **options: Any) -> None:
    """The whole sheet, or no file."""
    from patchlight.cli.explain import make_folder, save_picture
    from patchlight.render.sheet import sheet

    make_folder(file.parent)
    save_picture(sheet(rows, names, **options), file)


def page_of(found: Mapping[str, Explanation], here: int, all_of_them: int) -> dict[str, Any]:
    """What a page says of one batch; the pictures of the whole page share its room for attention."""
    from patchlight.viewer.document import BUDGET, Extras, document
    from patchlight.viewer.write import CURVES

    return document(found, Extras(curves=all_of_them <= CURVES, budget=BUDGET * here // all_of_them))


def save_pages(pages: Sequence[dict[str, Any]], file: Path) -> str:
    from patchlight.cli.explain import make_folder
    from patchlight.viewer.document import joined
    from patchlight.viewer.write import save_document

    make_folder(file.parent)
    return str(save_document(joined(pages), file))
