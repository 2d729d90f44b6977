"""The API gives what the library gives, refuses what it must, and says why."""

from __future__ import annotations

import base64
import http.client
import io
import os
import re
import struct
import sys
import time
import zlib
from contextlib import closing, suppress
from importlib.resources import as_file

import numpy as np
import pytest
from PIL import Image

import patchlight as pl
from patchlight.models.embedded import asset
from patchlight.web.uploads import Limits
from web.conftest import picture, served


def sent(client, data: bytes, query: str = "") -> dict:
    status, found = client(f"/pictures{query}", data)
    assert status == 200, found
    return found


def test_an_explanation_is_the_library_s_own(client, small):
    data = picture(1)
    image = Image.open(io.BytesIO(data))
    methods = {"transformer_mm": {}, "vtranm": {"gradient": "logit"}, "saliency": {}}
    wanted = pl.compare(small, image, methods, target=(2, 5))
    status, found = client("/explain", {"picture": sent(client, data)["id"], "methods": methods, "target": 2, "against": 5})
    assert status == 200
    assert set(found["results"]) == set(methods)
    for name, e in wanted.items():
        one = found["results"][name]
        assert np.allclose(one["scores"], e.array(0), rtol=1e-4, atol=1e-7 * float(np.abs(e.array(0)).max()))
        assert one["shape"] == list(e.array(0).shape)
        assert (one["target"], one["against"]) == (2, 5)
        assert one["settings"].items() >= methods[name].items()


@pytest.mark.parametrize("wrap", ["{}", "data:image/png;base64,{}"])
def test_a_picture_may_come_with_the_question(client, wrap):
    text = wrap.format(base64.b64encode(picture(2)).decode())
    status, found = client("/explain", {"picture": text, "methods": ["rollout"]})
    assert status == 200
    assert client(f"/pictures/{found['picture']}")[0] == 200


def test_a_real_photo_gets_its_classes(client):
    with as_file(asset("photos")) as photos:
        data = (photos / "dog.jpg").read_bytes()
        wanted = pl.explain("pets-vit", photos / "dog.jpg", "rollout")
    found = sent(client, data, "?model=pets-vit&name=C%3A%5Cphotos%5C..%5Cdog.jpg")
    assert found["name"] == "dog.jpg"
    assert found["classes"][0][:2] == [int(wanted.target[0]), wanted.class_name(int(wanted.target[0]))]
    assert found["classes"][0][2] == pytest.approx(float(wanted.logits[0].softmax(-1).max()), abs=1e-5)


def test_results_come_as_they_are_ready_the_cheap_ones_first(client):
    body = {"picture": sent(client, picture())["id"], "methods": ["integrated_gradients", "transformer_mm", "rollout", "random"]}
    events = client.lines("/explain/stream", body | {"insides": True})
    assert [events[0]["event"], events[-1]["event"]] == ["start", "end"]
    assert [e["label"] for e in events if e["event"] == "map"][-1] == "integrated_gradients"
    assert {e["label"] for e in events if e["event"] == "map"} == set(body["methods"])
    assert [e["done"] for e in events if e["event"] == "progress"]


def test_a_method_that_cannot_serve_the_model_takes_none_with_it(client):
    body = {"picture": sent(client, picture())["id"], "methods": ["cam", "rollout"]}
    status, found = client("/explain", body)
    assert status == 200
    assert set(found["results"]) == {"rollout"}
    assert "cam cannot explain" in found["problems"]["cam"]
    settings = {"raw_attention": {"head": 90}, "rollout": {}}
    status, found = client("/explain", body | {"methods": settings})
    assert set(found["results"]) == {"rollout"}
    assert "head takes 0 to 1" in found["problems"]["raw_attention"]


def test_a_clicked_patch_attends_as_the_model_does(client, small):
    from patchlight.viewer.attention import see

    data = picture(3)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    seen = see(small, small.prepare(image))
    status, found = client("/attention", {"picture": sent(client, data)["id"], "patch": [1, 2]})
    assert status == 200
    assert len(found["blocks"]) == 3
    for block in found["blocks"]:
        rows = seen.maps[block["index"]][:, 1 + 1 * 4 + 2, 1:].float().numpy()
        most = (np.frombuffer(base64.b64decode(block["most"]), np.uint8) / 255)[:, None] ** 2
        steps = np.frombuffer(zlib.decompress(base64.b64decode(block["data"])), np.uint8).reshape(2, 16)
        assert (np.abs(most * (steps / 31) ** 2 - rows) <= np.sqrt(rows * most) / 31 + most / 31**2 + 1e-3).all()


