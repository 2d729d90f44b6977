"""This machine: in this process, or one process for each GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import torch

from patchlight.bench.run import Done, Job, Shard, Tell, Worker
from patchlight.core.errors import PatchlightError, SettingError

HERE: list[Worker] = []  # in a worker process, its worker


def run(job: Job, shards: Sequence[Shard], tell: Tell, *, workers: int | None = None, address: str | None = None) -> None:
    """Every shard once. `workers`: processes; by default one for each GPU, and none beside this one where there is none."""
    if address is not None:
        raise SettingError("the engine 'local' takes no address: it runs here. For a Ray cluster give --engine ray.")
    devices = devices_for(job.device, workers)
    if len(devices) == 1:
        worker = Worker(replace(job, device=devices[0]))
        for shard in shards:
            tell(worker.work_off(shard))
        return
    in_processes(job, list(shards), tell, devices)


def devices_for(device: str, workers: int | None) -> list[str]:
    """One entry for each process: cuda:0, cuda:1, ... or the same device several times."""
    gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    count = workers or max(1, gpus)
    return [f"cuda:{i % gpus}" for i in range(count)] if gpus else [device] * count


def in_processes(job: Job, shards: list[Shard], tell: Tell, devices: list[str]) -> None:
    """A process for each device takes the next shard when it is free; at most two a process wait."""
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.SimpleQueue()
    for device in devices:
        queue.put(device)
    with ProcessPoolExecutor(len(devices), mp_context=spawn, initializer=begin, initargs=(job, queue)) as pool:
        running: set[Future[Done]] = set()
        left = iter(shards)
        others = set(multiprocessing.active_children())
        try:
            while True:
                for shard in left:
                    running.add(pool.submit(work_here, shard))
                    if len(running) >= 2 * len(devices):
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    tell(future.result())
        except BrokenProcessPool as error:
            raise died() from error
        except BaseException:
            stop(set(multiprocessing.active_children()) - others)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def stop(processes: set[Any]) -> None:
    """At once, in the middle of a shard: parts are written whole or not at all, and a shard may take many minutes."""
    for process in processes:
        process.terminate()


def died() -> PatchlightError:
    return PatchlightError(
        "a worker process died (killed, or out of memory). What it had finished is stored: run the same command "
        "again to go on, with fewer --workers if memory was short."
    )


def begin(job: Job, queue: multiprocessing.SimpleQueue[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops the workers
    threading.Thread(target=outlive_nobody, daemon=True).start()
    HERE[:] = [Worker(replace(job, device=queue.get(), threads=job.threads or 1))]


def outlive_nobody() -> None:
    """A parent that was killed cannot stop its workers, which would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work_here(shard: Shard) -> Done:
    return HERE[0].work_off(shard)
