"""`patchlight explain`: an overlay and the raw scores of each picture, for each method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patchlight.cli import _options as o
from patchlight.cli._console import out, say, say_json

if TYPE_CHECKING:
    from PIL import Image

    from patchlight.cli._pictures import Item
    from patchlight.cli._run import Work
    from patchlight.explanation import Explanation


def command(
    images: o.Images,
    *,
    model: o.Model = "pets-vit",
    method: Annotated[
        list[str] | None, typer.Option("--method", "-M", help="a,b,c, all, or fast. [default: transformer_mm]")
    ] = None,
    target: o.Target = None,
    against: o.Against = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder that the results go to.")] = Path("patchlight-out"),
    settings: o.Set = None,
    until: o.Until = None,
    weights: o.Weights = None,
    labels: o.Labels = None,
    device: o.Device = "auto",
    precision: o.PrecisionOption = o.Precision.float32,
    batch_size: o.BatchSize = None,
    seed: o.Seed = 0,
    insides: Annotated[bool, typer.Option("--insides", help="Also keep what went on block by block, in the .npz.")] = False,
    npz: Annotated[bool, typer.Option("--npz/--no-npz", help="Also write the raw scores.")] = True,
    html: Annotated[bool, typer.Option("--html", help="Also write a page for each picture, which opens offline.")] = False,
    as_json: o.Json = False,
) -> None:
    """Explain pictures: an overlay at each photo's own size, and its raw scores, for every method."""
    from patchlight.cli import _pictures, _run, _settings

    names = _settings.chosen(method or ["transformer_mm"])
    given = _settings.settings_for(names, [*(settings or []), *_settings.ending(until)])
    wanted = _run.make_target(target, against)
    items = _pictures.find(images)
    make_folder(folder)
    subject = _run.load_subject(model, weights=weights, labels=labels, device=device, precision=precision)
    job = _run.Job(subject, given, wanted, batch_size, seed, insides, precision)
    work = _run.Work(job, items, quiet=as_json, partial=True)
    records = run(work, folder, npz=npz, html=html, quiet=as_json)
    if as_json:
        failures = [{"file": f.file, "reason": f.reason} for f in work.failures]
        say_json({"model": subject.name, "records": records, "failures": failures})
    else:
        _run.name_failures(work.failures)
    if work.failures:
        raise typer.Exit(1)


def make_folder(folder: Path) -> None:
    from patchlight.core.errors import SettingError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"--out {folder} cannot be made a folder ({error.strerror}). Give another one.") from error


def run(work: Work, folder: Path, *, npz: bool, html: bool, quiet: bool) -> list[dict[str, Any]]:
    """Write the results batch by batch; a record for each picture and method."""
    from patchlight.cli._run import single

    records = []
    for batch, found in work:
        for index in range(len(batch)):
            page = [save_page({n: single(e, index) for n, e in found.items()}, batch.item(index), folder)] if html else []
            for name, explanation in found.items():
                record = written(single(explanation, index), batch.item(index), name, folder, npz=npz)
                record["files"] += page
                records.append(record)
                if not quiet:
                    tell(record)
            for file in () if quiet else page:
                say(out(), f"{batch.item(index).file}: {file}")
    return records


def written(explanation: Explanation, item: Item, name: str, folder: Path, *, npz: bool) -> dict[str, Any]:
    """The overlay and the scores of one picture and method, each complete or not there at all."""
    from patchlight.cli._run import class_and_share

    path = folder / f"{item.stem}.{name}.png"
    save_picture(explanation.overlay(0), path)
    files = [path]
    if npz:
        files.append(explanation.save(path.with_suffix(".npz")))
    label, share = class_and_share(explanation, 0)
    record = {k: v for k, v in explanation.record().items() if k != "pictures"}
    against = {} if explanation.against is None else {"against": explanation.class_name(int(explanation.against[0]))}
    about = {"target": int(explanation.target[0]), "label": label, "probability": round(share, 6)}
    return {"file": item.file, **record, **about, **against, "files": [str(f) for f in files]}


def save_page(found: dict[str, Explanation], item: Item, folder: Path) -> str:
    from patchlight.viewer.write import write_html

    return str(write_html(found, folder / f"{item.stem}.html"))


def save_picture(picture: Image.Image, path: Path) -> None:
    """A picture in the format that its ending names (PNG where it has none), written aside and renamed: whole or not at all."""
    aside = path.with_name(f".{path.name}.part")
    try:
        picture.save(aside, format=picture_format(path))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def picture_format(path: Path) -> str:
    """What the ending of a file names; PNG where it has none."""
    from PIL import Image

    from patchlight.core.errors import SettingError

    known = Image.registered_extensions()
    if path.suffix and path.suffix.lower() not in known:
        raise SettingError(f"--out {path}: no picture format has the ending {path.suffix!r}. Use .png.")
    return known.get(path.suffix.lower(), "PNG")


def tell(record: dict[str, Any]) -> None:
    rather = f" rather than {record['against']}" if "against" in record else ""
    say(
        out(),
        f"{record['file']}: {record['label']} {record['probability']:.2f}{rather}, {record['method']}: {record['files'][0]}",
    )
    for note in record["notes"]:
        say(out(), f"  {note}", style="dim")
