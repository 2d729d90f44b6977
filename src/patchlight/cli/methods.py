"""`patchlight methods`: what there is, and all about one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from patchlight.cli import _options as o
from patchlight.cli._console import out, say, say_json

if TYPE_CHECKING:
    from patchlight.core.registry import Cost, Method, Setting


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show all about one method.")] = None,
    *,
    as_json: o.Json = False,
) -> None:
    """List the methods; with a name, show its settings, equation, paper and cost."""
    from patchlight.cli._settings import by_family
    from patchlight.core.registry import get

    if name is not None:
        say_json(described(get(name))) if as_json else show(get(name))
    elif as_json:
        say_json([described(m) for m in by_family()])
    else:
        out().print(table(by_family()))
        say(out(), "Cost is in passes a picture. `patchlight methods NAME` shows settings and equation.", style="dim")


def table(methods: list[Method]) -> Table:
    found = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("family", "name", "needs", "cost", "what it shows"):
        found.add_column(title, no_wrap=title in ("family", "name"), overflow="fold")
    for method in methods:
        blind = " (class-blind)" if method.class_blind else ""
        found.add_row(method.family, method.name, needs(method), short(cost(method)), method.summary + blind)
    return found


def needs(method: Method) -> str:
    return ", ".join(method.needs) or "nothing"


def cost(method: Method) -> Cost:
    """With all settings at their defaults."""
    return method.cost(defaults(method))


def defaults(method: Method) -> dict[str, Any]:
    return {name: s.default for name, s in method.settings.items()}


def short(found: Cost) -> str:
    return f"{found.forwards:g} + {found.backwards:g}"


def described(method: Method) -> dict[str, Any]:
    """All about a method, ready for JSON."""
    return {
        "name": method.name,
        "family": method.family,
        "summary": method.summary,
        "description": method.description,
        "equation": method.equation,
        "paper": method.paper,
        "needs": list(method.needs),
        "cost": {"forwards": cost(method).forwards, "backwards": cost(method).backwards},
        "returns": method.returns(defaults(method)),
        "class_blind": method.class_blind,
        "stochastic": method.stochastic,
        "version": method.version,
        "settings": [about(s) for s in method.settings.values()],
    }


def about(setting: Setting) -> dict[str, Any]:
    return {"name": setting.name, "type": setting.described, "default": setting.default, "choices": list(setting.choices)}


def show(method: Method) -> None:
    console = out()
    say(console, f"{method.name} ({method.family})", style="bold")
    say(console, f"\n{method.description}\n")
    returns = "scores on the patch grid" if method.returns(defaults(method)) == "tokens" else "scores on the pixels"
    traits = [t for t, on in (("class-blind", method.class_blind), ("draws random numbers", method.stochastic)) if on]
    for title, text in (
        ("equation", method.equation),
        ("paper", method.paper),
        ("needs", needs(method)),
        ("cost", f"{cost(method)} a picture"),
        ("gives", ", ".join([returns, *traits])),
    ):
        say(console, f"{title:9} {text}")
    say(console, "\nsettings" if method.settings else "\nno settings", style="bold")
    for setting in method.settings.values():
        say(console, f"  {setting.name} = {setting.default!r}   {setting.described}")
    if method.settings:
        say(console, f"\npatchlight explain IMG --method {method.name} --set {example(method)}", style="dim")


def example(method: Method) -> str:
    """A setting as it is written on the command line."""
    setting = next(iter(method.settings.values()))
    shown = setting.choices[-1] if setting.choices else setting.default
    return f"{setting.name}={'VALUE' if shown is None else shown}"
