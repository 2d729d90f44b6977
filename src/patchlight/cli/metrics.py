"""`patchlight metrics`: what can be measured, and all about one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from patchlight.cli import _options as o
from patchlight.cli._console import out, say, say_json

if TYPE_CHECKING:
    from patchlight.core.metric import Metric


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show all about one metric.")] = None,
    *,
    as_json: o.Json = False,
) -> None:
    """List the metrics; with a name, show its protocol, settings, equation and paper."""
    from patchlight.core.metric import discover_metrics, get_metric

    every = sorted(discover_metrics().values(), key=lambda m: (m.family, m.name))
    if name is not None:
        say_json(described(get_metric(name))) if as_json else show(get_metric(name))
    elif as_json:
        say_json([described(m) for m in every])
    else:
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("family", "name", "better", "needs", "what it measures"):
            table.add_column(title, no_wrap=title in ("family", "name"), overflow="fold")
        for metric in every:
            table.add_row(metric.family, metric.name, metric.better, needs(metric), metric.summary)
        out().print(table)
        say(out(), "`patchlight metrics NAME` shows the protocol, settings and equation.", style="dim")


def needs(metric: Metric) -> str:
    """With all settings at their defaults."""
    return ", ".join(metric.needs(metric.resolve({}))) or "nothing"


def described(metric: Metric) -> dict[str, Any]:
    """All about a metric, ready for JSON."""
    from patchlight.cli.methods import about

    return {
        "name": metric.name,
        "family": metric.family,
        "summary": metric.summary,
        "description": metric.description,
        "equation": metric.equation,
        "paper": metric.paper,
        "better": metric.better,
        "needs": list(metric.needs(metric.resolve({}))),
        "version": metric.version,
        "settings": [about(s) for s in metric.settings.values()],
    }


def show(metric: Metric) -> None:
    console = out()
    say(console, f"{metric.name} ({metric.family}, {metric.better} is better)", style="bold")
    say(console, f"\n{metric.description}\n")
    for title, text in (("equation", metric.equation), ("paper", metric.paper), ("needs", needs(metric))):
        say(console, f"{title:9} {text}")
    say(console, "\nsettings" if metric.settings else "\nno settings", style="bold")
    for setting in metric.settings.values():
        say(console, f"  {setting.name} = {setting.default!r}   {setting.described}")
