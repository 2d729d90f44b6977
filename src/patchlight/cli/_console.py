"""Where words go: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress

PIPE_WIDTH = 160


def out() -> Console:
    """Standard output; as wide as a table wants where nobody's window limits it."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def err() -> Console:
    return Console(stderr=True, highlight=False)


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line as it is: brackets in file names are no markup, and long lines are not broken."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def say_json(document: Any) -> None:
    """One JSON document on standard output."""
    say(Console(highlight=False, color_system=None), json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def progress(label: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, told how many more are done; nothing where nobody looks."""
    console = err()
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with bar_on(console) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def steps(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """The same, told (done, all)."""
    console = err()
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    with bar_on(console) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def bar_on(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)
