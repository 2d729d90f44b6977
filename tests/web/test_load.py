"""Many clients and many pictures: no answer lost or mixed up, memory bounded."""

from __future__ import annotations

import gc
import io
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchlight as pl
from patchlight.web.uploads import Limits
from web.conftest import picture, served

SECONDS = float(os.environ.get("PATCHLIGHT_LOAD_SECONDS", "3"))
METHODS = ("rollout", "transformer_mm", "vtranm", "saliency")


def test_eight_clients_at_once_each_get_their_own_answers(client, small):
    wanted = {}
    for k in range(8):
        image = Image.open(io.BytesIO(picture(100 + k)))
        wanted[k] = {n: e.array(0) for n, e in pl.compare(small, image, METHODS, target=k % 7).items()}

    def one(k: int) -> int:
        answers, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            key = client("/pictures", picture(100 + k))[1]["id"]
            names = METHODS[answers % 4 :] or METHODS
            status, found = client("/explain", {"picture": key, "methods": list(names), "target": k % 7})
            assert status == 200, found
            assert set(found["results"]) == set(names)
            for name in names:
                expected = wanted[k][name]
                assert np.allclose(found["results"][name]["scores"], expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())
            answers += 1
        return answers

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(one, range(8)))
    assert min(counts) > 0
    assert max(counts) <= 4 * min(counts) + 4  # nobody is left behind


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc, which is Linux's")
def test_two_hundred_pictures_in_a_row_leave_no_memory_behind(small):
    with served({"small": small}, limits=Limits(memory=6_000_000)) as client:

        def show(seed: int) -> None:
            key = client("/pictures", picture(seed, (320, 240)))[1]["id"]
            client.lines("/explain/stream", {"picture": key, "methods": list(METHODS), "insides": True})
            client("/attention", {"picture": key, "patch": [1, 1]})

        for seed in range(40):  # so many that the store of pictures is full
            show(seed)
        gc.collect()
        before = resident()
        for seed in range(40, 240):
            show(seed)
        gc.collect()
        grown = resident() - before
        assert grown < 20_000_000  # the pictures alone, sent and decoded, would be 92 MB


def test_the_first_map_comes_soon_after_its_own_compute_time(client):
    """Of eight tries the best: all that stands between the question and the map, against the method's own seconds."""
    key = client("/pictures?model=pets-vit", picture(7))[1]["id"]
    body = {"picture": key, "model": "pets-vit", "methods": ["transformer_mm"]}
    ratios = []
    for _ in range(8):
        began = time.perf_counter()
        with client.open("/explain/stream", body) as answer:
            event = {"event": "start"}
            while event["event"] != "map":
                event = json.loads(answer.readline())
        ratios.append((time.perf_counter() - began) / event["about"]["seconds"])
    assert min(ratios) < 1.5
