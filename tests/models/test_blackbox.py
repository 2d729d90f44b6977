"""Masking methods explain whatever turns pictures into scores: a function, a service over HTTP, an ONNX session."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import Request, urlopen

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import patchlight as pl
import tiny
from patchlight.models.load import FORMS
from tiny import close, pictures

SMALL = pl.Preprocess(size=(32, 32), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
METHODS = {"rise": {"samples": 4}, "occlusion": {"window": 16, "stride": 8}, "patch_intervention": {"grid": (2, 2)}}


def scores(images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return tiny.subject("vit").model(images.double())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["tensor", "array", "lists"])
def test_a_function_is_explained_as_the_model_in_it(method, kind):
    def from_array(images: np.ndarray) -> object:
        assert isinstance(images, np.ndarray)
        found = scores(torch.from_numpy(images))
        return found.tolist() if kind == "lists" else found.numpy()

    inputs = "tensor" if kind == "tensor" else "array"
    held = pl.load(scores if kind == "tensor" else from_array, preprocess=SMALL, inputs=inputs)
    found = pl.explain(held, pictures().float(), method, 3, **METHODS[method])
    expected = pl.explain(tiny.subject("vit"), pictures(), method, 3, **METHODS[method])
    close(found.pixels, expected.pixels, 1e-3)
    assert found.labels == ()


def test_probabilities_are_taken_as_they_are():
    held = pl.load(lambda images: scores(images).softmax(-1), preprocess=SMALL, outputs="probabilities")
    expected = pl.explain(tiny.subject("vit"), pictures(), "occlusion", 3, window=16)
    close(pl.explain(held, pictures().float(), "occlusion", 3, window=16).pixels, expected.pixels, 1e-4)


def test_a_cnn_is_explained():
    found = tiny.explain("cnn", "vit_cx", target=3, insides=True)
    assert found.insides["clusters"].shape == (3, 8)
    assert found.pixels.isfinite().all()


class Service(BaseHTTPRequestHandler):
    """Scores of pictures that come as bytes: the mean of each colour, and of their sum."""

    def do_POST(self) -> None:
        count, height, width = (int(n) for n in self.headers["X-Shape"].split(","))
        rows = np.frombuffer(self.rfile.read(int(self.headers["Content-Length"])), np.uint8)
        means = rows.reshape(count, height, width, 3).mean((1, 2)) / 255
        body = json.dumps(np.concatenate([means, means.sum(1, keepdims=True)], 1).tolist()).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_service_over_http_is_explained(service):
    def ask(images: np.ndarray) -> list[list[float]]:
        head = {"X-Shape": ",".join(map(str, images.shape[:3]))}
        with urlopen(Request(service, images.tobytes(), head)) as answer:
            return json.load(answer)

    held = pl.load(ask, preprocess=SMALL, inputs="pictures")
    photo = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    found = pl.explain(held, photo, "occlusion", 1, window=16, stride=16, score="logit", fill="black")
    green = photo[:16, 16:, 1].astype(float).sum() / 255 / 32**2
    assert found.pixels[0, 3, 20].item() == pytest.approx(green, abs=1e-5)


def session(batch: object, *, last: bool = False) -> onnxruntime.InferenceSession:
    """A network that pools the colours and mixes them."""
    make = onnx.helper
    weight = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4) / 7, "w")
    nodes = [make.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0), make.make_node("MatMul", ["m", "w"], ["y"])]
    axes = onnx.numpy_helper.from_array(np.array([1, 2] if last else [2, 3]), "axes")
    shape = [batch, 32, 32, 3] if last else [batch, 3, 32, 32]
    entry = make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    leave = make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 4])
    graph = make.make_graph(nodes, "g", [entry], [leave], [weight, axes])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("batch", "last"), [("n", False), (4, False), (1, False), ("n", True)])
def test_an_onnx_session_is_explained(batch, last):
    held = pl.load(session(batch, last=last))
    assert held.preprocess.size == (32, 32)
    shown = pictures(count=3).float()
    found = pl.explain(held, shown, "occlusion", 2, window=16, stride=16, score="logit")
    weight = torch.arange(12).reshape(3, 4)[:, 2] / 7
    share = (shown[:, :, :16, 16:].sum((2, 3)) * weight).sum(1) / 32**2
    close(found.pixels[:, 3, 20], share, 1e-4)


WRONG = [
    ({}, lambda _: torch.zeros(5), r"the function should give scores \(1, k\) for 1 pictures, but \(5,\) came"),
    ({}, lambda _: {"scores": 1}, r"the function should give scores \(1, k\), but a dict came that is no array of numbers"),
    ({"outputs": "probabilities"}, lambda x: torch.ones(len(x), 2), "outputs='probabilities': each row should sum to one"),
    ({"inputs": "jpeg"}, scores, "inputs= takes 'tensor', 'array', 'pictures', but 'jpeg' came"),
    ({"img_size": 3}, scores, "load: img_size= belongs with a name, but a function came, which takes inputs= and outputs="),
    ({"weights": "x"}, scores, "load: weights= belongs with a model, but a function came: it shows no inside"),
    ({}, lambda _: 1 / 0, "patchlight explains image classifiers: .*ZeroDivisionError"),
]


@pytest.mark.parametrize(("options", "function", "message"), WRONG, ids=[m[:30] for *_, m in WRONG])
def test_what_does_not_fit_is_told_when_it_is_loaded(options, function, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.load(function, **options)


class Odd:
    """A session whose input is no picture."""

    def get_inputs(self) -> list[object]:
        return [type("Entry", (), {"name": "ids", "shape": ["n", 77], "type": "tensor(int64)"})]

    def get_outputs(self) -> list[object]:
        return []

    def run(self, *_: object) -> list[object]:
        return []


def test_a_session_that_takes_no_pictures_is_an_error():
    with pytest.raises(pl.PatchlightError, match=r"the ONNX session should take pictures .* but its input 'ids' is"):
        pl.load(Odd())


@pytest.mark.parametrize("method", ["vit_cx", "score_cam", "rollout", "saliency"])
def test_a_method_that_needs_more_than_scores_says_so(method):
    held = pl.load(scores, preprocess=SMALL)
    with pytest.raises(pl.PatchlightError, match=r"rise|no attention|masking method"):
        pl.explain(held, pictures().float(), method)


@pytest.mark.parametrize("method", ["saliency", "lrp"])
def test_a_function_in_numpy_has_no_way_back(method):
    held = pl.load(lambda images: torch.tensor(images.numpy().mean((2, 3))), preprocess=SMALL)
    with pytest.raises(pl.PatchlightError, match="differentiable steps"):
        pl.explain(held, pictures().float(), method)


def test_scores_of_masked_pictures_that_are_not_finite_are_an_error():
    def cracks(images: torch.Tensor) -> torch.Tensor:
        return torch.where((images == 0).all(1).any((1, 2))[:, None], torch.nan, scores(images.float()))

    held = pl.load(cracks, preprocess=SMALL)
    held.layouts[32, 32] = pl.Layout(grid=(0, 0), size=(32, 32))
    with pytest.raises(pl.PatchlightError, match="outputs for masked pictures are not finite in float32"):
        pl.explain(held, pictures().float(), "occlusion", 3, window=16)


def test_a_class_is_no_function():
    with pytest.raises(pl.PatchlightError, match=r"a type came\. Make an instance of the class first"):
        pl.load(Odd)
    assert "a function of pictures" in FORMS
