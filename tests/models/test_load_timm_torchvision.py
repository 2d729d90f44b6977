"""`load`: names of timm and torchvision, their own weights, files and what is said without a network."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from patchlight.core.errors import ModelError
from patchlight.models import timm as timm_models
from patchlight.models.load import load
from small import HALF, timm_config

# -- timm -------------------------------------------------------------------------------------------------------------


def test_timm_random_weights_follow_the_seed(tiny: dict) -> None:
    torch.manual_seed(0)
    first = load("timm:vit_tiny_patch16_224", weights="random", **tiny)
    torch.manual_seed(0)
    second = load("timm:vit_tiny_patch16_224", weights="random", **tiny)
    assert torch.equal(first.model.state_dict()["pos_embed"], second.model.state_dict()["pos_embed"])
    assert (first.name, first.origin, first.labels, first.model.training) == ("timm:vit_tiny_patch16_224", "random", (), False)
    assert (first.preprocess.size, first.preprocess.mean) == ((32, 32), HALF)
    assert first.layout().grid == (4, 4)


def test_timm_takes_sizes_that_are_not_square(tiny: dict) -> None:
    subject = load("timm:vit_tiny_patch16_224", weights="random", **{**tiny, "img_size": (32, 64)})
    assert subject.preprocess.size == (32, 64)
    assert subject.layout().grid == (4, 8)


def test_timm_own_weights_from_a_saved_folder(tmp_path: Path, vit: nn.Module, tiny: dict) -> None:
    config = timm_config("vit_tiny_patch16_224") | {"num_classes": 5, "label_names": list("abcde")}
    described = {"architecture": "vit_tiny_patch16_224", "num_classes": 5, "pretrained_cfg": config, "model_args": tiny}
    (tmp_path / "config.json").write_text(json.dumps(described))
    save_file(vit.state_dict(), tmp_path / "model.safetensors")
    subject = load(f"timm:local-dir:{tmp_path}")
    assert torch.equal(subject.model.state_dict()["cls_token"], vit.state_dict()["cls_token"])
    assert subject.labels == tuple("abcde")


def test_timm_uses_what_the_hub_cache_has(tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    torch.manual_seed(1)
    model = timm.create_model("test_vit")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr("patchlight.models.timm.hub_folder", lambda _: tmp_path)
    subject = load("timm:test_vit")
    assert torch.equal(subject.model.state_dict()["cls_token"], model.state_dict()["cls_token"])
    assert (subject.origin, subject.label(0)) == ("timm's own", "tench")


def test_timm_hub_names_come_from_the_cache(tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    described = {"architecture": "test_vit", "pretrained_cfg": timm_config("test_vit")}
    (tmp_path / "config.json").write_text(json.dumps(described))
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr("patchlight.models.timm.hub_folder", lambda _: tmp_path)
    assert load("timm:hf-hub:timm/test_vit.r160_in1k").name == "timm:hf-hub:timm/test_vit.r160_in1k"


@pytest.mark.usefixtures("no_network")
def test_timm_without_network_says_which_file_to_give() -> None:
    expected = r'timm:deit_tiny_patch16_224 cannot be fetched: .* patchlight.load\("timm:deit_tiny_patch16_224", weights="FILE'
    with pytest.raises(ModelError, match=expected):
        load("timm:deit_tiny_patch16_224")
    with pytest.raises(
        ModelError,
        match=r"a/b cannot be fetched: .* Download the whole repository elsewhere .*patchlight.load\('timm:local-dir:FOLDER'\)",
    ):
        load("timm:hf-hub:a/b", weights="random")
    with pytest.raises(
        ModelError,
        match=r'The weights of timm:vit_g.* cannot be fetched: timm has none for it.* or the bare architecture: weights="random"',
    ):
        load("timm:vit_giant_patch14_224")


def test_timm_weights_at_a_plain_address(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(has_weights=True, num_classes=1000, hf_hub_id=None, url="https://there/x.pth")
    monkeypatch.setattr("timm.get_pretrained_cfg", lambda _: config)
    monkeypatch.setattr("patchlight.models.timm.answers", lambda _: False)
    with pytest.raises(ModelError, match=r"cannot be fetched: https://there/x.pth does not answer"):
        load("timm:test_vit")
    monkeypatch.setattr("patchlight.models.timm.answers", lambda _: True)
    assert timm_models.overlay("test_vit", {}) == {}


def test_timm_weights_that_fail_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("reset")

    monkeypatch.setattr("patchlight.models.timm.hub_answers", lambda: True)
    monkeypatch.setattr("timm.create_model", fail)
    with pytest.raises(ModelError, match=r"cannot be fetched: ConnectionResetError while fetching them"):
        load("timm:test_vit")


def test_timm_refuses_what_would_leave_the_classifier_random() -> None:
    with pytest.raises(
        ModelError, match=r"know 1000 classes, but num_classes=10 was asked for, which would leave the classifier random"
    ):
        load("timm:deit_tiny_patch16_224", num_classes=10)


def test_timm_unknown_names_and_arguments(tiny: dict) -> None:
    with pytest.raises(ModelError, match=r"timm .* has no model 'deit_tinny_patch16_224'. Did you mean 'deit_tiny_patch16_224'"):
        load("timm:deit_tinny_patch16_224")
    with pytest.raises(ModelError, match=r"has no model 'qqqq'. No name is near it"):
        load("timm:qqqq")
    with pytest.raises(
        ModelError, match=r"cannot be built with embed_dimm=3, .*: TypeError: .*embed_dimm.* Check the name and the arg"
    ):
        load("timm:vit_tiny_patch16_224", weights="random", embed_dimm=3, **tiny)
    with pytest.raises(ModelError, match=r"There is no config.json in the folder nowhere of timm:local-dir:nowhere"):
        load("timm:local-dir:nowhere")


def test_imagenet_names_are_short_and_unlike_where_they_can_be() -> None:
    names = timm_models.label_names(nn.Module())
    assert names == ()
    model = nn.Module()
    model.num_classes = 1000  # type: ignore[assignment]
    names = timm_models.label_names(model)
    assert (names[0], names[281], len(names)) == ("tench", "tabby", 1000)
    assert "maillot, tank suit" in names
    model.num_classes = 11821  # type: ignore[assignment]
    assert len(timm_models.label_names(model)) == 11821


# -- torchvision ------------------------------------------------------------------------------------------------------


def test_torchvision_random_weights() -> None:
    subject = load("torchvision:resnet18", weights="random", num_classes=4)
    assert (subject.name, subject.origin, subject.labels) == ("torchvision:resnet18", "random", ())
    assert (subject.preprocess.size, subject.preprocess.resize, subject.preprocess.interpolation) == ((224, 224), 256, "bilinear")


def test_torchvision_weights_from_a_file(tmp_path: Path) -> None:
    model = torchvision.models.resnet18(num_classes=4)
    torch.save(model.state_dict(), tmp_path / "four.pth")
    subject = load("torchvision:resnet18", weights=tmp_path / "four.pth")
    assert (subject.forward(torch.zeros(1, 3, 64, 64)).shape, subject.labels) == ((1, 4), ())
    full = torchvision.models.resnet18()
    torch.save(full.state_dict(), tmp_path / "full.pth")
    assert load("torchvision:resnet18", weights=tmp_path / "full.pth").label(0) == "tench"


def test_torchvision_image_size_changes_the_preprocessing_too() -> None:
    subject = load("torchvision:vit_b_16", weights="random", image_size=64, num_classes=3)
    assert (subject.preprocess.size, subject.preprocess.resize) == ((64, 64), 73)
    assert subject.layout().grid == (4, 4)


def test_torchvision_own_weights_from_the_cache(monkeypatch: pytest.MonkeyPatch, no_network: None) -> None:  # noqa: ARG001
    model = torchvision.models.resnet18()
    monkeypatch.setattr("patchlight.models.torchvision.torch_cached", lambda _: True)
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", lambda *_, **__: model.state_dict())
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: model.state_dict())
    subject = load("torchvision:resnet18")
    assert (subject.origin, subject.label(0)) == ("torchvision's IMAGENET1K_V1", "tench")
    assert torch.equal(subject.model.state_dict()["fc.weight"], model.state_dict()["fc.weight"])


def test_torchvision_weights_that_fail_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("reset")

    monkeypatch.setattr("patchlight.models.torchvision.answers", lambda _: True)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    monkeypatch.setattr("patchlight.models.torchvision.torch_cached", lambda _: False)
    with pytest.raises(
        ModelError, match=r"weights of torchvision:resnet18 cannot be fetched: ConnectionResetError while fetching"
    ):
        load("torchvision:resnet18")


@pytest.mark.usefixtures("no_network")
def test_torchvision_errors() -> None:
    with pytest.raises(ModelError, match=r"weights of torchvision:vit_b_16 cannot be fetched: https://.* does not answer"):
        load("torchvision:vit_b_16")
    with pytest.raises(ModelError, match=r"torchvision has no classifier 'vit_b16'. Did you mean 'vit_b_16'"):
        load("torchvision:vit_b16")
    with pytest.raises(ModelError, match=r"torchvision:resnet18 cannot be built with depth=3: TypeError"):
        load("torchvision:resnet18", weights="random", depth=3)
