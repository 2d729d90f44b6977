"""`patchlight demo`: the photos that come with patchlight, explained."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patchlight.cli._console import out, progress, say

if TYPE_CHECKING:
    from torch import Tensor

    from patchlight.cli._pictures import Batch
    from patchlight.core.layout import Layout
    from patchlight.explanation import Explanation
    from patchlight.models.subject import Subject

SHOWN = ("raw_attention", "rollout", "attcat", "transformer_mm", "vtranm", "transformer_attribution", "random")
BOTH = "cat_and_dog"  # the photo with two animals: explained for each of its two classes
OVERLAYS = ("transformer_mm", "vtranm", "grad_cam")
CELL = 136  # small, so that the words are still read where a page shows the sheet at half its size
BAND = 7  # methods side by side where all of them are shown


def command(
    *,
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder that the results go to.")] = Path("demo"),
    model: Annotated[str, typer.Option("--model", "-m", help="pets-vit or pets-swin.")] = "pets-vit",
) -> None:
    """Explain the photos that come with patchlight, offline: contact sheets, and one photo for each of its two animals."""
    from patchlight.cli import _run
    from patchlight.cli.explain import make_folder

    make_folder(folder)
    subject = _run.load_subject(model, weights=None, labels=None, device="auto", precision=_run.Precision.float32)
    batch = photos(subject)
    logits = predicted(batch, subject)
    target = classes(logits)
    every = serving(subject.layout())
    first = selection(every)
    rest = [n for n in every if n not in first]
    with progress("explaining", len(every)) as advance:
        found = _run.Job(subject, {n: {} for n in first}, target).explain(batch)
        save_sheets(batch, found, [first], folder / "sheet.png")
        tell_seen(batch, logits, subject)
        tell_file(folder / "sheet.png", f"the photos by {len(first)} methods; {BOTH}.jpg twice, once for each animal")
        advance(len(first))
        if rest:
            found |= _run.Job(subject, {n: {} for n in rest}, target).explain(batch)
        advance(len(rest))
    save_sheets(batch, found, bands(every), folder / "methods.png", density=1)
    tell_file(folder / "methods.png", f"the same by all {len(every)} methods that are fast")
    save_overlays(batch, found, folder)
    tell_file(folder / f"{BOTH}.*.png", "each of the two animals by itself, at the photo's own size")
    save_page({name: found[name] for name in first}, folder / "demo.html")
    tell_file(folder / "demo.html", "the first sheet to click on: open it in a browser, it needs nothing else")
    tell_next(subject.name)


# -- what is explained ------------------------------------------------------------------------------------------------


def photos(subject: Subject) -> Batch:
    """The shipped photos; the one with two animals comes last, twice."""
    from dataclasses import replace
    from importlib.resources import as_file

    from patchlight.cli import _pictures
    from patchlight.models.embedded import asset

    with as_file(asset("photos")) as folder:
        items = _pictures.find([str(folder)])
        ((_, batch),) = _pictures.Reader(items, subject.preprocess, len(items))
    both = [r for r in batch.read if r[0].stem == BOTH]
    return replace(batch, read=(*(r for r in batch.read if r[0].stem != BOTH), *both, *both))


def predicted(batch: Batch, subject: Subject) -> Tensor:
    """Logits (b, k)"""
    return subject.scores(batch.batch(0, len(batch), like=subject.example))


def classes(logits: Tensor) -> list[int]:
    """The predicted class of each photo; of the one with two animals, the two that are most likely."""
    found = logits.argmax(1).tolist()
    found[-2:] = logits[-1].topk(2).indices.tolist()
    return found


def serving(layout: Layout) -> list[str]:
    """All fast methods that serve the layout, whichever are registered."""
    from patchlight.cli._settings import chosen, missing
    from patchlight.core.registry import get

    return [n for n in chosen(["fast"]) if not missing(get(n), layout)]


def selection(every: Sequence[str]) -> list[str]:
    """The methods of the first sheet: the usual ones, filled up with others where these are few, chance last."""
    from patchlight.core.registry import get

    usual = [n for n in SHOWN if n in every]
    others = [n for n in every if n not in usual and get(n).family != "baseline"]
    return sorted([*usual, *others[: BAND - len(usual)]], key=lambda n: get(n).family == "baseline")


# -- what is written --------------------------------------------------------------------------------------------------


def bands(names: Sequence[str]) -> list[list[str]]:
    """Rows of methods of about one length, at most `BAND`."""
    count = -(-len(names) // BAND)
    return [list(names[len(names) * k // count : len(names) * (k + 1) // count]) for k in range(count)]


def save_sheets(
    batch: Batch, found: Mapping[str, Explanation], parts: Sequence[Sequence[str]], file: Path, *, density: int = 2
) -> None:
    """A sheet of the photos for each part of the methods, one below the other."""
    from PIL import Image

    from patchlight.cli.compare import rows_of
    from patchlight.cli.explain import save_picture
    from patchlight.render.sheet import LIGHT, sheet

    drawn = [sheet(list(rows_of(batch, found, names, {})), names, cell=CELL, scale="picture", density=density) for names in parts]
    page = Image.new("RGB", (max(s.width for s in drawn), sum(s.height for s in drawn)), LIGHT.paper)
    for k, part in enumerate(drawn):
        page.paste(part, (0, sum(s.height for s in drawn[:k])))
    save_picture(page, file)


def save_overlays(batch: Batch, found: Mapping[str, Explanation], folder: Path) -> None:
    """The photo with two animals, for each of them."""
    from patchlight.cli.explain import save_picture

    for explanation in (found[name] for name in OVERLAYS if name in found):
        for index in (len(batch) - 2, len(batch) - 1):
            label = explanation.class_name(int(explanation.target[index]))
            save_picture(explanation.overlay(index), folder / f"{BOTH}.{label}.{explanation.method}.png")


def save_page(found: Mapping[str, Explanation], file: Path) -> None:
    """The viewer with the photos in it; without the maps of other classes, which would take as long again."""
    from patchlight.viewer.write import write_html

    write_html(found, file, classes=1)


# -- what is said -----------------------------------------------------------------------------------------------------


def tell_seen(batch: Batch, logits: Tensor, subject: Subject) -> None:
    console = out()
    say(console, f"What {subject.name} saw", style="bold")
    for index in range(len(batch) - 1):
        shares, ranks = logits[index].softmax(-1).topk(3)
        likely = ", ".join(f"{subject.label(k)} {share:.2f}" for k, share in zip(ranks.tolist(), shares.tolist(), strict=True))
        say(console, f"  {batch.name(index):16} {likely}")
    say(console, "\nWhat it looked at", style="bold")


def tell_file(file: Path, what: str) -> None:
    say(out(), f"  {file}   {what}")


def tell_next(model: str) -> None:
    console = out()
    say(console, "\nTry next", style="bold")
    activate = Path(sys.prefix, "bin", "activate")
    if shutil.which("patchlight") is None and activate.is_file():
        say(console, f"  {f'. {activate}':72} so that this shell finds patchlight")
    other = "pets-swin" if model == "pets-vit" else "pets-vit"
    for text, what in (
        (
            "patchlight explain YOUR_PHOTO.jpg --method transformer_mm,vtranm --html",
            "your own photo: overlays, scores and a page",
        ),
        ("patchlight compare YOUR_FOLDER --methods fast --out sheet.png", "a sheet of your own"),
        (f"patchlight demo --model {other}", "the same photos through a network of another kind"),
        ("patchlight doctor timm:deit_tiny_patch16_224", "what can explain your model"),
        ("patchlight serve", "drop a photo, click its patches and classes (pip install '.[web]')"),
        ("patchlight methods transformer_mm", "what a method does, and its settings"),
    ):
        say(console, f"  {text:72} {what}")
