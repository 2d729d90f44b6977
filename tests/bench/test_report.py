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
from patchlight.bench.price import lasting, price
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
    assert "| cam | all metrics | 14 | cam cannot explain" in text
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
    assert "second by one worker" in found.lines()[0].replace("seconds", "second")
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


@pytest.mark.parametrize(
    ("hours", "words"), [(1e-5, "under a second"), (0.01, "36 seconds"), (0.5, "30 minutes"), (3.25, "3.2 hours")]
)
def test_a_price_is_told_in_a_unit_that_says_something(hours, words):
    assert lasting(hours) == words


def made(metric, picture, method="m", seed=0, error=None, **more):
    """A row as a run writes it."""
    from patchlight.core.metric import get_metric

    settings = json.dumps(get_metric(metric).resolve({}))
    return {"cell": f"{method}{metric}{seed}", "model": "v", "data": "d", "method": method, "metric": metric,
            "method_name": "random", "method_settings": "{}", "metric_name": metric, "metric_settings": settings,
            "target": "predicted", "seed": seed,
            "precision": "float32", "picture": picture, "content": picture, "index": 0, "value": None if error else 0.5,
            "error": error, **more}  # fmt: skip


def table_of(rows):
    import pyarrow as pa

    from patchlight.bench.store import SCHEMA

    (found,) = tables(pa.Table.from_pylist(rows, schema=SCHEMA))
    return found


def test_a_pooled_number_is_the_one_of_evaluate_and_the_mean_over_seeds():
    """Pixels are summed over the data set before they are divided; a second seed counts as much as the first."""
    import torch

    from patchlight.core.metric import get_metric
    from patchlight.core.score import Score

    metric = get_metric("mean_iou")
    rng = torch.Generator().manual_seed(0)
    expected, rows = [], []
    for seed in (0, 1):
        parts = {n: torch.rand(6, generator=rng, dtype=torch.float64) for n in ("tp", "fp", "fn", "tn")}
        score = Score(metric=metric, settings=metric.resolve({}), values=torch.full((6,), 0.5), parts=parts,
                      names=tuple(f"p{i}" for i in range(6)))  # fmt: skip
        expected.append(score.mean)
        for i in range(6):
            one = {n: p[i].tolist() for n, p in parts.items()}
            rows.append(made("mean_iou", f"p{i}", seed=seed, parts=json.dumps(one)))
    found = table_of(rows).columns[0].estimates["m"]
    assert found.mean == pytest.approx(sum(expected) / 2)
    assert expected[0] != pytest.approx(expected[1])
    assert found.low < found.mean < found.high
    assert found.n == 6


def test_one_picture_has_no_interval_in_any_form():
    found = [table_of([made("deletion", "p")])]
    for text in (report.as_csv(found), report.as_latex(found), report.markdown(found)):
        assert "nan" not in text


def test_many_pictures_that_cannot_be_read_are_few_lines():
    rows = [made(k, f"p{i}", method=m, error=f"no p{i}") for i in range(50) for m in "ab" for k in ("deletion", "insertion")]
    lines = report.markdown_failures(table_of(rows))
    assert len(lines) < 30
    assert any("all methods | all metrics | 4 | no p0" in line for line in lines)
    assert any("120 | 30 other reasons" in line for line in lines)


def test_labels_are_text_on_the_page_and_published_numbers_are_there(text):
    plan = read_plan(text + '[published."a <b> paper"]\nvtranm = { AOPC = 0.297 }\n', name="p")
    rng = iter(range(10**6))
    rows = [made("deletion", f"p{i}", method=m, value=next(rng) % 7 / 7) for i in range(9) for m in ("<i>a</i>", "b")]
    html = page([table_of(rows)], plan)
    assert "<i>a" not in html.replace("&lt;i&gt;", "")
    assert "a &lt;b&gt; paper" in html
    assert "0.297" in html


def test_json_of_sql_takes_whatever_sql_gives(place):
    query = "select 'nan'::double as a, [1.0, 'inf'::double] as b, date '2026-01-02' as c, 1.5::decimal(4,2) as d, null as e"
    found = RUN.invoke(app, ["bench", "sql", query, "--store", str(place / "store"), "--json"])
    assert json.loads(found.stdout) == [{"a": None, "b": [1.0, None], "c": "2026-01-02", "d": "1.50", "e": None}]
