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
        _, rows = next(Worker(job).rows(todo[0]))
        cells = tuple({r["cell"]: None for r in rows})
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
    none = worker.map(worker.opened.subject("small"), Pictures([], [], {}, []), None, "random")  # type: ignore[arg-type]
    assert "none of the pictures of this shard could be read" in str(none)


def of_group(group: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its = entry.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its) == group and state != "Z":
            found.append(int(entry.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_worker_behind(text, tmp_path, number):
    """Ctrl-C stops the workers in the middle of a shard; those whose parent was killed end by themselves."""
    file, store, said = tmp_path / "small.toml", tmp_path / "store", tmp_path / "said"
    file.write_text(text.replace("count = 7", "count = 60"), encoding="utf-8")
    command = [sys.executable, "-c", RUN, "bench", "run", str(file), "--store", str(store), "--device", "cpu", "--workers", "2"]
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, start_new_session=True)
    until = time.monotonic() + 120
    while not list(store.glob("parts/*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert len(of_group(process.pid)) >= 3, said.read_text(encoding="utf-8")
    process.send_signal(number)
    process.wait(timeout=60)
    while of_group(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not of_group(process.pid)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in said.read_text(encoding="utf-8")


def test_a_method_that_breaks_in_a_shared_trace_takes_no_other_with_it(plan, tmp_path, undisturbed, monkeypatch):
    """Whatever it raises."""
    from patchlight.core.registry import get

    def broken(*_args, **_kwargs):
        raise KeyError("a bug of its own")

    monkeypatch.setitem(get("rollout").__dict__, "function", broken)
    finished(plan, tmp_path)
    rows = Store(str(tmp_path)).table().to_pylist()
    assert {r["error"] for r in rows if r["method"] == "rollout"} == {"KeyError: 'a bug of its own'"}
    whole = [r for r in undisturbed[0].to_pylist() if r["method"] == "transformer_mm"]
    assert [r["value"] for r in rows if r["method"] == "transformer_mm"] == [r["value"] for r in whole]


def test_what_failed_is_done_again_when_asked(plan, tmp_path, undisturbed, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr("patchlight.bench.run.explain", without_memory)
        without.setattr("patchlight.bench.run.compare", without_memory)
        finished(plan, tmp_path)
    assert finished(plan, tmp_path).rows == 0
    job, todo = drive.bench(plan, str(tmp_path), device="cpu", threads=1, retry=True)
    drive.drive(job, todo)
    assert without_measured(job.store.table()).equals(without_measured(undisturbed[0]))


def without_memory(*_args, **_kwargs):
    raise MemoryError("somebody else has it")


def test_a_full_disk_is_one_sentence_and_costs_nothing(plan, text, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from patchlight.bench import store as stores
    from patchlight.cli import app

    file, place, write, parts = tmp_path / "small.toml", tmp_path / "store", stores.pq.write_table, []
    file.write_text(text, encoding="utf-8")

    def full(table, where, **options):
        if len(parts) == 3:
            raise OSError(28, "No space left on device")
        parts.append(where)
        write(table, where, **options)

    with monkeypatch.context() as disk:
        disk.setattr(stores.pq, "write_table", full)
        found = CliRunner().invoke(app, ["bench", "run", str(file), "--store", str(place), "--device", "cpu"])
    said = " ".join(found.output.split())
    assert found.exit_code == 2
    assert "No space left on device). What was finished before is complete and stays. Make room" in said
    assert "Traceback" not in said
    assert Store(str(place)).table().num_rows == 3 * 6
    assert finished(plan, place).rows == 56 - 18


def test_the_precision_of_a_plan_holds_for_masking_methods_too(plan):
    """Left to themselves they score in half precision where the device gains from it."""
    shard = next(iter(drive.shards(Opened(plan, "cpu"), set())))
    worker = Worker(drive.bench(plan, "memory://half", device="cpu")[0])
    assert worker.options(shard)["autocast"] is False
    worker = Worker(drive.bench(replace(plan, precision="bf16"), "memory://half", device="cpu")[0])
    assert worker.options(shard)["autocast"] is True


def test_a_key_is_made_once(plan, monkeypatch):
    """It comes with every row, and asks the files of seven packages for their versions."""
    opened = Opened(plan, "cpu")
    one = opened.cell("small", "random", "deletion", "predicted", 0)
    monkeypatch.setattr("patchlight.bench.opened.packages", lambda: pytest.fail("asked again"))
    assert opened.cell("small", "random", "deletion", "predicted", 0) is one