def test_taking_patches_away_asks_the_model_itself(client, small):
    data = picture(4)
    x = small.prepare(Image.open(io.BytesIO(data)).convert("RGB"))[None]
    x[:, :, :8, :16] = 0  # the first two patches
    wanted = small.scores(x).softmax(-1)[0, 3]
    body = {"picture": sent(client, data)["id"], "grid": [4, 4], "target": 3}
    status, found = client("/scores", body | {"remove": [[0, 1], []]})
    assert status == 200
    assert found["value"][0] == pytest.approx(float(wanted), abs=2e-5)
    order = list(range(16))
    lines = client.lines("/curves", body | {"order": order, "steps": 8})
    values = [v for line in lines for v in line.get("value", [])]
    assert len(values) == 2 * len(lines[0]["counts"])
    assert values[2] == pytest.approx(found["value"][0], abs=2e-5)  # two patches gone: the second deletion
    assert values[0] == pytest.approx(values[-1], abs=2e-5)  # nothing deleted, everything inserted


@pytest.mark.parametrize("kind", ["html", "npz"])
def test_a_file_can_be_fetched(client, kind):
    body = {"picture": sent(client, picture())["id"], "methods": ["rollout"], "format": kind}
    status, data = client("/file", body)
    assert status == 200
    if kind == "html":
        assert data.startswith(b"<!doctype html>")
    else:
        assert np.load(io.BytesIO(data))["rollout/tokens"].shape == (1, 4, 4)


