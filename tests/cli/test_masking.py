"""Masking methods on the command line: an end to sampling, progress within a picture, and Ctrl-C that keeps what is done."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

from patchlight.cli import STOPPED, _run


def test_until_is_a_setting_of_every_method_that_has_it(run, photo, tmp_path, monkeypatch):
    monkeypatch.setattr("patchlight.methods.masking.rise.CHECK", 8)
    arguments = ("--method", "rise,centre", "--until", "0.9", "--set", "samples=600", "--json", "--out", tmp_path / "out")
    done = run("explain", photo("a.png"), *arguments)
    assert done.exit_code == 0, done.stderr
    record = next(r for r in json.loads(done.stdout)["records"] if r["method"] == "rise")
    assert record["settings"]["until"] == 0.9
    assert record["samples"] == [8]
    with np.load(tmp_path / "out" / "a.rise.npz") as stored:
        assert stored["error"].shape == (1, 224, 224)


def test_until_without_a_method_that_samples_is_an_error(run, photo):
    done = run("explain", photo("a.png"), "--method", "rollout", "--until", "0.1")
    assert done.exit_code == 2
    assert "none of rollout has a setting 'until'" in done.stderr


def test_an_interrupt_writes_what_is_done(run, photo, tmp_path, monkeypatch):
    tell = _run.Steps.tell

    def pressing(self: _run.Steps, done: int, total: int) -> None:
        tell(self, done, total)
        if done >= 16:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_run.Steps, "tell", pressing)
    done = run("explain", photo("a.png"), "--method", "rise", "--set", "samples=600", "--out", tmp_path / "out")
    assert done.exit_code == STOPPED
    assert "interrupted after 16 of 600 masks" in done.stdout
    assert (tmp_path / "out" / "a.rise.png").stat().st_size > 0


@pytest.mark.parametrize("methods", [1, 2])
def test_steps_of_methods_are_shares_of_the_pictures(methods):
    moved: list[float] = []
    steps = _run.Steps(4, methods, moved.append)
    for _ in range(methods):
        for done in (1, 5, 10):
            steps.tell(done, 10)
    assert sum(moved) == pytest.approx(4)
    steps.end()
    assert sum(moved) == pytest.approx(4)
    assert all(m >= 0 for m in moved)
