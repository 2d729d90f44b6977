"""The store: whole parts or none, under keys that say what they hold, on any file system."""

from __future__ import annotations

import time
import uuid

import pytest

from patchlight.bench.store import Store, Work, missing, without_measured
from patchlight.core.errors import PatchlightError, SettingError

WORK = Work(("cell a", "cell b"), "pictures", 0, 2)


def rows(cells=("cell a", "cell b"), value=0.5):
    return [{"cell": c, "method": c, "index": i, "value": value, "curve": [1.0, 0.5], "seed": 0} for c in cells for i in range(2)]


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path):
    return Store(str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid.uuid4().hex}")


def test_what_was_written_is_there(store):
    store.write(rows(), WORK)
    assert store.done() == {("cell a", "pictures"), ("cell b", "pictures")}
    assert store.table().num_rows == 4
    assert store.table()["curve"].to_pylist()[0] == [1.0, 0.5]


def test_writing_again_doubles_nothing(store):
    store.write(rows(), WORK)
    store.write(rows(), WORK)
    assert len(store.parts()) == 1
    assert store.table().num_rows == 4


def test_a_cell_in_two_parts_counts_once(store):
    store.write(rows(), WORK)
    store.write(rows(["cell a"]), Work(("cell a",), "pictures", 0, 2))
    assert len(store.parts()) == 2
    assert store.table().num_rows == 4


def test_what_is_missing_is_told_by_cell_and_pictures():
    assert missing(["a", "b"], "p", {("a", "p"), ("b", "q")}) == ["b"]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    store = Store(str(tmp_path))

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("patchlight.bench.store.pq.write_table", full)
    with pytest.raises(PatchlightError, match=r"cannot be written \(No space left on device\). What was finished before"):
        store.write(rows(), WORK)
    assert store.done() == set()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize("damage", [b"", b"PAR1 and then nothing"])
def test_a_damaged_part_is_done_again(tmp_path, damage):
    store = Store(str(tmp_path))
    store.write(rows(), WORK)
    (part,) = (tmp_path / "parts").iterdir()
    part.write_bytes(damage)
    assert store.done() == set()
    store.write(rows(), WORK)
    assert store.table().num_rows == 4


def test_a_part_under_another_name_is_not_believed(tmp_path):
    store = Store(str(tmp_path))
    store.write(rows(), WORK)
    (part,) = (tmp_path / "parts").iterdir()
    part.rename(part.with_name("0123456789abcdef.parquet"))
    assert store.done() == set()


def test_a_part_damaged_in_its_middle_is_named(tmp_path):
    store = Store(str(tmp_path))
    store.write([{**r, "picture": f"p{i}" * 40} for i, r in enumerate(rows())], WORK)
    (part,) = (tmp_path / "parts").iterdir()
    content = bytearray(part.read_bytes())
    content[40:400] = bytes(360)
    part.write_bytes(content)
    with pytest.raises(PatchlightError, match=r"the part .*parquet of the store is damaged .*Delete that file"):
        store.table()


def test_what_killed_runs_left_goes_when_it_is_old(tmp_path):
    import os

    store = Store(str(tmp_path))
    store.write(rows(), WORK)
    for name, age in (("old", 7200), ("new", 10)):
        (tmp_path / "aside" / name).touch()
        os.utime(tmp_path / "aside" / name, (time.time() - age,) * 2)
    store.clean()
    assert [p.name for p in (tmp_path / "aside").iterdir()] == ["new"]


def test_times_and_places_are_not_compared(tmp_path):
    store = Store(str(tmp_path))
    store.write(rows(), WORK)
    assert "map_seconds" not in without_measured(store.table()).column_names


def test_an_address_that_nothing_opens():
    with pytest.raises(SettingError, match=r"there is no way into the store 'nowhere://x': "):
        Store("nowhere://x").done()


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    import runpy
    import sys

    from patchlight.bench import store

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PatchlightError, match="the rows of a benchmark are kept by pyarrow, and that is missing"):
        runpy.run_path(store.__file__)


@pytest.fixture
def bucket(monkeypatch):
    """A store that speaks S3, on this machine."""
    import fsspec
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    for name, value in {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                        "AWS_DEFAULT_REGION": "us-east-1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir("rows")
    yield "s3://rows/plan"
    fsspec.filesystem("s3").clear_instance_cache()
    running.stop()


def test_a_bucket_is_a_store_like_a_folder(bucket):
    store = Store(bucket)
    assert store.done() == set()
    assert store.recall("plan.json") is None
    store.write(rows(), WORK)
    store.write(rows(), WORK)
    store.remember("plan.json", "{}")
    store.clean()
    assert store.done() == {("cell a", "pictures"), ("cell b", "pictures")}
    assert store.table().num_rows == 4
    assert store.recall("plan.json") == "{}"
