"""A real server in a thread, and a plain client."""

from __future__ import annotations

import http.client
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from PIL import Image

import patchlight as pl
import tiny
from patchlight.web.server import create_app


@dataclass(frozen=True)
class Client:
    """One request at a time to a server on this machine."""

    port: int
    token: str | None = None

    @contextmanager
    def open(self, path: str, body: Any = None, verb: str | None = None, **headers: str) -> Iterator[http.client.HTTPResponse]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"content-type": "application/octet-stream" if isinstance(body, bytes) else "application/json"}
        if self.token:
            given["authorization"] = f"Bearer {self.token}"
        given |= {k.replace("_", "-"): v for k, v in headers.items()}
        with closing(link):
            link.request(verb or ("GET" if body is None else "POST"), path, raw, given)
            with link.getresponse() as answer:
                yield answer

    def __call__(self, path: str, body: Any = None, verb: str | None = None, **headers: str) -> tuple[int, Any]:
        with self.open(path, body, verb, **headers) as answer:
            data = answer.read()
            is_json = (answer.getheader("content-type") or "").startswith("application/json")
            return answer.status, json.loads(data) if is_json else data

    def lines(self, path: str, body: Any) -> list[dict[str, Any]]:
        with self.open(path, body) as answer:
            assert answer.status == 200
            return [json.loads(line) for line in answer.read().splitlines()]


@contextmanager
def served(subjects: dict[str, pl.Subject], **options: Any) -> Iterator[Client]:
    app = create_app(subjects, **options)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Client(server.servers[0].sockets[0].getsockname()[1], options.get("token"))
    server.should_exit = True
    thread.join()


def picture(seed: int = 0, size: tuple[int, int] = (64, 48)) -> bytes:
    """A PNG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def small() -> pl.Subject:
    torch.manual_seed(0)
    return pl.load(tiny.redrawn(tiny.vit()).float(), preprocess=pl.Preprocess((32, 32)))


@pytest.fixture(scope="session")
def client(small) -> Iterator[Client]:
    with served({"small": small, "pets-vit": pl.load("pets-vit")}) as found:
        yield found
