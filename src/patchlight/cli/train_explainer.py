"""`patchlight train-explainer`: an explainer for one model, trained on one's own pictures, for the method vit_shapley."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patchlight.cli import _options as o
from patchlight.cli._console import err, out, say, say_json, steps

if TYPE_CHECKING:
    from patchlight.cli._pictures import Failure, Item
    from patchlight.methods.masking._explainer import About
    from patchlight.models.subject import Subject


def command(
    images: o.Images,
    *,
    model: o.Model = "pets-vit",
    file: Annotated[Path, typer.Option("--out", "-o", help="The file that the explainer goes to.")] = Path(
        "explainer.safetensors"
    ),
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Rounds through the pictures for the explainer.")] = 20,
    surrogate_epochs: Annotated[
        int, typer.Option("--surrogate-epochs", min=0, help="Rounds for a copy of the model that learns to do without patches.")
    ] = 5,
    coalitions: Annotated[
        int, typer.Option("--coalitions", min=2, help="Sets of patches for each picture in a step, an even number.")
    ] = 8,
    rate: Annotated[float, typer.Option("--rate", help="The learning rate.")] = 1e-3,
    tune: Annotated[
        bool, typer.Option("--tune/--head-only", help="Whether the explainer's copy of the model learns too.")
    ] = True,
    grid: Annotated[
        str | None,
        typer.Option("--grid", metavar="ROWSxCOLUMNS", help="Blocks of patches that share one value. [default: patches]"),
    ] = None,
    remove: Annotated[str, typer.Option("--remove", help="drop (a plain ViT) or paint: how patches go missing.")] = "drop",
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew where an unfinished training is found.")] = False,
    weights: o.Weights = None,
    device: o.Device = "auto",
    batch_size: o.BatchSize = None,
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Train an explainer for a model: then `--method vit_shapley` gives Shapley values from one pass.

    The pictures need no labels; hundreds or thousands like those that are to be explained are best. What is done lies beside the
    file: after Ctrl-C the same command goes on from there.
    """
    from patchlight.cli import _run

    recipe: dict[str, Any] = {"epochs": epochs, "surrogate_epochs": surrogate_epochs, "coalitions": coalitions, "rate": rate}
    recipe |= {
        "tune": tune,
        "grid": blocks(grid),
        "remove": chosen(remove),
        "batch_size": batch_size,
        "seed": seed,
        "restart": restart,
    }
    items, failures = readable(images)
    subject = _run.load_subject(model, weights=weights, labels=None, device=device, precision=o.Precision.float32)
    about = trained(subject, [item.what for item in items], file, recipe, quiet=as_json)
    if as_json:
        say_json({"file": str(file), **asdict(about), "failures": [{"file": f.file, "reason": f.reason} for f in failures]})
    else:
        foreseen = f"foresees {about.explained:.1%} of what parts earn beyond their size on {about.held_out} held out"
        say(out(), f"{file}: trained for {about.model} on {about.pictures} pictures, {foreseen}")
        _run.name_failures(failures)
    if failures:
        raise typer.Exit(1)


def trained(subject: Subject, pictures: list[Any], file: Path, recipe: dict[str, Any], *, quiet: bool) -> About:
    """With a bar, and a line for each epoch."""
    from patchlight.methods.masking._training import train_explainer

    def report(line: str) -> None:
        say(err(), line)

    with steps("training", quiet=quiet) as tell:
        return train_explainer(subject, pictures, file, **recipe, progress=tell, report=None if quiet else report)


def blocks(text: str | None) -> tuple[int, int] | None:
    """`7x7` or `7,7`."""
    from patchlight.cli._settings import items
    from patchlight.core.errors import SettingError

    try:
        return None if text is None else items((int, int), text)  # pyright: ignore[reportReturnType]
    except ValueError as error:
        raise SettingError(f"--grid takes ROWSxCOLUMNS such as 7x7, but {text!r} came.") from error


def chosen(remove: str) -> str:
    from patchlight.core.errors import SettingError, nearest

    if remove not in ("drop", "paint"):
        raise SettingError(f"--remove takes drop or paint, but {remove!r} came.{nearest(remove, ('drop', 'paint'))}")
    return remove


def readable(patterns: list[str]) -> tuple[list[Item], list[Failure]]:
    """Every picture is opened once before the training: a broken file is named now, not hours later."""
    from patchlight.cli._pictures import Failure, find
    from patchlight.core.errors import PictureError
    from patchlight.core.pictures import read_picture

    items, failures = [], []
    for item in find(patterns):
        try:
            read_picture(item.what)
            items.append(item)
        except PictureError as error:
            failures.append(Failure(item.file, str(error)))
    return items, failures
