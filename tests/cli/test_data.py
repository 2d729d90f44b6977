"""`patchlight data`."""

from __future__ import annotations

import json

import pytest

from disk import cut_off, photo
from patchlight import data


def test_all_data_sets_are_listed_with_their_licence(run):
    shown = run("data")
    assert shown.exit_code == 0
    listed = json.loads(run("data", "--json").stdout)
    assert [k["name"] for k in listed] == list(data.datasets())
    for name, kind in data.datasets().items():
        assert name in shown.stdout
        assert kind.licence.split()[0] in shown.stdout


@pytest.mark.parametrize("name", [n for n, k in data.datasets().items() if not k.made])
def test_all_about_one(run, name):
    kind = data.datasets()[name]
    shown = run("data", name)
    assert shown.exit_code == 0
    for text in (kind.licence, kind.get, kind.layout, kind.cite, *kind.settings):
        assert text in shown.stdout
    assert json.loads(run("data", name, "--json").stdout)["layout"] == kind.layout


def test_a_copy_on_disk_is_opened_and_checked(run, tmp_path):
    for i in range(4):
        photo(tmp_path / "a" / f"{i}.png", seed=i)
    shown = run("data", "folder", "--root", tmp_path, "--set", "labels=folders")
    assert shown.exit_code == 0
    assert "4 pictures, 4 with a label of 1 classes" in shown.stdout
    assert data.open("folder", tmp_path, labels="folders").digest() in shown.stdout
    cut_off(tmp_path / "a" / "2.png")
    broken = run("data", "folder", "--root", tmp_path, "--check")
    assert broken.exit_code == 1
    assert "broken: a/2.png" in broken.stderr
    found = json.loads(run("data", "folder", "--root", tmp_path, "--check", "--json").stdout)["found"]
    assert [b["name"] for b in found["broken"]] == ["a/2.png"]
    assert found["pictures"] == 4


def test_drawn_scenes_need_no_root(run):
    shown = run("data", "scenes", "--set", "count=3", "--set", "mark=0.5")
    assert shown.exit_code == 0
    assert "3 pictures" in shown.stdout
    described = run("data", "scenes").stdout
    assert "leave_out = " in described
    assert "patchlight data scenes --check" in described


def test_wrong_calls_say_what_to_do(run, tmp_path):
    for arguments, text in (
        (("petz",), "Did you mean 'pets'"),
        (("pets", "--root", tmp_path), "Get images.tar.gz"),
        (("folder", "--set", "labels"), "--set of a data set takes NAME=VALUE, but 'labels' came"),
        (("scenes", "--set", "counts=3"), "has no setting 'counts'. Did you mean 'count'"),
    ):
        result = run("data", *arguments)
        assert result.exit_code == 2, result.stdout
        assert text in result.stderr
