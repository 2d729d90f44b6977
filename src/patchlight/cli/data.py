"""`patchlight data`: what data sets there are, all about one, and whether the copy on disk is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from patchlight.cli import _options as o
from patchlight.cli._console import err, out, progress, say, say_json
from patchlight.cli.methods import about

if TYPE_CHECKING:
    from patchlight.data import DataSet, Kind

Settings = Annotated[list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting of the data set.")]
FAILED, SHOWN = 1, 20


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show all about one data set.")] = None,
    *,
    root: Annotated[Path | None, typer.Option("--root", help="Where it lies: open it and say what is there.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Read every picture, and name the broken ones.")] = False,
    settings: Settings = None,
    as_json: o.Json = False,
) -> None:
    """List the data sets; with a name, show its licence, layout and settings; with --root, open it and look.

    Nothing is downloaded: the text says what to get and where to put it.
    """
    from patchlight import data
    from patchlight.data._registry import get

    if name is None:
        kinds = list(data.datasets().values())
        say_json([described(k) for k in kinds]) if as_json else out().print(table(kinds))
        return
    kind = get(name)
    if root is None and not check and not settings:
        say_json(described(kind)) if as_json else show(kind)
        return
    found = data.open(name, root, **given(kind, settings or []))
    if check:
        with progress("reading", len(found), quiet=as_json) as more:
            found.check(lambda *_: more(1))
    say_json(described(kind) | {"found": seen(found)}) if as_json else tell(found, checked=check)
    if found.broken:
        raise typer.Exit(FAILED)


def given(kind: Kind, settings: list[str]) -> dict[str, Any]:
    from patchlight.cli._settings import parsed
    from patchlight.core.errors import SettingError

    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingError(f"--set of a data set takes NAME=VALUE, but {text!r} came. For example: --set split=val.")
        known = kind.settings.get(name.strip())
        found[name.strip()] = value if known is None else parsed(known, value.strip())
    return found


def table(kinds: list[Kind]) -> Table:
    found = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("name", "gives", "licence", "what it is"):
        found.add_column(title, no_wrap=title == "name", overflow="fold")
    for kind in kinds:
        found.add_row(kind.name, ", ".join(kind.gives), kind.licence, kind.summary)
    return found


def described(kind: Kind) -> dict[str, Any]:
    """All about a data set, ready for JSON."""
    return {
        "name": kind.name,
        "summary": kind.summary,
        "description": kind.description,
        "gives": list(kind.gives),
        "licence": kind.licence,
        "get": kind.get,
        "layout": kind.layout,
        "cite": kind.cite,
        "settings": [about(s) for s in kind.settings.values()],
    }


def show(kind: Kind) -> None:
    console = out()
    say(console, kind.name, style="bold")
    say(console, f"\n{kind.description}\n")
    for title, text in (
        ("gives", ", ".join(kind.gives)),
        ("licence", kind.licence),
        ("get", kind.get),
        ("layout", kind.layout),
        ("cite", kind.cite),
    ):
        say(console, f"{title:9} {text}")
    say(console, "\nsettings" if kind.settings else "\nno settings", style="bold")
    for setting in kind.settings.values():
        say(console, f"  {setting.name} = {setting.default!r}   {setting.described}")
    say(console, f"\npatchlight data {kind.name}{'' if kind.made else ' --root FOLDER'} --check", style="dim")


def seen(found: DataSet) -> dict[str, Any]:
    """What lies on disk, ready for JSON."""
    return {
        "root": None if found.root is None else str(found.root),
        "settings": dict(found.settings),
        "pictures": len(found),
        "classes": len(found.labels),
        "labelled": sum(e.label is not None for e in found.entries),
        "digest": found.digest(),
        "notes": list(found.notes),
        "broken": [{"name": b.name, "reason": b.reason} for b in found.broken],
    }


def tell(found: DataSet, *, checked: bool) -> None:
    facts = seen(found)
    console = out()
    classes = f" of {facts['classes']} classes" if found.labels else ""
    say(console, f"{found.name}: {facts['pictures']} pictures, {facts['labelled']} with a label{classes}")
    say(console, f"{'licence':9} {found.licence}")
    say(console, f"{'digest':9} {facts['digest']}")
    for note in found.notes:
        say(console, f"{'note':9} {note}")
    for one in found.broken[:SHOWN]:
        say(err(), f"broken: {one.name}: {one.reason}")
    if found.broken or checked:
        say(console, f"{'broken':9} {len(found.broken)}" + (", the first are named above" if len(found.broken) > SHOWN else ""))
