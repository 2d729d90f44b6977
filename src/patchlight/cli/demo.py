"""`patchlight demo`: the photos that come with patchlight, explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patchlight.cli._console import out, progress, say

if TYPE_CHECKING:
    from patchlight.cli._pictures import Batch
    from patchlight.cli._run import Job
    from patchlight.explanation import Explanation
    from patchlight.render.sheet import Row

METHODS = ("raw_attention", "rollout", "grad_cam", "attcat", "transformer_mm", "vtranm", "random")
BOTH = "cat_and_dog"  # the photo with two animals: explained for each of its two classes
OVERLAYS = ("transformer_mm", "vtranm")


def command(
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder that the results go to.")] = Path("demo"),
) -> None:
    """Explain the photos that come with patchlight, offline: a contact sheet, and one photo for each of its two animals."""
    from importlib.resources import as_file

    from patchlight.cli import _pictures, _run
    from patchlight.cli.compare import save_sheet
    from patchlight.cli.explain import make_folder
    from patchlight.models.embedded import asset

    make_folder(folder)
    subject = _run.load_subject("pets-vit", weights=None, labels=None, device="auto", precision=_run.Precision.float32)
    job = _run.Job(subject, {name: {} for name in METHODS})
    with as_file(asset("photos")) as photos:
        items = _pictures.find([str(photos)])
        ((_, batch),) = _pictures.Reader(items, subject.preprocess, len(items))
    rows = explained(batch, job, folder)
    save_sheet(rows, METHODS, folder / "sheet.png", scale="picture", density=1)
    tell(rows, folder)


def explained(batch: Batch, job: Job, folder: Path) -> list[Row]:
    """A row for each photo; the one with two animals comes last, once for each of the classes it is most like."""
    from dataclasses import replace

    one = [i for i in range(len(batch)) if batch.item(i).stem != BOTH]
    both = replace(batch, read=tuple(r for r in batch.read if r[0].stem == BOTH))
    with progress("explaining", 3) as advance:
        rows = rows_for(replace(batch, read=tuple(batch.read[i] for i in one)), job)
        advance(1)
        classes = None
        for rank in range(2):
            found = (again := replace(job, target=None if classes is None else classes[rank])).explain(both)
            classes = classes or most_like(next(iter(found.values())))
            rows += rows_for(both, again, found)
            save_overlays(found, folder)
            advance(1)
    return rows


def most_like(explanation: Explanation) -> list[int]:
    return explanation.logits[0].topk(2).indices.tolist()


def rows_for(batch: Batch, job: Job, found: dict[str, Explanation] | None = None) -> list[Row]:
    from patchlight.cli.compare import rows_of

    return list(rows_of(batch, found or job.explain(batch), METHODS, {}))


def save_overlays(found: dict[str, Explanation], folder: Path) -> None:
    from patchlight.cli.explain import save_picture

    for name in OVERLAYS:
        label = found[name].class_name(int(found[name].target[0]))
        save_picture(found[name].overlay(0), folder / f"{BOTH}.{label}.{name}.png")


def tell(rows: list[Row], folder: Path) -> None:
    console = out()
    for row in rows:
        say(console, f"{Path(row.subtitle).name}: {row.title}")
    say(
        console,
        f"\nThe contact sheet is {folder / 'sheet.png'}. {BOTH}.jpg for each of its animals lies beside it.",
        style="bold",
    )
    say(console, "\nTry next:")
    for text in (
        "patchlight explain YOUR_PHOTO.jpg --method transformer_mm,vtranm --out seen",
        "patchlight compare YOUR_FOLDER --methods fast --out sheet.png",
        "patchlight methods transformer_mm",
    ):
        say(console, f"  {text}")
