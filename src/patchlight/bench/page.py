"""The report as one self-contained page: tables, curves, speed against quality, best and worst pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from patchlight.bench.numbers import Column, Table
from patchlight.bench.opened import Opened
from patchlight.bench.plan import Plan
from patchlight.bench.report import INTERVAL, by_rank, entry, failed, heading, named, number

STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --quiet: #5b6270; --paper: #fff; --line: #d9dce1; --best: #0b6e4f1f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef1; --quiet: #a3abb6; --paper: #15171b; --line: #363b43; --best: #3ddba340; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 78rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; } p, figcaption, .quiet { color: var(--quiet); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .86rem; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
td.best { background: var(--best); font-weight: 600; } small { color: var(--quiet); }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; margin-top: 1.5rem; }
figure { margin: 0; } figure svg, figure img { max-width: 100%;
  height: auto; background: #fff; border-radius: 6px; }
"""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000", "#882255", "#44aa99")
MARKERS = ("o", "s", "^", "D")
DASHES = ("-", "--", ":", "-.")


def page(tables: Sequence[Table], plan: Plan, *, pictures: bool = False) -> str:
    """HTML that needs nothing else. `pictures`: explain the best and worst again, which takes the model and the data."""
    parts = [f"<h1>{escape(plan.title)}</h1>"]
    parts += [f"<p>After {escape(plan.source)}.</p>"] if plan.source else []
    opened = Opened(plan) if pictures else None
    for table in tables:
        parts += [f"<h2>{escape(table.title)}</h2>", f"<p>n = {table.pictures} pictures. {INTERVAL}</p>"]
        parts += [html_table(table, plan), '<div class="charts">', *charts(table), "</div>", tests(table), failures(table)]
        parts += [sheets(table, opened)] if opened else []
    parts += [published(title, rows) for title, rows in plan.published.items()]
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(plan.title)}</title><style>{STYLE}</style><body><main>{body}</main></body></html>\n"
    )


def html_table(table: Table, plan: Plan) -> str:
    heads = "".join(f"<th scope=col>{escape(heading(c))}</th>" for c in table.columns)
    rows = []
    for method in by_rank(table):
        cells = "".join(f"<td{' class=best' if c.best == method else ''}>{escape(entry(c, method))}</td>" for c in table.columns)
        last = f"<td>{number(table.mean_rank(method), '.1f')}</td><td>{number(table.seconds.get(method), '.3g')}</td>"
        rows.append(f"<tr><td>{escape(named(method, plan))}</td>{cells}{last}</tr>")
    head = f"<tr><th scope=col>method</th>{heads}<th scope=col>mean rank</th><th scope=col>s / map</th></tr>"
    return f'<div class="wide" tabindex="0"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


# -- charts -------------------------------------------------------------------------------------------------------------------


def charts(table: Table) -> list[str]:
    found = [figure(curves(table, c), f"{c.label}: mean curve over the pictures") for c in table.columns if c.curves]
    first = next((c for c in table.columns if c.estimates and c.higher is not None), None)
    if first is not None:
        found.append(figure(speed(table, first), f"{first.label} against seconds for a map"))
    return found


