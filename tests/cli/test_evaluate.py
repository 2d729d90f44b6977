"""`patchlight evaluate` and `patchlight metrics`."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

import patchlight as pl

TINY = ("--model", "timm:test_vit", "--weights", "random", "--device", "cpu")


@pytest.fixture
def table(photo, tmp_path):
    """Three pictures with labels and boxes, as a table."""
    for k in range(3):
        photo(f"set/images/{k}.png", width=80, height=64, seed=k)
    with (tmp_path / "set" / "index.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "label", "boxes"])
        writer.writerows([f"{k}.png", k, "[[10, 10, 50, 50]]"] for k in range(3))
    return tmp_path / "set"


def test_maps_stand_beside_the_baselines(run, photo, tmp_path):
    photo("a.png"), photo("b.png", seed=1)
    result = run("evaluate", tmp_path, *TINY, "--metric", "deletion,aopc", "--set", "deletion.steps=4", "--set", "levels=3")
    assert result.exit_code == 0, result.stderr
    for word in ("transformer_mm", "random", "centre", "edge", "deletion", "aopc", "n = 2"):
        assert word in result.stdout


def test_a_data_set_brings_boxes_and_everything_is_written(run, table, tmp_path):
    out = tmp_path / "out"
    chosen = ("--metric", "deletion,pointing_game,area,positive_perturbation", "--set", "deletion.steps=4", "--json")
    result = run("evaluate", "--data", "csv_index", "--root", table, *TINY, *chosen, "--out", out, "--method", "rollout")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert list(found["scores"]) == ["rollout", "random", "centre", "edge"]
    one = found["scores"]["rollout"]["deletion"]
    assert one["n"] == 3
    assert one["settings"]["steps"] == 4
    assert len(one["mean_curve"]) == len(one["at"]) == 5
    assert one["mean"] == pytest.approx(np.mean(list(one["values"].values())))
    areas = [rows["area"]["mean"] for rows in found["scores"].values()]
    assert len(set(areas)) == 1
    assert json.loads((out / "scores.json").read_text())["scores"] == found["scores"]
    with (out / "curves.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if (r["maps"], r["metric"]) == ("rollout", "deletion")]
    assert len(rows) == 3 * 5
    with (out / "values.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4 * 4 * 3
    with Image.open(out / "deletion.png") as picture:
        assert picture.width > picture.height
    assert {str(p) for p in out.iterdir()} == set(found["files"])


def test_a_batch_without_any_label_or_box_is_no_reason_to_stop(run, table, monkeypatch):
    """What came before it would be lost."""
    rows = (table / "index.csv").read_text().splitlines()
    (table / "index.csv").write_text("\n".join([*rows[:2], "1.png,,", "2.png,,"]))
    monkeypatch.setattr("patchlight.cli._run.Job.size", 1)
    options = ("--metric", "energy,positive_perturbation", "--set", "levels=2", "--no-baselines", "--json")
    result = run("evaluate", "--data", "csv_index", "--root", table, *TINY, *options)
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["scores"].values()
    for score, note in ((found["energy"], "without any object"), (found["positive_perturbation"], "without a label")):
        assert [v is None for v in score["values"].values()] == [False, True, True]
        assert any(n.startswith(f"2 pictures {note}") for n in score["notes"])


def test_maps_made_elsewhere_are_scored(run, table, tmp_path):
    maps = tmp_path / "maps"
    maps.mkdir()
    for k in range(3):
        rows = np.zeros((64, 80))  # as large as its picture
        rows[20:40, 20:40] = 1
        np.save(maps / f"{k}.npy", rows)
    options = ("--metric", "pointing_game,energy", "--no-baselines", "--json")
    result = run("evaluate", "--data", "csv_index", "--root", table, *TINY, "--maps", maps, *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["scores"][str(maps)]
    assert found["pointing_game"]["mean"] == 1
    assert found["energy"]["mean"] > 0.95
    np.savez(tmp_path / "all.npz", maps=np.stack([np.eye(8)] * 3))
    result = run("evaluate", "--data", "csv_index", "--root", table, *TINY, "--maps", tmp_path / "all.npz", *options)
    assert json.loads(result.stdout)["scores"][str(tmp_path / "all.npz")]["pointing_game"]["n"] == 3


def test_what_explain_wrote_can_be_scored(run, photo, tmp_path):
    photo("in/a.png"), photo("in/b.png", seed=1)
    run("explain", tmp_path / "in", "--out", tmp_path / "maps")
    options = ("--metric", "comprehensiveness", "--no-baselines", "--json")  # of pets-vit: random weights differ from run to run
    ours = run("evaluate", tmp_path / "in", *options)
    read = run("evaluate", tmp_path / "in", *options, "--maps", tmp_path / "maps")
    (one,), (other,) = (json.loads(r.stdout)["scores"].values() for r in (ours, read))
    assert one["comprehensiveness"]["values"] == pytest.approx(other["comprehensiveness"]["values"], rel=1e-4)


def test_a_broken_picture_is_named_and_the_others_are_scored(run, photo, tmp_path):
    photo("a.png")
    (tmp_path / "b.png").write_bytes(b"x")
    result = run("evaluate", tmp_path, *TINY, "--metric", "sufficiency", "--no-baselines")
    assert result.exit_code == 1
    assert "1 picture could not be read" in result.stderr
    assert "n = 1" in result.stdout
    (tmp_path / "a.png").write_bytes(b"x")
    result = run("evaluate", tmp_path, *TINY, "--metric", "sufficiency")
    assert result.exit_code == 2
    assert "none of the 2 pictures can be read. The first:" in " ".join(result.stderr.split())


def wrong(run, *arguments):
    result = run("evaluate", *arguments)
    assert result.exit_code == 2
    return " ".join(result.stderr.split())


def test_a_wrong_call_is_told_what_to_do(run, photo, tmp_path):
    one = photo("a.png")
    assert "give either pictures or --data NAME, not both" in wrong(run)
    assert "no metric was named. Give names such as" in wrong(run, one, "--metric", ",")
    assert "--set takes NAME=VALUE or OWNER.NAME=VALUE" in wrong(run, one, "--set", "steps")
    assert "'rollout' is none of the metrics, method and data" in wrong(run, one, "--set", "rollout.x=1")
    assert "transformer_mm has no setting 'stepz'" in wrong(run, one, "--set", "stepz=1")
    assert "deletion: steps takes int, but 'x' came. See `patchlight metrics deletion`" in wrong(run, one, "--set", "steps=x")
    assert "needs boxes or masks, but none came" in wrong(run, one, *TINY, "--metric", "energy")
    np.save(tmp_path / "two.npy", np.zeros((2, 4, 4)))
    assert "Give one for each, in the order of the pictures" in wrong(run, one, *TINY, "--maps", tmp_path / "two.npy")
    np.save(tmp_path / "one.npy", np.eye(4))
    sanity = wrong(run, one, *TINY, "--maps", tmp_path / "one.npy", "--metric", "class_sensitivity")
    assert "needs maps made anew, which --maps cannot give" in sanity
    maps = tmp_path / "maps"
    maps.mkdir()
    photo("b.png")
    np.save(maps / "a.npy", np.eye(4)), np.save(maps / "b.npy", np.eye(5))
    assert "the maps have different sizes ((4, 4), (5, 5))" in wrong(run, one, tmp_path / "b.png", *TINY, "--maps", maps)


def test_shares_are_given_as_a_list(run, photo):
    options = ("--metric", "sufficiency", "--set", "at=0.1,0.5", "--no-baselines", "--json")
    result = run("evaluate", photo("a.png"), *TINY, *options)
    assert json.loads(result.stdout)["scores"]["transformer_mm"]["sufficiency"]["settings"]["at"] == [0.1, 0.5]


def test_metrics_are_listed_and_one_is_explained(run):
    listed = run("metrics").stdout
    assert all(name in listed for name in pl.metrics())
    shown = run("metrics", "deletion").stdout
    assert "deletion (faithfulness, lower is better)" in shown
    assert "steps = 28" in shown
    found = json.loads(run("metrics", "--json").stdout)
    assert {m["name"] for m in found} == set(pl.metrics())
    assert json.loads(run("metrics", "energy", "--json").stdout)["needs"] == ["boxes or masks"]
    assert "no settings" in run("metrics", "area").stdout
