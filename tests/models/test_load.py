"""`load`: modules as they come, what names and options may be, and the network."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

from patchlight.core.errors import LayoutError, ModelError
from patchlight.core.layout import Layout
from patchlight.core.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from patchlight.models import hub
from patchlight.models.load import FORMS, find_device, load
from patchlight.models.sizes import input_size, pair, resized
from small import HALF, HF, NAMES

# -- loading ----------------------------------------------------------------------------------------------------------


def test_loading_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load("pets-vit")
    assert torch.equal(torch.rand(2), expected)


# -- modules ----------------------------------------------------------------------------------------------------------


def small_vit(classes: int = 1000) -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=classes
    )


def test_timm_modules_bring_their_preprocessing(vit: nn.Module) -> None:
    subject = load(vit.train())
    assert subject.model is vit
    assert vit.training
    assert (subject.preprocess.size, subject.preprocess.mean, subject.origin) == ((32, 32), HALF, "given")
    assert (subject.labels, subject.name) == ((), "VisionTransformer")


def test_timm_modules_bring_imagenet_names() -> None:
    assert load(timm.create_model("test_vit")).label(0) == "tench"


def test_hf_modules_bring_size_and_labels() -> None:
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**HF, id2label=NAMES))
    subject = load(model)
    assert subject.labels == ("cat", "dog", "fox")
    assert subject.preprocess == Preprocess(size=(32, 32), resize=(32, 32), mean=IMAGENET_MEAN, std=IMAGENET_STD)


def test_torchvision_modules_bring_their_size() -> None:
    subject = load(small_vit(classes=4))
    assert (subject.preprocess.size, subject.preprocess.mean, subject.preprocess.interpolation) == (
        (32, 32),
        IMAGENET_MEAN,
        "bilinear",
    )
    assert subject.layout().grid == (4, 4)


def test_what_is_given_replaces_what_is_found(vit: nn.Module) -> None:
    preprocess = Preprocess(size=(32, 32), mean=HALF)
    layout = Layout(grid=(4, 4), prefix=1, blocks=("blocks.0", "blocks.1"), pool="class")  # type: ignore[arg-type]
    subject = load(vit, layout=layout, preprocess=preprocess, labels=list("abcde"))
    assert (subject.preprocess, subject.given, subject.labels) == (preprocess, layout, tuple("abcde"))
    assert [b.name for b in subject.layout().blocks] == ["blocks.0", "blocks.1"]


def test_a_cnn_is_loaded_without_attention() -> None:
    subject = load(torchvision.models.resnet18(num_classes=3).eval())
    assert subject.layout().missing("attention") == "it has no attention"


class Home(nn.Module):
    """A home-made classifier without attention, size or configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.mean((2, 3)))


def test_home_made_modules_get_the_usual_size() -> None:
    subject = load(Home())
    assert (subject.preprocess.size, subject.preprocess.resize, subject.preprocess.mean) == ((224, 224), 256, IMAGENET_MEAN)


def test_a_text_model_is_refused() -> None:
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    with pytest.raises(
        ModelError, match=r"patchlight explains image classifiers: it called Bert\w+ with a float tensor \(1, 3, 224, 224\)"
    ):
        load(transformers.BertForSequenceClassification(config))


def test_modules_that_give_no_scores_are_refused() -> None:
    with pytest.raises(
        ModelError, match=r"ViTModel: the forward pass should give class scores \(b, k\), but a BaseModelOutputWithPool"
    ):
        load(transformers.ViTModel(transformers.ViTConfig(**HF)))


