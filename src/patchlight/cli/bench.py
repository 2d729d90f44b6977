"""`patchlight bench`: run a plan, see how far it is, report, export, query."""

from __future__ import annotations

from enum import Enum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from patchlight.cli import _options as o
from patchlight.cli._console import err, out, say, say_json
from patchlight.core.errors import PatchlightError

if TYPE_CHECKING:
    from patchlight.bench.drive import Outcome
    from patchlight.bench.plan import Plan

EXTRA = ("duckdb", "fsspec", "pyarrow", "tomli")


class Group(TyperGroup):
    """Says what to install where the extra is not there."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            raise PatchlightError(
                f"patchlight bench needs {error.name}. Install it with: pip install 'patchlight[bench]'."
            ) from error


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Measure methods by a plan: resumable, on one machine or a Ray cluster.",
)

PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A TOML file, or a ready plan: `patchlight bench plans`.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", help="Folder or address (s3://...) of the rows. [default: bench/PLAN]")
]
Roots = Annotated[
    list[str] | None, typer.Option("--data", metavar="NAME=FOLDER", help="Where a data set of the plan lies on this machine.")
]
Files = Annotated[list[str] | None, typer.Option("--weights", metavar="NAME=FILE", help="The weights of a model of the plan.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="So many pictures of each data set, evenly spread.")]
Only = Annotated[str | None, typer.Option("--methods", metavar="A,B", help="Only these methods of the plan.")]


REASONS = 8  # told at the end of a run


class Form(str, Enum):
    csv = "csv"
    latex = "latex"
    markdown = "markdown"


def opened(name: str, roots: list[str] | None, weights: list[str] | None, count: int | None, only: str | None) -> Plan:
    from patchlight.bench.plan import changed, open_plan

    chosen = tuple(m.strip() for m in (only or "").split(",") if m.strip())
    return changed(open_plan(name), roots=pairs("--data", roots), weights=pairs("--weights", weights), count=count, only=chosen)


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    from patchlight.core.errors import SettingError

    found = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise SettingError(f"{option} takes NAME=PATH, but {text!r} came. For example: {option} pets=photos/pets.")
        found[name] = value
    return found


@app.command()
def plans(*, as_json: o.Json = False) -> None:
    """The plans that come with patchlight."""
    from patchlight.bench.plan import open_plan, ready_plans

    found = [open_plan(name) for name in ready_plans()]
    if as_json:
        say_json([{"name": p.name, "title": p.title, "source": p.source} for p in found])
        return
    for plan in found:
        say(out(), f"{plan.name:20s} {plan.title}")


@app.command()
def run(
    plan: PlanArgument,
    *,
    store: StoreOption = None,
    roots: Roots = None,
    weights: Files = None,
    count: Count = None,
    only: Only = None,
    engine: Annotated[str, typer.Option("--engine", help="local or ray.")] = "local",
    address: Annotated[str | None, typer.Option("--address", help="Of a Ray cluster: auto, or HOST:PORT.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes or actors. [default: one a GPU]")] = None,
    device: o.Device = "auto",
    retry: Annotated[bool, typer.Option("--retry", help="Do again what failed, such as for want of memory.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Price it: passes, and hours from a probe of a minute.")] = False,
    as_json: o.Json = False,
) -> None:
    """Run what is not in the store yet. Stopped at any moment, the same command goes on where it was."""
    from patchlight.bench import drive

    found = opened(plan, roots, weights, count, only)
    if dry_run:
        tell_price(found, device, as_json=as_json)
        return
    job, todo = drive.bench(found, store or f"bench/{found.name}", device=device, retry=retry)
    with bar(sum(weight(s) for s in todo), quiet=as_json) as advance:
        outcome = drive.drive(job, todo, name=engine, workers=workers, address=address, tell=lambda d: advance(weight(d.shard)))
    tell_outcome(outcome, plan, job.store.address, as_json=as_json)
    if outcome.failed:
        raise typer.Exit(1)


def weight(shard: Any) -> int:
    return (shard.stop - shard.start) * shard.cells


def bar(total: int, *, quiet: bool) -> Any:
    from patchlight.cli._console import progress

    return progress("measuring", total, quiet=quiet)


def tell_outcome(outcome: Outcome, plan: str, store: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"store": store, "shards": outcome.shards, "rows": outcome.rows, "failed": outcome.failed})
        return
    say(out(), f"{outcome.rows} rows written to {store}." if outcome.shards else f"nothing was left to do: {store} is complete.")
    often = sorted(outcome.failed.items(), key=lambda pair: -pair[1])
    for reason, count in often[:REASONS]:
        say(err(), f"  {count} rows failed: {reason}")
    if len(often) > REASONS:
        rest = sum(count for _, count in often[REASONS:])
        say(err(), f"  {rest} more rows failed for {len(often) - REASONS} other reasons: "
            f'patchlight bench sql "select error, count(*) from rows group by 1" --store {store}')  # fmt: skip
    say(out(), f"See them: patchlight bench report {plan} --store {store}", style="dim")


def tell_price(plan: Plan, device: str, *, as_json: bool) -> None:
    from patchlight.bench.price import price

    found = price(plan, device=device)
    if as_json:
        say_json(found.record())
        return
    for line in found.lines():
        say(out(), line)


@app.command()
def status(
    plan: PlanArgument,
    *,
    store: StoreOption = None,
    roots: Roots = None,
    weights: Files = None,
    count: Count = None,
    only: Only = None,
    as_json: o.Json = False,
) -> None:
    """How much of a plan is in the store."""
    from patchlight.bench.drive import state
    from patchlight.bench.opened import Opened
    from patchlight.bench.store import Store

    found = opened(plan, roots, weights, count, only)
    place = store or f"bench/{found.name}"
    far = state(Opened(found, "cpu"), Store(place).done())
    if as_json:
        say_json({"store": place, "done": far.done, "total": far.total, "parts": [[*k, *v] for k, v in far.rows.items()]})
        return
    say(out(), f"{place}: {far.done} of {far.total} numbers ({far.done / max(1, far.total):.0%})")
    for (model, data), (done, total) in far.rows.items():
        say(out(), f"  {model} on {data}: {done} of {total}")


@app.command()
def report(
    plan: PlanArgument,
    *,
    store: StoreOption = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the report here.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page here.")] = None,
    roots: Roots = None,
    weights: Files = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="With --html: the best and worst pictures of each method.")
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Tables with n, intervals, baselines, ranks and paired tests."""
    from patchlight.bench import report as words

    found = opened(plan, roots, weights, None, None)
    tables = read(store or f"bench/{found.name}", found)
    if as_json:
        say_json([finite(r) for r in words.records(tables)])
    elif markdown is None and html is None:
        out().print(words.terminal(tables, found))
    if markdown is not None:
        written(markdown, words.markdown(tables, found))
    if html is not None:
        from patchlight.bench.page import page

        written(html, page(tables, found, pictures=pictures))


