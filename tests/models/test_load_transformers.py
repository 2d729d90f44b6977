"""`load`: folders and model types of transformers, and what is said when they cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from patchlight.core.errors import ModelError
from patchlight.core.preprocess import Preprocess
from patchlight.models.load import load
from small import HALF, HF, NAMES, timm_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny ViT of transformers as `save_pretrained` writes it, in half precision."""
    config = transformers.ViTConfig(**HF, id2label=NAMES, label2id={n: i for i, n in NAMES.items()})
    transformers.ViTForImageClassification(config).half().save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


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
    with pytest.raises(
        ModelError,
        match=r"hf:google/vit cannot be fetched: .* Download the whole repository elsewhere .*: patchlight.load\('hf:FOLDER'\)",
    ):
        load("hf:google/vit")
    with pytest.raises(ModelError, match=r"weights of hf:vit cannot be fetched: 'vit' names a model type"):
        load("hf:vit")
    with pytest.raises(ModelError, match=r"hf:vitt is neither a folder, nor a name on the hub .*Did you mean 'vit'"):
        load("hf:vitt")


def test_hf_needs_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"transformers, which is not installed. Run: pip install 'patchlight\[hf\]'"):
        load("hf:vit", weights="random")
