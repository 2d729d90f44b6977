"""Reports: every number with its n and interval, baselines marked, failures named, on the terminal, in files and as a page."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from typer.testing import CliRunner

from patchlight.bench import drive, report
from patchlight.bench.numbers import tables
from patchlight.bench.page import page
from patchlight.bench.plan import read_plan
from patchlight.bench.price import price
from patchlight.bench.query import ask
from patchlight.bench.store import Store
from patchlight.cli import app
from patchlight.core.errors import PatchlightError, SettingError

RUN = CliRunner()


@pytest.fixture(scope="module")
def place(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "small.toml").write_text(text, encoding="utf-8")
    job, todo = drive.bench(read_plan(text, name="small"), str(folder / "store"), device="cpu")
    drive.drive(job, todo)
    return folder


@pytest.fixture
def table(place, plan):
    (found,) = tables(Store(str(place / "store")).table(), plan)
    return found


def test_the_table_has_the_numbers_of_the_rows(place, table):
    names, rows = ask(
        str(place / "store"), "select method, avg(value), count(value) from rows where metric = 'deletion' group by 1"
    )
    assert names[0] == "method"
    for method, mean, count in rows:
        found = table.columns[0].estimates.get(method)
        assert (found.n if found else 0) == count
        assert found is None or found.mean == pytest.approx(mean)
        assert found is None or found.low <= found.mean <= found.high
    assert table.pictures == 7


def test_ranks_follow_the_arrow(table):
    deletion, pointing = table.columns
    assert deletion.higher is False
    assert pointing.higher is True
    best = min(deletion.estimates, key=lambda m: deletion.estimates[m].mean)
    assert deletion.best == best
    assert deletion.ranks[best] == 1


def test_markdown_says_n_interval_baseline_and_failure(table, plan):
    text = report.markdown([table], plan)
    assert "n = 7 pictures" in text
    assert "random°" in text
    assert re.search(r"rollout \| (\*\*)?\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\] \(\d\)", text)
    assert "| cam | deletion | 7 | cam cannot explain" in text
    assert "Wilcoxon" in text


def test_csv_and_latex_hold_every_number(table):
    rows = list(csv.DictReader(io.StringIO(report.as_csv([table]))))
    assert len(rows) == 8
    assert {r["n"] for r in rows} == {"7", "0"}
    latex = report.as_latex([table])
    assert latex.count(r"\\") == 1 + 4
    assert r"transformer\_mm" in latex


def test_the_page_needs_nothing_from_elsewhere(table, plan):
    text = page([table], plan, pictures=True)
    assert "data:image/jpeg;base64," in text
    assert text.count("<svg") == 2
    links = re.findall(r'(?:src|href)="([^"]{0,60})', text)
    assert not [link for link in links if not link.startswith(("data:", "#"))]


def test_an_empty_store_says_to_run_first(place):
    found = RUN.invoke(app, ["bench", "report", str(place / "small.toml"), "--store", str(place / "none")])
    assert found.exit_code == 2
    assert "holds no rows of this plan" in " ".join(found.output.split())


def test_a_wrong_query_is_told(place):
    with pytest.raises(SettingError, match="the query cannot be answered"):
        ask(str(place / "store"), "select nothing from nowhere")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["status"], "56 of 56 numbers"),
        (["report"], "mean rank"),
        (["export"], "model,data,target"),
        (["export", "--rows"], "metric_settings"),
        (["export", "--form", "latex"], "toprule"),
        (["run", "--device", "cpu"], "nothing was left to do"),
    ],
)
def test_the_verbs(place, arguments, expected):
    verb, *options = arguments
    found = RUN.invoke(app, ["bench", verb, str(place / "small.toml"), "--store", str(place / "store"), *options])
    assert found.exit_code == 0, found.output
    assert expected in found.output


def test_json_is_json_alone(place):
    for verb in ("status", "report"):
        found = RUN.invoke(app, ["bench", verb, str(place / "small.toml"), "--store", str(place / "store"), "--json"])
        assert json.loads(found.stdout)
    found = RUN.invoke(app, ["bench", "sql", "select count(*) as n from rows", "--store", str(place / "store"), "--json"])
    assert json.loads(found.stdout) == [{"n": 56}]
    assert RUN.invoke(app, ["bench", "plans", "--json"]).exit_code == 0


def test_options_of_pairs_say_their_form(place):
    found = RUN.invoke(app, ["bench", "status", str(place / "small.toml"), "--data", "pets"])
    assert found.exit_code == 2
    assert "takes NAME=PATH, but 'pets' came" in " ".join(found.output.split())


def test_the_price_names_passes_and_what_was_seen(plan):
    found = price(plan, device="cpu", budget=2.0)
    assert {name for r in found.rows for name in r.method.split(", ")} == {"random", "rollout", "transformer_mm", "cam"}
    assert (found.forwards, found.backwards) == (7 * 2, 7 * 1)  # one trace for three methods; random only looks
    assert found.hours > 0
    assert all(r.probed for r in found.rows)
    assert "hours by one worker" in found.lines()[0]
    assert json.dumps(found.record())


def test_a_method_that_the_probe_has_no_time_for_is_scaled_from_its_passes(plan):
    ticks = iter(range(0, 10**6, 50))
    found = price(plan, device="cpu", budget=60, clock=lambda: float(next(ticks)))
    assert any(r.probed == 0 for r in found.rows)
    assert all(r.seconds >= 0 for r in found.rows)


def test_without_duckdb_the_extra_is_named(place, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(PatchlightError, match="is answered by DuckDB, which is missing"):
        ask(str(place / "store"), "select 1")
