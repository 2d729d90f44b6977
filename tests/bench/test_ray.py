"""A real Ray cluster of two nodes on this machine: the same rows as without it, also when a worker is killed in its work."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from patchlight.bench import drive
from patchlight.bench.engines import ray as engine
from patchlight.bench.store import without_measured
from patchlight.core.errors import PatchlightError

ray = pytest.importorskip("ray", reason="needs the extra ray")
# Ray's own warnings about its coming versions, and sockets that it leaves to the collector
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    yield found
    ray.shutdown()
    found.shutdown()


def workers() -> list[int]:
    """The processes of actors that are at work on a shard."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().startswith(b"ray::Worker.work_off"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def test_two_nodes_one_worker_killed_same_rows_as_alone(cluster, plan, tmp_path):
    alone, todo = drive.bench(plan, str(tmp_path / "alone"), device="cpu", threads=1)
    drive.drive(alone, todo)
    job, todo = drive.bench(plan, str(tmp_path / "ray"), device="cpu", threads=1)
    killed, told = [], []

    def kill_another(done):
        told.append(done.shard)
        if not killed and (others := workers()):
            os.kill(others[-1], signal.SIGKILL)
            killed.append(others[-1])

    outcome = drive.drive(job, todo, name="ray", workers=2, address=cluster.address, tell=kill_another)
    assert killed
    assert sorted(told, key=lambda s: s.start) == todo
    assert outcome.shards == 3
    assert without_measured(job.store.table()).equals(without_measured(alone.store.table()))


def test_a_shard_that_kills_every_worker_is_given_up():
    class Error(Exception):
        pass

    class Fake:
        """A cluster whose actors die at once."""

        class exceptions:  # noqa: N801
            RayActorError = Error

        def get(self, _):
            raise Error

        def wait(self, waiting, **_):
            return [waiting[0]], waiting[1:]

        def kill(self, _):
            pass

    crew = engine.Crew(Fake(), None, print, 1)  # type: ignore[arg-type]
    numbers = iter(range(100))
    crew.hire = lambda: "actor"
    crew.give = lambda actor: crew.busy.__setitem__(next(numbers), (actor, crew.left.popleft()))
    with pytest.raises(PatchlightError, match="workers died one after the other on the same shard"):
        crew.work(["shard"])  # type: ignore[list-item]


def test_no_cluster_there_is_told():
    with pytest.raises(PatchlightError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        engine.start(ray, "127.0.0.1:1", None)


def test_without_ray_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PatchlightError, match="runs on Ray, which is not installed"):
        engine.import_ray()