def curves(table: Table, column: Column) -> Figure:
    drawing = Figure(figsize=(6.2, 3.9), layout="constrained")
    axes = drawing.subplots()
    for i, method in enumerate(table.methods):
        if method not in column.curves:
            continue
        values = column.curves[method]
        at = column.at if column.at is not None and len(column.at) == len(values) else np.linspace(0, 1, len(values))
        style = DASHES[i // len(COLOURS) % len(DASHES)]
        axes.plot(at, values, color=COLOURS[i % len(COLOURS)], linestyle=style, label=method, linewidth=1.4)
    axes.set(xlabel="share of the picture", ylabel="mean score", title=column.label)
    legend(drawing, len(axes.lines))
    axes.spines[["top", "right"]].set_visible(False)
    return drawing


def speed(table: Table, column: Column) -> Figure:
    drawing = Figure(figsize=(6.2, 3.9), layout="constrained")
    axes = drawing.subplots()
    for i, method in enumerate(table.methods):
        found, seconds = column.estimates.get(method), table.seconds.get(method, float("nan"))
        if not (found and found.n and seconds > 0 and np.isfinite(found.mean)):
            continue
        spread = [[found.mean - found.low], [found.high - found.mean]] if np.isfinite(found.low) else None
        kind, marker = COLOURS[i % len(COLOURS)], MARKERS[i // len(COLOURS) % len(MARKERS)]
        axes.errorbar(seconds, found.mean, yerr=spread, fmt=marker, color=kind, capsize=2, markersize=5, label=method)
    axes.set_xscale("log")
    legend(drawing, len(axes.containers))
    axes.set(xlabel="seconds for a map", ylabel=heading(column), title="speed against quality")
    axes.spines[["top", "right"]].set_visible(False)
    return drawing


def legend(drawing: Figure, count: int) -> None:
    """Beside the axes: names among the points of twenty methods would lie on one another."""
    if count:
        drawing.legend(fontsize=7, frameon=False, loc="outside right upper", ncols=1 + (count - 1) // 24)


def figure(drawing: Figure, words: str) -> str:
    file = io.StringIO()
    drawing.savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(words)}" ', 1)
    return f"<figure>{svg}<figcaption>{escape(words)}</figcaption></figure>"


# -- words --------------------------------------------------------------------------------------------------------------------


def tests(table: Table) -> str:
    lines = []
    for column in table.columns:
        if column.best is None or len(column.values) < 2:
            continue
        same = [f"{escape(c.first)} (p = {c.adjusted:.2g})" for c in column.against(column.best) if not c.significant]
        verdict = f"not told apart from {', '.join(same)}" if same else "different from every other method (all p &lt; 0.05)"
        lines.append(f"<li>{escape(column.label)}: <b>{escape(column.best)}</b> is {verdict}</li>")
    if not lines:
        return ""
    return f"<p>Paired Wilcoxon signed-rank tests against the best method, Holm-corrected:</p><ul>{''.join(lines)}</ul>"


def failures(table: Table) -> str:
    lines = [
        f"<li>{escape(', '.join(filter(None, (methods, metrics))))}: {rows} rows: {escape(reason)}</li>"
        for methods, metrics, rows, reason in failed(table)
    ]
    return f"<p>What failed:</p><ul>{''.join(lines)}</ul>" if lines else ""


def published(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """What a paper prints, for the eye: other models and pictures."""
    names = list(dict.fromkeys(key for row in rows.values() for key in row))
    heads = "".join(f"<th scope=col>{escape(n)}</th>" for n in names)
    lines = "".join(
        f"<tr><td>{escape(method)}</td>{''.join(f'<td>{escape(str(row.get(n, chr(0x2013))))}</td>' for n in names)}</tr>"
        for method, row in rows.items()
    )
    table = f"<table><thead><tr><th scope=col>method</th>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<h2>Published: {escape(title)}</h2><div class="wide" tabindex="0">{table}</div>'


# -- pictures -----------------------------------------------------------------------------------------------------------------


def sheets(table: Table, opened: Opened, *, count: int = 2) -> str:
    """For the first metric that ranks, the pictures on which the best method does best and worst, by all methods."""
    from patchlight.bench.run import given
    from patchlight.render.sheet import Row, sheet

    column = next((c for c in table.columns if c.best), None)
    if column is None or column.best is None:
        return ""
    from patchlight.api import compare

    subject = opened.subject(table.model)
    ordered = sorted(column.values[column.best].items(), key=lambda pair: pair[1], reverse=bool(column.higher))
    chosen = dict.fromkeys([*ordered[:count], *ordered[-count:]])
    whole, numbers = opened.data(table.data)
    by_name = {whole.entries[n].name: n for n in numbers}
    items = [whole[by_name[name]] for name, _ in chosen if name in by_name]
    names = list(dict.fromkeys([column.best, *(m for m in by_rank(table) if m in column.values)]))[:6]
    target = [i.label for i in items] if table.target == "label" else None
    found = compare(subject, items, {m: given(opened.plan, m) for m in names}, target, batch_size=opened.plan.batch)
    rows = []
    for i, item in enumerate(items):
        photo = found[names[0]].source.picture(i).image
        box = found[names[0]].source.box(photo.size)
        values = ", ".join(f"{m} {column.values[m].get(item.name, float('nan')):.2f}" for m in names[:2])
        maps = tuple(found[m].array(i) for m in names)
        rows.append(Row(photo, found[names[0]].label(i), f"{item.name}: {values}", maps, box, ("",) * len(names)))
    words = f"The {count} best and {count} worst pictures of {column.best} by {column.label}"
    file = io.BytesIO()
    sheet(rows, names, scale="picture").convert("RGB").save(file, "JPEG", quality=82)
    data = base64.b64encode(file.getvalue()).decode()
    image = f'<img alt="{escape(words)}" src="data:image/jpeg;base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(words)}</figcaption></figure>"
