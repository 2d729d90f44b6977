"""An existing Ray cluster: an actor for each GPU, or for each of n CPUs; lost actors are replaced, their shards repeated."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patchlight.bench.run import Job, Shard, Tell, Worker
from patchlight.core.errors import PatchlightError

TRIES = 4  # of one shard: it may itself be what kills its worker


def run(job: Job, shards: Sequence[Shard], tell: Tell, *, workers: int | None = None, address: str | None = None) -> None:
    """Every shard once, on the cluster at `address` ("auto": the one that this machine belongs to; None: a local one)."""
    ray = import_ray()
    mine = not ray.is_initialized()
    if mine:
        start(ray, address, workers)
    try:
        Crew(ray, job, tell, size(ray, job.device, workers)).work(shards)
    finally:
        if mine:
            ray.shutdown()


def import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise PatchlightError("the engine 'ray' runs on Ray, which is not installed: pip install 'patchlight[ray]'") from error
    return ray


def start(ray: Any, address: str | None, workers: int | None) -> None:
    if address and ":" in address and "://" not in address:
        knock(address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    own = {"include_dashboard": False, "num_cpus": workers} if address is None else {}
    try:
        ray.init(address=address, **quiet, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise no_cluster(address or "this machine", error) from error


def knock(address: str) -> None:
    """Ray itself tries for minutes to reach an address where nobody is."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise no_cluster(address, error) from error


def no_cluster(address: str, error: Exception) -> PatchlightError:
    return PatchlightError(
        f"no Ray cluster answers at {address}: {str(error).splitlines()[0]} "
        "Start one with `ray start --head`, or give its address: --address HOST:PORT."
    )


def size(ray: Any, device: str, workers: int | None) -> int:
    """How many actors: as asked, or one for each GPU, or one for every four CPUs of the cluster."""
    found = ray.cluster_resources()
    gpus = int(found.get("GPU", 0)) if device != "cpu" else 0
    return workers or gpus or max(1, int(found.get("CPU", 1)) // 4)


@dataclass(eq=False)
class Crew:
    """The actors, what each is doing, and what is left: an actor gets its next shard when it hands in the last."""

    ray: Any
    job: Job
    tell: Tell
    count: int
    busy: dict[Any, tuple[Any, Shard]] = field(default_factory=dict)
    tries: dict[Shard, int] = field(default_factory=dict)

    def work(self, shards: Sequence[Shard]) -> None:
        self.left = deque(shards)
        try:
            for _ in range(min(self.count, len(shards))):
                self.give(self.hire())
            while self.busy:
                (ready,), _ = self.ray.wait(list(self.busy), num_returns=1)
                self.take(ready)
        finally:
            for actor, _ in self.busy.values():
                self.ray.kill(actor)

    def hire(self) -> Any:
        gpus = int(self.ray.cluster_resources().get("GPU", 0)) if self.job.device != "cpu" else 0
        threads = self.job.threads or 1
        actor = self.ray.remote(num_cpus=threads, num_gpus=1 if gpus else 0, max_restarts=0)(Worker)
        return actor.remote(replace(self.job, device="cuda" if gpus else "cpu", threads=threads))

    def give(self, actor: Any) -> None:
        if not self.left:
            self.ray.kill(actor)
            return
        shard = self.left.popleft()
        self.busy[actor.work_off.remote(shard)] = (actor, shard)

    def take(self, ready: Any) -> None:
        """What came back, or another actor in the place of a lost one, with the shard to be done again."""
        actor, shard = self.busy.pop(ready)
        try:
            done = self.ray.get(ready)
        except self.ray.exceptions.RayActorError as error:
            self.tries[shard] = self.tries.get(shard, 1) + 1
            if self.tries[shard] > TRIES:
                raise PatchlightError(
                    f"{TRIES} workers died one after the other on the same shard ({shard}). What is finished is stored. "
                    "Give a smaller batch in the plan, or actors with more memory."
                ) from error
            self.left.appendleft(shard)
            self.give(self.hire())
            return
        except self.ray.exceptions.RayTaskError as error:
            self.ray.kill(actor)
            if isinstance(error.cause, PatchlightError):
                raise error.cause from None  # Ray's own message is the worker's traceback
            raise
        self.tell(done)
        self.give(actor)
