"""A report takes the rows that its plan asked for last: other settings, pictures and plans in the same store do not mix in."""

from __future__ import annotations

import json

import pytest

from patchlight.bench import drive
from patchlight.bench.contents import recall
from patchlight.bench.numbers import tables
from patchlight.bench.plan import changed, read_plan
from patchlight.bench.store import Store
from patchlight.core.errors import SettingError

MORE = """
[methods."the same"]
method = "rollout"
[metrics."deletion again"]
metric = "deletion"
steps = 4
"""


def finished(plan, store):
    job, todo = drive.bench(plan, str(store), device="cpu", threads=1)
    return drive.drive(job, todo)


def reported(plan, store):
    place = Store(str(store))
    known = recall(place, plan.name)
    assert known is not None
    (found,) = tables(known.rows(place.table(), plan), plan)
    return {c.label: c for c in found.columns}


@pytest.fixture
def short(text):
    """The plan without the slow half of its methods."""
    return text.replace("[methods.cam]\n", "").replace("[methods.transformer_mm]\n", "")


def test_what_has_two_labels_is_made_once_and_reported_under_both(short, tmp_path):
    plan = read_plan(short + MORE, name="small")
    outcome = finished(plan, tmp_path)
    assert outcome.rows == 7 * 2 * 2  # random and rollout by deletion and pointing
    assert finished(plan, tmp_path).rows == 0
    columns = reported(plan, tmp_path)
    assert set(columns) == {"deletion", "deletion again", "pointing_game"}
    for column in columns.values():
        assert column.values["rollout"] == column.values["the same"]
        assert len(column.values["the same"]) == 7


def test_a_changed_setting_takes_the_place_of_the_old_one(short, tmp_path):
    old = read_plan(short, name="small")
    new = read_plan(short.replace("[methods.rollout]", "[methods.rollout]\nstart_block = 1"), name="small")
    finished(old, tmp_path)
    before = reported(old, tmp_path)["deletion"].values["rollout"]
    assert "rollout" not in reported(new, tmp_path)["deletion"].values  # not run yet: the old number is not shown as its own
    finished(new, tmp_path)
    after = reported(new, tmp_path)["deletion"]
    assert len(after.values["rollout"]) == 7
    assert after.values["rollout"] != before
    finished(new, tmp_path / "alone")
    assert after.values == reported(new, tmp_path / "alone")["deletion"].values


def test_another_number_of_pictures_counts_none_twice(short, tmp_path):
    plan = read_plan(short, name="small")
    finished(changed(plan, count=5), tmp_path)
    assert len(reported(plan, tmp_path)["deletion"].values["random"]) == 5
    finished(plan, tmp_path)
    rows = Store(str(tmp_path)).table().to_pylist()
    keys = [(r["cell"], r["picture"]) for r in rows]
    assert len(keys) == len(set(keys))
    assert len(rows) < (7 + 5) * 4  # some pictures are in both
    assert len(reported(plan, tmp_path)["deletion"].values["random"]) == 7


def test_two_plans_in_one_store_share_what_is_equal_and_mix_nothing(short, tmp_path):
    one = read_plan(short, name="one")
    two = read_plan(short.replace("[methods.rollout]", "[methods.mine]\nmethod = 'rollout'").replace("count = 7", "count = 4"),
                    name="two")  # fmt: skip
    finished(one, tmp_path)
    finished(two, tmp_path)
    assert set(reported(one, tmp_path)["deletion"].values) == {"random", "rollout"}
    found = reported(two, tmp_path)["deletion"].values
    assert set(found) == {"random", "mine"}
    assert len(found["mine"]) == 4


def test_some_methods_only_leave_the_others_in_the_report(short, tmp_path):
    plan = read_plan(short, name="small")
    finished(plan, tmp_path)
    finished(changed(plan, only=["random"]), tmp_path)
    assert set(reported(plan, tmp_path)["deletion"].values) == {"random", "rollout"}


def test_parts_say_what_their_keys_are_digests_of(short, tmp_path):
    import pyarrow.parquet as pq

    finished(read_plan(short, name="small"), tmp_path)
    part = next((tmp_path / "parts").iterdir())
    about = json.loads(pq.read_schema(part).metadata[b"patchlight"])
    assert set(about["keys"]) == set(about["cells"])
    assert {"weights", "packages", "method_version", "seed"} <= set(next(iter(about["keys"].values())))


def test_a_plan_that_was_never_run_there_has_no_contents(tmp_path):
    assert recall(Store(str(tmp_path)), "small") is None


@pytest.mark.parametrize("line", ["seeds = 3", "seeds = []", "seeds = [true]"])
def test_seeds_are_a_list_of_numbers(text, line):
    with pytest.raises(SettingError, match="seeds takes a list of whole numbers"):
        read_plan(line + "\n" + text, name="p")


def test_a_wrong_setting_of_a_metric_is_told_at_once(text):
    with pytest.raises(SettingError, match="deletion has no setting 'stepps'"):
        read_plan(text.replace("steps = 4", "stepps = 4"), name="p")