def read(store: str, plan: Plan) -> list[Any]:
    from patchlight.bench.contents import recall
    from patchlight.bench.numbers import tables
    from patchlight.bench.store import Store
    from patchlight.core.errors import SettingError

    place = Store(store)
    known, rows = recall(place, plan.name), place.table()
    found = tables(known.rows(rows, plan) if known else rows, plan)
    if not found:
        raise SettingError(f"the store {store} holds no rows of this plan. Run it first: patchlight bench run {plan.name}.")
    return found


def finite(value: Any) -> Any:
    """JSON has neither NaN nor infinity, nor dates and decimals, which SQL has."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
    say(out(), f"written: {path}")


@app.command()
def export(
    plan: PlanArgument,
    *,
    store: StoreOption = None,
    form: Annotated[Form, typer.Option("--form", help="csv, latex or markdown.")] = Form.csv,
    rows: Annotated[bool, typer.Option("--rows", help="CSV of all rows, one for each picture, instead of the means.")] = False,
) -> None:
    """The numbers of the report on standard output."""
    from patchlight.bench import report as words
    from patchlight.bench.query import all_rows

    plan_found = opened(plan, None, None, None, None)
    place = store or f"bench/{plan_found.name}"
    if rows:
        typer.echo(all_rows(place), nl=False)
        return
    tables = read(place, plan_found)
    make = {
        Form.csv: words.as_csv,
        Form.latex: words.as_latex,
        Form.markdown: lambda t: words.markdown(t, plan_found),
    }
    typer.echo(make[form](tables), nl=False)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL over the table `rows`.")],
    *,
    store: Annotated[str, typer.Option("--store", help="Folder or address of the rows.")],
    as_json: o.Json = False,
) -> None:
    """Ask the store: patchlight bench sql "select method, avg(value) from rows group by 1" --store bench/quick."""
    from patchlight.bench.query import ask

    names, found = ask(store, query)
    if as_json:
        say_json([finite(dict(zip(names, row, strict=True))) for row in found])
        return
    from rich.table import Table

    table = Table(*names)
    for row in found:
        table.add_row(*(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row))
    out().print(table)
