"""Runs: what they store, that they go on where they were stopped, and that nothing is lost or counted twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import patchlight as pl
from patchlight.bench import drive
from patchlight.bench.engines import engine, local, names
from patchlight.bench.opened import Opened
from patchlight.bench.run import Worker
from patchlight.bench.store import Store, Work, without_measured
from patchlight.core.errors import PatchlightError, SettingError


def finished(plan, store, **options):
    job, todo = drive.bench(plan, str(store), device="cpu", threads=1)
    return drive.drive(job, todo, **options)


@pytest.fixture(scope="module")
def undisturbed(text, tmp_path_factory):
    """The rows of a run that nothing happened to."""
    from patchlight.bench.plan import read_plan

    place = tmp_path_factory.mktemp("undisturbed")
    outcome = finished(read_plan(text, name="small"), place)
    return Store(str(place)).table(), outcome


def test_every_picture_method_and_metric_has_one_row(undisturbed):
    rows, outcome = undisturbed
    keys = set(zip(*(rows[c].to_pylist() for c in ("picture", "method", "metric")), strict=True))
    assert rows.num_rows == outcome.rows == len(keys) == 7 * 4 * 2


def test_a_number_is_the_one_that_evaluate_gives(plan, undisturbed):
    opened = Opened(plan, "cpu")
    subject, items = opened.subject("small"), opened.pictures("scenes", 0, 3).items
    e = pl.explain(subject, items, "transformer_mm", batch_size=4)
    score = pl.evaluate(subject, items, e, metric="deletion", steps=4, batch_size=4)
    rows = [r for r in undisturbed[0].to_pylist() if r["method"] == "transformer_mm" and r["metric"] == "deletion"]
    assert [r["value"] for r in sorted(rows, key=lambda r: r["index"])][:3] == pytest.approx(score.values.tolist(), abs=1e-6)
    assert rows[0]["predicted"] == int(e.logits[0].argmax())
    assert rows[0]["curve"] is not None


def test_a_method_that_cannot_serve_is_a_row_with_its_reason(undisturbed):
    rows, outcome = undisturbed
    failed = [r for r in rows.to_pylist() if r["method"] == "cam"]
    assert len(failed) == 14
    assert all(r["value"] is None and "its head reads the class token" in r["error"] for r in failed)
    assert sum(outcome.failed.values()) == 14


def test_a_second_run_has_nothing_to_do(plan, tmp_path):
    finished(plan, tmp_path)
    assert finished(plan, tmp_path).shards == 0


def test_only_what_is_new_is_done(plan, tmp_path, text):
    from patchlight.bench.plan import read_plan

    finished(plan, tmp_path)
    more = read_plan(text + "[metrics.energy]\n", name="small")
    far = drive.state(Opened(more, "cpu"), Store(str(tmp_path)).done())
    assert (far.done, far.total) == (56, 84)
    assert finished(more, tmp_path).rows == 28
    assert Store(str(tmp_path)).table().num_rows == 84


def test_other_weights_are_another_cell(plan, tmp_path, weights):
    from safetensors.torch import load_file, save_file

    other = tmp_path / "other.safetensors"
    save_file({n: t * 1.5 for n, t in load_file(weights).items()}, other)
    models = {"small": {**plan.models["small"], "weights": str(other)}}
    one, two = Opened(plan, "cpu"), Opened(replace(plan, models=models), "cpu")
    asked = ("small", "random", "deletion", "predicted", 0)
    assert one.cell(*asked).key == Opened(plan, "cpu").cell(*asked).key
    assert one.cell(*asked).key != two.cell(*asked).key


def test_a_run_stopped_anywhere_ends_like_an_undisturbed_one(plan, tmp_path, undisturbed):
    """Stopped after every single part that is written, until all is done."""
    job, _ = drive.bench(plan, str(tmp_path), device="cpu", threads=1)
    stops = 0
    while todo := list(drive.shards(Opened(plan, "cpu"), job.store.done())):
        rows, cells = next(Worker(job).rows(todo[0]))
        job.store.write(rows, Work(cells, todo[0].pictures, todo[0].start, todo[0].stop - todo[0].start))
        stops += 1
    assert stops == 12
    assert without_measured(job.store.table()).equals(without_measured(undisturbed[0]))


RUN = "import torch; torch.set_num_threads(1); from patchlight.cli import main; main()"


def test_a_killed_process_loses_and_doubles_nothing(text, tmp_path, undisturbed):
    """SIGKILL as soon as another part is there, which falls into the work on the next."""
    file, store = tmp_path / "small.toml", tmp_path / "store"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", RUN, "bench", "run", str(file), "--store", str(store), "--device", "cpu"]
    for parts in (1, 5):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 120
        while len(list(store.glob("parts/*"))) < parts and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert Store(str(store)).table().num_rows < 56
    subprocess.run(command, check=False, capture_output=True, timeout=300)
    assert without_measured(Store(str(store)).table()).equals(without_measured(undisturbed[0]))


def test_a_picture_that_cannot_be_read_is_a_row_and_the_others_go_on(plan, tmp_path):
    from PIL import Image

    for i in range(3):
        Image.effect_noise((40, 40), 60).convert("RGB").save(tmp_path / f"p{i}.png")
    broken = (tmp_path / "p1.png").read_bytes()[:60]
    (tmp_path / "p1.png").write_bytes(broken)
    small = replace(plan, data={"folder": {"name": "folder", "root": str(tmp_path)}},
                    blocks=(replace(plan.blocks[0], data=("folder",), methods=("random",), metrics=("deletion",)),))  # fmt: skip
    finished(small, tmp_path / "store")
    rows = {r["picture"]: r for r in Store(str(tmp_path / "store")).table().to_pylist()}
    assert len(rows) == 3
    bad = [r for r in rows.values() if r["error"]]
    assert len(bad) == 1
    assert bad[0]["value"] is None
    assert sum(r["value"] is not None for r in rows.values()) == 2


def test_several_processes_give_the_same_rows(plan, tmp_path, undisturbed):
    finished(plan, tmp_path, workers=2)
    assert without_measured(Store(str(tmp_path)).table()).equals(without_measured(undisturbed[0]))


def test_one_process_for_each_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert local.devices_for("auto", None) == ["cuda:0", "cuda:1", "cuda:2"]
    assert local.devices_for("cpu", 2) == ["cpu", "cpu"]


def test_an_engine_is_a_file():
    assert names() == ["local", "ray"]
    with pytest.raises(SettingError, match="there is no engine 'spark'"):
        engine("spark")
    with pytest.raises(SettingError, match="the engine 'local' takes no address"):
        local.run(None, [], print, address="auto")  # type: ignore[arg-type]


def test_a_worker_process_that_dies_is_told(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "in_processes", dying)
    with pytest.raises(PatchlightError, match="a worker process died"):
        finished(plan, tmp_path, workers=2)


def dying(*_args):
    from concurrent.futures.process import BrokenProcessPool

    raise local.died() from BrokenProcessPool("killed")


def test_parts_are_files_of_their_own(tmp_path, plan):
    finished(plan, tmp_path)
    assert len(list(Path(tmp_path, "parts").glob("*.parquet"))) == 12
    assert (tmp_path / "small.toml").read_text(encoding="utf-8") == plan.text


def test_a_shard_without_a_single_picture_fails_by_its_reason(plan):
    from patchlight.bench.opened import Pictures

    worker = Worker(drive.bench(plan, "memory://none", device="cpu")[0])
    none = worker.map(worker.opened.subject("small"), Pictures([], [], []), None, "random")  # type: ignore[arg-type]
    assert "none of the pictures of this shard could be read" in str(none)
