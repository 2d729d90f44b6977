"""`load`: names of every library, modules as they come, and what is said when neither works."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from patchlight.core.errors import LayoutError, ModelError
from patchlight.core.layout import Layout
from patchlight.core.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from patchlight.models import hub
from patchlight.models import timm as timm_models
from patchlight.models.embedded import EMBEDDED
from patchlight.models.load import find_device, load
from patchlight.models.sizes import input_size, pair, resized

HF: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
NAMES = {0: "cat", 1: "dog", 2: "fox"}
HALF = (0.5, 0.5, 0.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny ViT of transformers as `save_pretrained` writes it, in half precision."""
    config = transformers.ViTConfig(**HF, id2label=NAMES, label2id={n: i for i, n in NAMES.items()})
    transformers.ViTForImageClassification(config).half().save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def timm_config(name: str) -> dict[str, Any]:
    config = timm.get_pretrained_cfg(name)
    assert config is not None
    return config.to_dict()


# -- embedded ---------------------------------------------------------------------------------------------------------


def test_pets_vit_loads_quickly_with_its_labels_and_preprocessing() -> None:
    load("pets-vit")
    start = time.perf_counter()
    subject = load("pets-vit")
    assert time.perf_counter() - start < 1
    assert (subject.name, len(subject.labels), subject.label(0)) == ("pets-vit", 37, "Abyssinian")
    assert subject.origin.startswith("pets_vit_tiny_patch16_224.safetensors (sha256 382d5f89e3ea")
    assert subject.preprocess == Preprocess(size=(224, 224), resize=248, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    assert EMBEDDED["pets-vit"].licence == "Apache-2.0"
    assert "37 breeds" in EMBEDDED["pets-vit"].card


def test_pets_vit_knows_the_pets(shared: Path) -> None:
    pets = shared / "data" / "pets"
    with (pets / "index.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["split"] == "test"]
    picked = [r for _, r in sorted(enumerate(rows), key=lambda p: (p[0] % 10, p[0]))][:100]
    subject = load("pets-vit")
    images = torch.stack([subject.prepare(Image.open(pets / "images" / r["file"])) for r in picked])
    with torch.no_grad():
        right = subject.forward(images).argmax(1) == torch.tensor([int(r["breed"]) for r in picked])
    assert len({r["breed"] for r in picked}) > 30
    assert right.float().mean() >= 0.8


def test_loading_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load("pets-vit")
    assert torch.equal(torch.rand(2), expected)


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
    with pytest.raises(ModelError, match=r"timm:hf-hub:a/b cannot be fetched: .* patchlight.load\('timm:local-dir:FOLDER'\)"):
        load("timm:hf-hub:a/b", weights="random")
    with pytest.raises(ModelError, match=r"weights of timm:vit_giant_patch14_224 cannot be fetched: timm has none for it"):
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


# -- transformers -----------------------------------------------------------------------------------------------------


def test_hf_folder(folder: Path) -> None:
    subject = load(f"hf:{folder}")
    assert subject.labels == ("cat", "dog", "fox")
    assert (subject.preprocess.size, subject.preprocess.mean, subject.preprocess.interpolation) == ((32, 32), HALF, "bilinear")
    attention = getattr(subject.model.config, "_attn_implementation", None)
    assert (subject.dtype, subject.model.training, attention) == (torch.float32, False, "sdpa")
    assert subject.forward(torch.zeros(2, 3, 32, 32)).shape == (2, 3)
    assert (subject.layout().grid, subject.layout().prefix) == ((4, 4), 1)


def test_hf_folder_without_processor_takes_the_size_of_the_configuration(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    assert load(f"hf:{folder}").preprocess == Preprocess(size=(32, 32), resize=(32, 32))


def test_hf_weights_from_a_file_with_other_classes(tmp_path: Path, folder: Path) -> None:
    config = transformers.ViTConfig(**HF, id2label={i: f"LABEL_{i}" for i in range(7)})
    other = transformers.ViTForImageClassification(config)
    torch.save({"state_dict": other.state_dict()}, tmp_path / "seven.pth")
    subject = load(f"hf:{folder}", weights=tmp_path / "seven.pth")
    assert (subject.forward(torch.zeros(1, 3, 32, 32)).shape, subject.labels) == ((1, 7), ())
    assert torch.equal(subject.model.state_dict()["classifier.weight"], other.state_dict()["classifier.weight"])
    tensors = {n: t for n, t in other.state_dict().items() if n != "classifier.bias"} | {"foo": torch.zeros(1)}
    torch.save(tensors, tmp_path / "odd.pth")
    with pytest.raises(
        ModelError, match=r"1 missing \(classifier.bias\); 1 unexpected \(foo\); 1 of another shape \(classifier.weight"
    ):
        load(f"hf:{folder}", weights=tmp_path / "odd.pth", num_labels=4)


def test_hf_files_with_the_older_names_of_tensors(folder: Path) -> None:
    own = load(f"hf:{folder}")
    again = load("hf:vit", weights=folder / "model.safetensors", **HF)
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(own.forward(images), again.forward(images))


@pytest.mark.parametrize("kind", ["vit", "deit", "dinov2", "dinov2_with_registers", "beit"])
def test_hf_model_types_with_random_weights(kind: str) -> None:
    taken = {n: v for n, v in HF.items() if n != "intermediate_size" or "dino" not in kind}
    subject = load(f"hf:{kind}", weights="random", **taken)
    assert (subject.origin, subject.preprocess.size, subject.labels) == ("random", (32, 32), ())
    assert subject.forward(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


def test_hf_towers_hold_their_size_in_the_vision_configuration() -> None:
    subject = load("hf:siglip", weights="random", vision_config=HF)
    assert subject.preprocess.size == (32, 32)
    assert subject.forward(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


def test_hf_towers_saved_in_half_precision_are_float32(tmp_path: Path) -> None:
    config = transformers.SiglipConfig(
        vision_config=HF, text_config={"num_hidden_layers": 1, "hidden_size": 32, "vocab_size": 64}
    )
    transformers.SiglipForImageClassification(config).bfloat16().save_pretrained(tmp_path)
    subject = load(f"hf:{tmp_path}")
    assert {p.dtype for p in subject.model.parameters()} == {torch.float32}
    assert subject.layout().grid == (4, 4)


def test_hf_image_size_changes_the_preprocessing_too(folder: Path) -> None:
    subject = load(f"hf:{folder}", weights="random", image_size=64)
    assert (subject.preprocess.size, subject.preprocess.resize, subject.preprocess.mean) == ((64, 64), (64, 64), HALF)
    assert subject.layout().grid == (8, 8)


def test_hf_timm_wrappers_keep_timm_s_preprocessing() -> None:
    stored: dict[str, Any] = {"architecture": "test_vit", "pretrained_cfg": timm_config("test_vit")}
    config = transformers.TimmWrapperConfig(**stored)
    from patchlight.models.hf import processor

    found = processor(transformers, "x", config, offline=True)
    assert found is not None
    assert found.size == (160, 160)


def test_hf_backbones_have_no_classifier(tmp_path: Path) -> None:
    transformers.ViTModel(transformers.ViTConfig(**HF)).save_pretrained(tmp_path)
    expected = (
        r"do not fill ViTForImageClassification; .* missing \(classifier.bias, classifier.weight\).* Give a checkpoint that was"
    )
    with pytest.raises(ModelError, match=expected):
        load(f"hf:{tmp_path}")


def test_hf_text_models_have_no_image_classifier(tmp_path: Path) -> None:
    transformers.BertConfig(hidden_size=32).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is a model of the type 'bert', for which transformers has no image classifier"):
        load(f"hf:{tmp_path}")


def test_hf_damaged_folders(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(
        ModelError, match=r"should hold a model of transformers \(config.json and weights\), but: .*save_pretrained"
    ):
        load(f"hf:{tmp_path}")
    with pytest.raises(ModelError, match=r"There is no model folder .*vitt. Did you mean 'vit'"):
        load(f"hf:{folder}t")
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match=r"hf:.* cannot be built with its defaults: SafetensorError"):
        load(f"hf:{folder}")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"weights of hf:.* cannot be fetched: .*no file named"):
        load(f"hf:{folder}")


def test_hf_arguments(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"configuration of hf:vit has no 'image_sise'. Did you mean 'image_size'"):
        load("hf:vit", weights="random", image_sise=3)
    with pytest.raises(ModelError, match=r"configuration of hf:.* has no 'image_sise'. Did you mean 'image_size'"):
        load(f"hf:{folder}", image_sise=3)
    with pytest.raises(ModelError, match=r"hf:vit cannot be built with hidden_size='x'"):
        load("hf:vit", weights="random", hidden_size="x")
    with pytest.raises(ModelError, match=r"hf:vit cannot be built with its defaults: ZeroDivisionError"):
        load("hf:vit", weights="random", **{**HF, "patch_size": 0})


@pytest.mark.usefixtures("no_network")
def test_hf_without_network() -> None:
    with pytest.raises(ModelError, match=r"hf:google/vit cannot be fetched: .* patchlight.load\('hf:FOLDER'\)"):
        load("hf:google/vit")
    with pytest.raises(ModelError, match=r"weights of hf:vit cannot be fetched: 'vit' names a model type"):
        load("hf:vit")
    with pytest.raises(ModelError, match=r"hf:vitt is neither a folder, nor a name on the hub .*Did you mean 'vit'"):
        load("hf:vitt")


def test_hf_needs_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"transformers, which is not installed. Run: pip install 'patchlight\[hf\]'"):
        load("hf:vit", weights="random")


# -- torchvision ------------------------------------------------------------------------------------------------------


def small_vit(classes: int = 1000) -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=classes
    )


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


# -- modules ----------------------------------------------------------------------------------------------------------


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
    with pytest.raises(ModelError, match=rf'A model is "timm:NAME", "hf:NAME_OR_FOLDER", .* but \'{name}\' came. {hint}'):
        load(name)


def test_paths_as_names(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"For this folder: load\('hf:{tmp_path}'\)"):
        load(str(tmp_path))
    (tmp_path / "x.pth").touch()
    with pytest.raises(ModelError, match=r"For this file: load\(\"timm:NAME\", weights='.*x.pth'\)"):
        load(str(tmp_path / "x.pth"))
    with pytest.raises(ModelError, match=r"a PosixPath came. Give str\(path\) with a prefix"):
        load(tmp_path)  # type: ignore[arg-type]


def test_other_things(vit: nn.Module) -> None:
    with pytest.raises(ModelError, match=r"or a torch.nn.Module, but a int came"):
        load(3)  # type: ignore[arg-type]
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
