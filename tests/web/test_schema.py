"""Whatever the description of the API allows, and what it does not, no call makes the server fail."""

from __future__ import annotations

import base64

import hypothesis
import schemathesis
import torch

import patchlight as pl
import tiny
from patchlight.web.server import create_app
from web.conftest import picture

torch.manual_seed(0)
SMALL = pl.load(tiny.redrawn(tiny.vit()).float(), preprocess=pl.Preprocess((32, 32)))
APP = create_app({"small": SMALL}, hosts=frozenset({"testserver"}))
schema = schemathesis.openapi.from_asgi("/openapi.json", APP)


PICTURE = base64.b64encode(picture()).decode()


@schema.parametrize()
@hypothesis.settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))
def test_no_call_makes_the_server_fail(case):
    """As it is made up, and with a real picture in it, so that it gets further."""
    bodies = [case.body]
    if isinstance(case.body, dict) and "picture" in case.body:
        bodies.append({**case.body, "picture": PICTURE, "model": "small"})
    for body in bodies:
        case.body = body
        answer = case.call()
        assert answer.status_code in (200, 307, 400, 401, 403, 404, 405, 413, 415, 422, 503), answer.text
        if answer.status_code >= 400 and answer.headers.get("content-type") == ["application/json"]:
            assert set(answer.json()) == {"error"}
