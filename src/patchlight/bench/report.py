"""What was found, as a terminal table and as Markdown: n, intervals, baselines, ranks, paired tests, and what failed and why."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table as RichTable

from patchlight.bench.numbers import Column, Table
from patchlight.bench.plan import Plan
from patchlight.core.registry import discover, get

LATEX_ARROW = {True: r"$\uparrow$", False: r"$\downarrow$", None: ""}
ARROW = {True: "↑", False: "↓", None: ""}
REASONS = 20  # of failure, told in a report
INTERVAL = "95 % interval by the bootstrap over pictures; rank 1 is best; baselines are marked with °."


def is_baseline(method: str, plan: Plan | None) -> bool:
    name = plan.method(method)[0] if plan and method in plan.methods else method
    return name in discover() and get(name).family == "baseline"


def named(method: str, plan: Plan | None) -> str:
    return f"{method}°" if is_baseline(method, plan) else method


def number(value: float | None, form: str) -> str:
    """A dash where there is none."""
    return "–" if value is None or value != value else format(value, form)


def heading(column: Column) -> str:
    return f"{column.label} {ARROW[column.higher]}".strip()


def entry(column: Column, method: str) -> str:
    """`0.123 [0.11, 0.14] (3)`, or how many pictures failed."""
    found, failed = column.estimates.get(method), sum(column.failures.get(method, {}).values())
    if found is None or not found.n:
        return f"failed ({failed})" if failed else "–"
    rank = f" ({column.ranks[method]})" if method in column.ranks else ""
    lost = f", {failed} failed" if failed else ""
    interval = f" [{found.low:.3f}, {found.high:.3f}]" if found.low == found.low else ""
    return f"{found.mean:.3f}{interval}{rank}{lost}"


# -- terminal -----------------------------------------------------------------------------------------------------------------


def terminal(tables: list[Table], plan: Plan | None = None) -> Group:
    return Group(*(part for table in tables for part in terminal_table(table, plan)))


def terminal_table(table: Table, plan: Plan | None) -> Iterator[Any]:
    found = RichTable(
        title=f"{table.title}, n = {table.pictures}", title_justify="left", caption=INTERVAL, caption_justify="left"
    )
    found.add_column("method", no_wrap=True)
    for column in table.columns:
        found.add_column(heading(column), justify="right", no_wrap=True)
    found.add_column("mean rank", justify="right")
    for method in by_rank(table):
        cells = [entry(c, method) for c in table.columns]
        found.add_row(named(method, plan), *cells, number(table.mean_rank(method), ".1f"))
    yield found


def by_rank(table: Table) -> list[str]:
    """The best mean rank first; methods without any rank last."""
    return sorted(table.methods, key=lambda m: (table.mean_rank(m) != table.mean_rank(m), table.mean_rank(m)))


# -- Markdown -----------------------------------------------------------------------------------------------------------------


def markdown(tables: list[Table], plan: Plan | None = None) -> str:
    """All tables, the paired tests, the failures and, where the plan has them, the published numbers."""
    lines = [f"# {plan.title if plan else 'Results'}", ""]
    if plan and plan.source:
        lines += [f"After {plan.source}.", ""]
    for table in tables:
        lines += markdown_table(table, plan)
        lines += markdown_tests(table)
        lines += markdown_failures(table)
    if plan and plan.published:
        lines += published(plan.published)
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(table: Table, plan: Plan | None) -> list[str]:
    lines = [f"## {table.title}", "", f"n = {table.pictures} pictures. {INTERVAL}", ""]
    lines += ["| method | " + " | ".join(map(heading, table.columns)) + " | mean rank | s / map |"]
    lines += ["|---|" + "---:|" * (len(table.columns) + 2)]
    for method in by_rank(table):
        cells = [bold(entry(c, method), best=c.best == method) for c in table.columns]
        last = f"{number(table.mean_rank(method), '.1f')} | {number(table.seconds.get(method), '.3g')}"
        lines += [f"| {named(method, plan)} | {' | '.join(cells)} | {last} |"]
    return [*lines, ""]


def bold(text: str, *, best: bool) -> str:
    return f"**{text}**" if best else text


def markdown_tests(table: Table) -> list[str]:
    """The best of each metric against every other method: who is not told apart from it."""
    lines = ["Paired Wilcoxon signed-rank tests against the best method, Holm-corrected over the methods of a metric:", ""]
    for column in table.columns:
        if column.best is None or len(column.values) < 2:
            continue
        against = column.against(column.best)
        same = [f"{c.first} (p = {c.adjusted:.2g})" for c in against if not c.significant]
        verdict = f"not told apart from {', '.join(same)}" if same else "different from every other method (all p < 0.05)"
        lines += [f"* {column.label}: **{column.best}** is {verdict}."]
    return [*lines, ""] if len(lines) > 2 else []


def failed(table: Table) -> list[tuple[str, str, int, str]]:
    """(methods, metrics, rows, reason), the most frequent first: a picture that cannot be read fails everywhere by one reason."""
    found: dict[str, tuple[set[str], set[str], int]] = {}
    for column in table.columns:
        for method, reasons in column.failures.items():
            for reason, count in reasons.items():
                methods, metrics, rows = found.get(reason, (set(), set(), 0))
                found[reason] = methods | {method}, metrics | {column.label}, rows + count
    ordered = sorted(found.items(), key=lambda pair: (-pair[1][2], pair[0]))
    labels = [c.label for c in table.columns]
    told = [
        (listed(methods, table.methods, "methods"), listed(metrics, labels, "metrics"), rows, reason)
        for reason, (methods, metrics, rows) in ordered
    ]
    rest = told[REASONS:]
    return told[:REASONS] + ([("", "", sum(r[2] for r in rest), f"{len(rest)} other reasons: see the rows")] if rest else [])


def listed(some: Collection[str], every: Sequence[str], kind: str) -> str:
    return f"all {kind}" if len(some) == len(every) > 1 else ", ".join(name for name in every if name in some)


def markdown_failures(table: Table) -> list[str]:
    lines = [
        f"| {methods} | {metrics} | {rows} | {reason.replace('|', '/')} |" for methods, metrics, rows, reason in failed(table)
    ]
    return ["What failed:", "", "| method | metric | rows | reason |", "|---|---|---:|---|", *lines, ""] if lines else []


def published(numbers: Mapping[str, Any]) -> list[str]:
    """What the papers print, for the eye; other models and data, so no test is made against it."""
    lines = ["## Published", ""]
    for title, rows in numbers.items():
        names = list(dict.fromkeys(key for row in rows.values() for key in row))
        lines += [f"{title}:", "", "| method | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
        lines += [f"| {method} | " + " | ".join(str(row.get(n, "–")) for n in names) + " |" for method, row in rows.items()]
        lines += [""]
    return lines


# -- export -------------------------------------------------------------------------------------------------------------------

FIELDS = ("model", "data", "target", "precision", "method", "metric", "n", "mean", "low", "high", "rank", "failed")


def records(tables: list[Table]) -> Iterator[dict[str, Any]]:
    """One for each number of the report."""
    for table in tables:
        for column in table.columns:
            for method in table.methods:
                found = column.estimates.get(method)
                yield {
                    "model": table.model, "data": table.data, "target": table.target, "precision": table.precision,
                    "method": method, "metric": column.label, "n": found.n if found else 0,
                    "mean": known(found and found.mean), "low": known(found and found.low),
                    "high": known(found and found.high), "rank": column.ranks.get(method),
                    "failed": sum(column.failures.get(method, {}).values()),
                }  # fmt: skip


def known(value: float | None) -> float | None:
    return None if value is None or value != value else value


def as_csv(tables: list[Table]) -> str:
    file = io.StringIO()
    writer: csv.DictWriter[str] = csv.DictWriter(file, FIELDS, lineterminator="\n")
    writer.writeheader()
    for record in records(tables):
        writer.writerow(record)
    return file.getvalue()


def as_latex(tables: list[Table]) -> str:
    """A booktabs table for each model and data set."""
    parts = []
    for table in tables:
        heads = " & ".join(f"{escaped(c.label)} {LATEX_ARROW[c.higher]}".strip() for c in table.columns)
        lines = [r"\begin{table}", rf"\caption{{{escaped(table.title)}, $n = {table.pictures}$}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}"]
        lines += [r"\toprule", rf"method & {heads} \\", r"\midrule"]
        for method in by_rank(table):
            cells = [latex_entry(c, method) for c in table.columns]
            lines += [rf"{escaped(method)} & {' & '.join(cells)} \\"]
        parts += ["\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])]
    return "\n\n".join(parts) + "\n"


def latex_entry(column: Column, method: str) -> str:
    found = column.estimates.get(method)
    if found is None or not found.n:
        return "--"
    text = f"{found.mean:.3f}"
    half = "" if found.low != found.low else rf" $\pm$ {(found.high - found.low) / 2:.3f}"
    return rf"\textbf{{{text}}}{half}" if column.best == method else f"{text}{half}"


def escaped(text: str) -> str:
    return "".join("\\" + c if c in "_%&#$" else c for c in text)