def test_errors_of_the_layout_come_through(vit: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LayoutError("give layout=")

    monkeypatch.setattr("patchlight.models.subject.find_layout", fail)
    with pytest.raises(LayoutError, match="give layout="):
        load(vit)


def test_sizes_are_read_where_modules_tell_them() -> None:
    module = nn.Module()
    assert input_size(module) == (224, 224)
    module.image_size = [32, 64]  # type: ignore[assignment]
    assert input_size(module) == (32, 64)
    assert [pair(v) for v in (8, (8, 9), True, "8", (8,), None, 0)] == [(8, 8), (8, 9), None, None, None, None, None]


def test_preprocessing_at_another_size_sees_the_same_part() -> None:
    plain = Preprocess(size=(224, 224), resize=256)
    assert resized(plain, (112, 112)) == Preprocess(size=(112, 112), resize=128)
    assert resized(plain, (224, 448)) == Preprocess(size=(224, 448), resize=(256, 512), fit="cover")
    assert resized(Preprocess(size=(8, 8)), (4, 4)) == Preprocess(size=(4, 4))
    assert resized(Preprocess(size=(8, 8), resize=(8, 8)), (4, 4)) == Preprocess(size=(4, 4), resize=(4, 4))


# -- names and options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deit_tiny_patch16_224", "Did you mean 'timm:deit_tiny_patch16_224'"),
        ("deit_tiny_patch16_224.fb_in1k", "Did you mean 'timm:deit_tiny_patch16_224.fb_in1k'"),
        ("vit_b_16", "Did you mean 'torchvision:vit_b_16'"),
        ("resnet18", "Did you mean 'torchvision:resnet18' or 'timm:resnet18'"),
        ("pets_vit", "Did you mean 'pets-vit'"),
        ("deit_tinny_patch16_224", "Did you mean 'timm:deit_tiny_patch16_224'"),
        ("open_clip:vit_b_16", "Did you mean 'torchvision:vit_b_16'"),
        ("timm:", "No name is near it"),
        ("qqqq", "No name is near it"),
    ],
)
def test_names_without_a_known_prefix(name: str, hint: str) -> None:
    with pytest.raises(ModelError, match=rf"^A model is {re.escape(FORMS)}, but the name '{name}' came\. {hint}"):
        load(name)


def test_paths_as_names(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"For this folder: load\('hf:{tmp_path}'\)"):
        load(str(tmp_path))
    (tmp_path / "x.pth").touch()
    with pytest.raises(ModelError, match=r"For this file: load\(\"timm:NAME\", weights='.*x.pth'\)"):
        load(str(tmp_path / "x.pth"))
    with pytest.raises(ModelError, match=r"a PosixPath came. Give str\(path\) with a prefix"):
        load(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("thing", [3, None, b"pets-vit", ["pets-vit"]], ids=str)
def test_things_that_are_no_model(thing: Any) -> None:
    with pytest.raises(ModelError, match=rf"^A model is {re.escape(FORMS)}, but a {type(thing).__name__} came\.$"):
        load(thing)


def test_other_things(vit: nn.Module) -> None:
    with pytest.raises(ModelError, match=r"but a type came. Make an instance of the class first"):
        load(type(vit))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"load: weights=, img_size= belongs with a name, but a module came"):
        load(vit, weights="random", img_size=32)
    with pytest.raises(ModelError, match=r"weights= takes a file, 'random' or None, but a OrderedDict came. Give a path"):
        load("timm:test_vit", weights=vit.state_dict())  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"layout= takes a patchlight Layout, but a tuple came"):
        load(vit, layout=(4, 4))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"preprocess= takes a patchlight Preprocess, but a function came"):
        load(vit, preprocess=lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"labels= takes the class names in order, as a list of str, but a str came"):
        load(vit, labels="abcde")
    with pytest.raises(ModelError, match=r"VisionTransformer cannot be moved to the device 'gpu'"):
        load(vit, device="gpu")


def test_a_subject_is_returned_as_it_is(vit: nn.Module) -> None:
    subject = load(vit)
    assert load(subject) is subject
    with pytest.raises(ModelError, match=r"load: labels= belongs with a name or a module, but a Subject came"):
        load(subject, labels=["a"])


def test_devices(vit: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(vit, device="cpu").device == torch.device("cpu")
    assert load(vit, device="auto").device.type == find_device()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert find_device() == "cpu"
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert find_device() == "mps"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert find_device() == "cuda"


# -- the network ------------------------------------------------------------------------------------------------------


def test_a_host_that_does_not_exist_does_not_answer() -> None:
    start = time.perf_counter()
    assert not hub.answers("https://nowhere.invalid/")
    assert not hub.answers("http://127.0.0.1:9/")
    assert time.perf_counter() - start < 15


def test_offline_mode_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchlight.models.hub.answers", lambda _: True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert hub.hub_answers()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert not hub.hub_answers()


def test_any_answer_is_an_answer() -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Refuses(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(403 if self.path == "/no" else 200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert hub.answers(f"http://127.0.0.1:{server.server_port}/no")
        assert hub.answers(f"http://127.0.0.1:{server.server_port}/yes")
        server.shutdown()


def test_caches_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    assert not hub.torch_cached("https://there/x.pth")
    (tmp_path / "checkpoints" / "x.pth").touch()
    assert hub.torch_cached("https://there/x.pth")
    assert hub.hub_folder("nobody/has-this-one") is None
    assert hub.hub_folder("not a name at all") is None


def test_importing_load_stays_cheap() -> None:
    code = "import sys, patchlight.models.load; assert not {'timm', 'transformers', 'torchvision'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
