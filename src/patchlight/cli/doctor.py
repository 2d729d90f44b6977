"""`patchlight doctor`: whether a model can be explained, and by what."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patchlight.cli import _options as o
from patchlight.cli._console import out, say, say_json
from patchlight.core.errors import ModelError, SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from patchlight.core.layout import Layout
    from patchlight.doctor import Report
    from patchlight.models.subject import Subject

SIZE_NAMES = {"timm": "img_size", "torchvision": "image_size", "hf": "image_size"}


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=o.MODELS)],
    *,
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FILE|random", help="A file of tensors. [default: random, or those that come with it]"),
    ] = None,
    size: Annotated[str | None, typer.Option("--size", metavar="HxW", help="Input size. [default: the model's own]")] = None,
    device: o.Device = "cpu",
    as_json: o.Json = False,
) -> None:
    """Check a model: find its layout, compare traced with untraced passes, and try every method."""
    from patchlight.doctor import examine

    wanted = None if size is None else parse_size(size)
    subject = load_one(model, weights=weights, size=wanted, device=device)
    report = examine(subject, size=wanted)
    say_json(document(report, subject)) if as_json else show(report, subject)
    if not report.healthy:
        raise typer.Exit(1)


def parse_size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)(?:[x,]([1-9]\d*))?", text.strip().lower())
    if found is None:
        raise SettingError(f"--size takes HEIGHTxWIDTH in pixels, but {text!r} came. For example: --size 224x448.")
    return int(found[1]), int(found[2] or found[1])


def load_one(model: str, *, weights: str | None, size: tuple[int, int] | None, device: str) -> Subject:
    """The model with random weights that hide nothing, unless it is embedded or a file is given."""
    from patchlight.doctor import redrawn
    from patchlight.models.embedded import EMBEDDED
    from patchlight.models.load import load

    weights = weights or (None if model in EMBEDDED else "random")
    argument = SIZE_NAMES.get(model.partition(":")[0])
    arguments: dict[str, Any] = {argument: size} if argument and size else {}
    try:
        subject = load(model, weights=weights, device=device, **arguments)
    except (ModelError, TypeError):
        if not size:
            raise
        subject = load(model, weights=weights, device=device)  # a network that takes any size has no such argument
    return redrawn(subject) if weights == "random" else subject


def document(report: Report, subject: Subject) -> dict[str, Any]:
    """The report, ready for JSON."""
    layout = {k: v for k, v in asdict(report.layout).items() if k != "readout"}
    finite = math.isfinite(report.difference)
    return {
        "model": report.model,
        "architecture": type(subject.model).__name__,
        "size": list(report.size),
        "card": subject.card or None,
        "layout": layout | {"reads": reads(report.layout)},
        "maps": {"seen": report.seen, "expected": report.expected},
        "difference": {"largest": report.difference if finite else None, "where": report.worst, "precision": precision(report)},
        "problem": report.problem or None,
        "methods": {f.name: {"works": f.works, "reason": f.reason or None, "broken": f.broken} for f in report.findings},
        "healthy": report.healthy,
    }


def show(report: Report, subject: Subject) -> None:
    console, layout = out(), report.layout
    weights = f", weights: {subject.origin}" if subject.origin else ""
    say(console, f"{report.model}: {type(subject.model).__name__} at {report.size[0]} x {report.size[1]}{weights}", style="bold")
    if subject.card:
        say(console, f"card      {subject.card}")
    show_layout(console, layout)
    if report.expected:
        say(console, f"maps      {report.seen} seen in {report.expected} attention blocks")
    if math.isfinite(report.difference):
        same = f"the untraced output to {report.difference:.1e} of its largest value"
        say(console, f"traced    {same} ({precision(report)}, most at {report.worst})")
    if report.problem:
        say(console, f"problem   {report.problem}", style="bold red")
    works = [f.name for f in report.findings if f.works]
    say(console, f"methods   {len(works)} of {len(report.findings)} work")
    for finding in report.findings:
        mark = "works" if finding.works else "FAILS" if finding.broken else "no"
        say(console, f"  {finding.name:24} {mark}{': ' + finding.reason if finding.reason else ''}")


def show_layout(console: Console, layout: Layout) -> None:
    if not layout.blocks:
        say(console, "layout    no attention blocks")
        return
    height, width = layout.grid
    say(console, f"grid      {height} x {width} patches and {layout.prefix} prefix tokens; the head reads {reads(layout)}")
    for text in groups(layout):
        say(console, f"blocks    {text}")


def groups(layout: Layout) -> list[str]:
    """The blocks in order; those that follow each other and look the same in one line."""
    found: list[tuple[str, list[str]]] = []
    for block in layout.blocks:
        about = f"{block.kind}, {block.heads} heads, {block.grid[0]} x {block.grid[1]}"
        about += f", {block.maps} maps" if block.maps > 1 else ""
        about += f", windows {block.window[0]} x {block.window[1]}" if block.window else ""
        about += f", shift {block.shift[0]} x {block.shift[1]}" if block.shift and any(block.shift) else ""
        if found and found[-1][0] == about:
            found[-1][1].append(block.name)
        else:
            found.append((about, [block.name]))
    return [f"{len(n)} {about}: {n[0]}" + (f" ... {n[-1]}" if len(n) > 1 else "") for about, n in found]


def reads(layout: Layout) -> str:
    from patchlight.core.layout import READS

    return READS[layout.pool]


def precision(report: Report) -> str:
    return str(report.dtype).removeprefix("torch.")