def bomb(side: int) -> bytes:
    """A PNG of a few bytes whose header says side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (b"just some text", 415, "this is no picture"),
        (b"", 415, "this is no picture"),
        (b"%PDF-1.4 not a photo", 415, "this is no picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "this is no picture"),
        (bomb(7000), 413, "the picture has too many pixels"),
        (bomb(60000), 413, "the picture has too many pixels"),
        (b"0" * 21_000_000, 413, "Scale the picture down"),
        (picture()[:200], 422, "cut off or damaged"),
        (b"\xff\xd8\xff\xe0 damaged", 422, "the picture's header cannot be read|cut off or damaged|this is no picture"),
    ],
)
def test_what_is_no_good_picture_is_refused_by_its_content(client, data, status, message):
    found = client("/pictures?name=photo.jpg", data)
    assert found[0] in (status, 415)
    assert re.search(message, found[1]["error"])


def test_a_body_of_unknown_length_is_counted(client):
    with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)) as link:
        link.putrequest("POST", "/pictures")
        link.putheader("transfer-encoding", "chunked")
        link.endheaders()
        with suppress(OSError):  # the server hangs up while we still send
            for _ in range(40):
                link.send(b"100000\r\n" + b"0" * 0x100000 + b"\r\n")
            link.send(b"0\r\n\r\n")
        with suppress(OSError), link.getresponse() as answer:
            assert answer.status == 413
    assert client("/health")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/explain", {"picture": "0" * 32}, 404, "there is no picture"),
        ("/explain", {"picture": "/etc/passwd"}, 404, "there is no picture"),
        ("/explain", {"picture": "file:///etc/passwd" + "x" * 80}, 415, "expected an id from POST /pictures"),
        ("/explain", {"picture": "0", "model": "hf:/tmp"}, 404, "there is no model"),
        ("/explain", {"picture": "0", "methods": ["rolout"]}, 422, "Did you mean 'rollout'"),
        ("/explain", {"picture": "0", "methods": {"rollout": {"block": 1}}}, 422, "rollout has no setting"),
        ("/explain", {"picture": "0", "methods": []}, 422, "methods"),
        ("/explain", {"picture": "0", "against": 1}, 422, "against needs a target"),
        ("/explain", {"picture": "0", "weights": "x"}, 422, "weights: Extra inputs"),
        ("/attention", {"picture": "0", "patch": [1, 500]}, 422, "patch"),
        ("/samples/..%2F..%2Fsecret", b"", 404, "Not Found|there is no sample"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(client, path, body, status, message):
    found = client(path, body, "POST")
    assert found[0] == status
    assert re.search(message, str(found[1]))


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("/explain", {"target": 7}, "the model counts its classes from 0 to 6"),
        ("/explain", {"target": "cat"}, "the model has no label names"),
        ("/attention", {"patch": [3, 4]}, "the grid has 4 x 4 patches, counted from 0, so (3, 4) is none of them"),
        ("/scores", {"grid": [4, 4], "remove": [[16]], "target": 0}, "a patch 16 was named"),
        ("/scores", {"grid": [4, 4], "remove": [[1]], "target": 9}, "class 9 was asked for, and 6 is the last one"),
    ],
)
def test_what_does_not_fit_the_model_is_told(client, path, more, message):
    found = client(path, {"picture": sent(client, picture())["id"], **more})
    assert found[0] == 422
    assert message in found[1]["error"]


def test_an_order_that_misses_a_patch_is_told(client):
    body = {"picture": sent(client, picture())["id"], "grid": [4, 4], "order": [0, 0], "target": 0}
    assert "expected each of the patches 0 to 15 once" in client.lines("/curves", body)[-1]["error"]


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
watched: list[str] = []


def watch(event: str, arguments: tuple) -> None:
    if event == "open" and watched and (arguments[2] & WRITING or set(str(arguments[1])) & set("wax+")):
        watched.append(str(arguments[0]))


def test_no_request_opens_a_file_to_write(client):
    """Also not a temporary one; the interpreter itself tells of every file that is opened."""
    sys.addaudithook(watch)
    watched.append("on")
    key = sent(client, picture(9), "?name=..%2F..%2Fescape.png")["id"]
    client("/explain", {"picture": key, "methods": ["rollout", "saliency"]})
    client("/file", {"picture": key, "methods": ["rollout"], "format": "npz"})
    client("/file", {"picture": key, "methods": ["rollout"], "format": "html"})
    seen = watched[1:]
    watched.clear()
    assert not seen


# -- who may ask -------------------------------------------------------------------------------------------------------


def test_other_hosts_and_sites_are_not_answered(client):
    assert client("/health", host="evil.example")[0] == 403
    assert client("/about", origin="http://evil.example")[0] == 403
    assert client("/health", host=f"localhost:{client.port}", origin=f"http://localhost:{client.port}")[0] == 200


def test_a_token_is_asked_for(small):
    with served({"small": small}, token="s3cret") as known:
        stranger = type(known)(known.port)
        assert stranger("/about")[0] == 401
        assert stranger("/about", authorization="Bearer wrong")[0] == 401
        assert stranger("/")[0] == 200  # the empty page
        assert known("/about", host="elsewhere.example")[0] == 200


def test_every_answer_carries_its_policy(client):
    for path in ("/", "/about", "/nowhere", "/docs"):
        with client.open(path) as answer:
            answer.read()
            assert "default-src 'none'" in (answer.getheader("content-security-policy") or "")
            assert answer.getheader("x-content-type-options") == "nosniff"


def test_the_guide_and_the_description_name_every_route(client):
    described = client("/openapi.json")[1]
    guide = client("/docs")[1].decode()
    assert {"/explain", "/explain/stream", "/pictures", "/attention", "/scores", "/curves", "/file"} <= set(described["paths"])
    assert all(path in guide for path in described["paths"])


# -- the queue ---------------------------------------------------------------------------------------------------------


def idle(client, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while client("/health")[1]["requests"]:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_more_requests_than_it_takes_are_told_that_it_is_busy_and_leaving_stops_the_work(small):
    with served({"small": small}, limits=Limits(requests=1)) as client:
        key = sent(client, picture())["id"]
        long = {"picture": key, "methods": {"smooth_grad": {"samples": 100_000}}}
        with client.open("/explain/stream", long) as answer:
            assert b"start" in answer.readline()
            assert b"progress" in answer.readline()
            status, found = client("/explain", {"picture": key})
            assert status == 503
            assert "the server is busy" in found["error"]
        idle(client)  # the page has left
        assert client("/explain", {"picture": key})[0] == 200
