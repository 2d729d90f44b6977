"""`python -m training teacher|student|accuracy`: every verb goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from patchlight import load as load_model
from patchlight.core.errors import PatchlightError, SettingError, nearest
from patchlight.models.load import find_device
from training import matching, networks, teacher
from training.measure import accuracy
from training.pictures import Example, evenly, examples, joined, load, unlabelled
from training.recipes import RECIPES, TEACHER, Pace, Tuning

Pets = Annotated[Path, typer.Option("--pets", help="The folder of the Oxford-IIIT Pets.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder for checkpoint, log and weights.")]
Steps = Annotated[int | None, typer.Option("--steps", help="Fewer or more than the recipe's.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Smaller or larger than the recipe's.")]
Count = Annotated[int | None, typer.Option("--pictures", help="Only so many of the pictures, evenly spread.")]
Seed = Annotated[int, typer.Option("--seed", help="Another run of the same recipe.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]

app = typer.Typer(help="Make small models by function matching.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.command("teacher")
def make_teacher(
    *,
    pets: Pets,
    weights: Annotated[Path, typer.Option("--weights", help="A pretrained DeiT-tiny, timm's names, safetensors.")],
    out: Out = Path("runs/teacher"),
    steps: Steps = None,
    batch: Batch = None,
    pictures: Count = None,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Fine-tune the teacher on the training split, and say how often it is right on the test split."""
    tuning = replace(Tuning(), pace=changed(Tuning().pace, steps, batch, seed))
    found = evenly(examples(pets, "trainval"), pictures)
    model = teacher.make(weights, found, out, network=TEACHER, tuning=tuning, device=on(device))
    tell(model, examples(pets, "test"), out, pictures)


@app.command("student")
def make_student(
    name: Annotated[str, typer.Argument(help=f"{' or '.join(RECIPES)}.")],
    *,
    pets: Pets,
    teacher_weights: Annotated[Path, typer.Option("--teacher", help="What `training teacher` wrote.")],
    out: Out = Path("runs/student"),
    foreign: Annotated[Path | None, typer.Option("--unlabelled", help="A folder of further pictures to match on.")] = None,
    steps: Steps = None,
    batch: Batch = None,
    pictures: Count = None,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Match a student from random weights to the teacher, on the training split and nothing else unless told."""
    if name not in RECIPES:
        raise SettingError(f"There is no student {name!r}.{nearest(name, RECIPES)}")
    recipe = replace(RECIPES[name], pace=changed(RECIPES[name].pace, steps, batch, seed))
    guide = networks.frozen(networks.load(TEACHER, teacher_weights)).to(on(device))
    parts = [load(evenly(examples(pets, "trainval"), pictures))] + ([] if foreign is None else [load(unlabelled(foreign))])
    model = matching.make(guide, joined(parts).to(on(device)), recipe, out)
    tell(model, examples(pets, "test"), out, pictures)


@app.command("accuracy")
def measure(
    model: Annotated[str, typer.Argument(help="pets-vit, pets-swin or any other name that patchlight.load takes.")],
    *,
    pets: Pets,
    pictures: Count = None,
    device: Device = "auto",
) -> None:
    """How often a model is right on the test split."""
    found = accuracy(load_model(model, device=device), evenly(examples(pets, "test"), pictures))
    Console(highlight=False).print(f"{model}: {found}")


def changed(pace: Pace, steps: int | None, batch: int | None, seed: int) -> Pace:
    steps = steps or pace.steps
    return replace(pace, steps=steps, batch=batch or pace.batch, seed=seed, warm_up=min(pace.warm_up, max(1, steps // 10)))


def on(device: str) -> torch.device:
    return torch.device(find_device() if device == "auto" else device)


def tell(model: torch.nn.Module, found: Sequence[Example], out: Path, pictures: int | None) -> None:
    measured = accuracy(networks.subject(model, out.name), evenly(found, pictures))
    about = {"right": measured.right, "count": measured.count, "accuracy": measured.share}
    (out / "accuracy.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    Console(highlight=False).print(f"{out / 'weights.safetensors'}: {measured}")


if __name__ == "__main__":
    try:
        app()
    except PatchlightError as error:
        Console(stderr=True, highlight=False).print(str(error), markup=False, soft_wrap=True)
        raise SystemExit(2) from error
