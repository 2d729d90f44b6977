"""Weights from files: every container, and every way in which a file may not fit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from patchlight.core.errors import ModelError
from patchlight.models.load import load
from patchlight.models.weights import fill, read

NAME = "timm:vit_tiny_patch16_224"


def same(a: nn.Module, b: nn.Module) -> bool:
    other = b.state_dict()
    return all(torch.equal(t, other[n]) for n, t in a.state_dict().items())


def test_safetensors_fill_the_model_and_the_origin_names_file_and_hash(tmp_path: Path, vit: nn.Module, tiny: dict) -> None:
    save_file(vit.state_dict(), tmp_path / "own.safetensors")
    subject = load(NAME, weights=tmp_path / "own.safetensors", num_classes=5, **tiny)
    assert same(vit, subject.model)
    assert (
        subject.origin
        == f"own.safetensors (sha256 {hashlib.sha256((tmp_path / 'own.safetensors').read_bytes()).hexdigest()[:12]})"
    )
    assert not subject.model.training


@pytest.mark.parametrize("suffix", ["pth", "pt", "bin"])
@pytest.mark.parametrize("key", ["", "state_dict", "model", "model_state", "state_dict_ema", "model_state_dict"])
def test_torch_files_bare_and_nested(tmp_path: Path, vit: nn.Module, tiny: dict, suffix: str, key: str) -> None:
    path = tmp_path / f"own.{suffix}"
    torch.save({key: vit.state_dict(), "epoch": 3} if key else vit.state_dict(), path)
    subject = load(NAME, weights=str(path), **tiny)
    assert same(vit, subject.model)
    assert subject.origin.endswith(f", {key})" if key else ")")


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "module._orig_mod.", "model.module."])
def test_prefixes_that_all_names_have_are_removed(tmp_path: Path, vit: nn.Module, tiny: dict, prefix: str) -> None:
    torch.save({prefix + n: t for n, t in vit.state_dict().items()}, tmp_path / "own.pth")
    assert same(vit, load(NAME, weights=tmp_path / "own.pth", **tiny).model)


def test_a_prefix_that_only_some_names_have_stays(tmp_path: Path) -> None:
    torch.save({"model.a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "own.pth")
    assert set(read(tmp_path / "own.pth").tensors) == {"model.a", "b"}


def test_half_files_fill_float32_models(tmp_path: Path, vit: nn.Module, tiny: dict) -> None:
    save_file({n: t.half() for n, t in vit.state_dict().items()}, tmp_path / "half.safetensors")
    subject = load(NAME, weights=tmp_path / "half.safetensors", **tiny)
    assert {p.dtype for p in subject.model.parameters()} == {torch.float32}
    torch.testing.assert_close(subject.model.state_dict()["head.weight"], vit.state_dict()["head.weight"], rtol=1e-3, atol=1e-6)


def test_the_number_of_classes_comes_from_the_file(tmp_path: Path, vit: nn.Module, tiny: dict) -> None:
    save_file(vit.state_dict(), tmp_path / "five.safetensors")
    subject = load(NAME, weights=tmp_path / "five.safetensors", **tiny)
    assert subject.forward(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    assert subject.labels == ()
    with pytest.raises(ModelError, match=r"2 of another shape \(head.weight: file \(5, 32\), model \(7, 32\), head.bias"):
        load(NAME, weights=tmp_path / "five.safetensors", num_classes=7, **tiny)


def test_what_does_not_fit_is_listed_with_counts_and_shapes(tmp_path: Path, vit: nn.Module, tiny: dict) -> None:
    tensors = vit.state_dict()
    del tensors["norm.weight"], tensors["norm.bias"]
    tensors["cls_token"] = torch.zeros(1, 1, 48)
    tensors |= {f"extra{i}": torch.zeros(1) for i in range(7)}
    save_file(tensors, tmp_path / "odd.safetensors")
    with pytest.raises(ModelError, match=r"odd.safetensors does not fit timm:vit_tiny_patch16_224") as caught:
        load(NAME, weights=tmp_path / "odd.safetensors", **tiny)
    said = str(caught.value)
    assert "2 missing (norm.weight, norm.bias)" in said
    assert "7 unexpected (extra0, extra1, extra2, extra3, extra4, ...)" in said
    assert "1 of another shape (cls_token: file (1, 1, 48), model (1, 1, 32))" in said
    assert "Give the name of the architecture" in said


def test_batch_counters_may_be_missing(tmp_path: Path) -> None:
    model = torchvision.models.resnet18(num_classes=3)
    kept = {n: t for n, t in model.state_dict().items() if not n.endswith("num_batches_tracked")}
    torch.save(kept, tmp_path / "old.pth")
    assert same(model, fill(torchvision.models.resnet18(num_classes=3), read(tmp_path / "old.pth"), name="resnet18"))


def test_another_image_size_resizes_position_embeddings_only_on_request(tmp_path: Path, tiny: dict) -> None:
    at_64 = timm.create_model("vit_tiny_patch16_224", num_classes=5, **{**tiny, "img_size": 64})
    save_file(at_64.state_dict(), tmp_path / "at64.safetensors")
    subject = load(NAME, weights=tmp_path / "at64.safetensors", **{**tiny, "img_size": (32, 64)})
    assert "1 position embeddings resized" in subject.origin
    assert subject.preprocess.size == (32, 64)
    at_224 = timm.create_model("vit_tiny_patch16_224", num_classes=5, **{k: v for k, v in tiny.items() if k != "img_size"})
    save_file(at_224.state_dict(), tmp_path / "at224.safetensors")
    del tiny["img_size"]
    with pytest.raises(ModelError, match=r"1 of another shape \(pos_embed: file \(1, 65, 32\), model \(1, 785, 32\)\)"):
        load(NAME, weights=tmp_path / "at64.safetensors", **tiny)


def test_another_patch_size_is_never_resized(tmp_path: Path, tiny: dict) -> None:
    other = timm.create_model("vit_tiny_patch16_224", num_classes=5, **{**tiny, "patch_size": 16})
    save_file(other.state_dict(), tmp_path / "patch16.safetensors")
    with pytest.raises(ModelError, match=r"patch_embed.proj.weight: file \(32, 3, 16, 16\), model \(32, 3, 8, 8\)"):
        load(NAME, weights=tmp_path / "patch16.safetensors", **tiny)


def test_older_names_go_through_the_family_s_own_converter(tmp_path: Path) -> None:
    small = {"embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2), "img_size": 32, "window_size": 4, "num_classes": 5}
    model = timm.create_model("swin_tiny_patch4_window7_224", **small)
    old = model.state_dict() | {"layers.0.blocks.0.attn.relative_position_index": torch.zeros(16, 16, dtype=torch.long)}
    old["head.weight"], old["head.bias"] = old.pop("head.fc.weight"), old.pop("head.fc.bias")
    torch.save(
        {"model": {n.replace("layers.1.downsample", "layers.0.downsample"): t for n, t in old.items()}}, tmp_path / "ms.pth"
    )
    subject = load("timm:swin_tiny_patch4_window7_224", weights=tmp_path / "ms.pth", **small)
    assert same(model, subject.model)
    assert subject.origin.endswith("names converted by timm")


# -- files that cannot be used ----------------------------------------------------------------------------------------


def test_a_missing_file_names_its_neighbours(tmp_path: Path, tiny: dict) -> None:
    (tmp_path / "deit_tiny.safetensors").touch()
    with pytest.raises(
        ModelError, match=r"There is no weights file .*deit_tinny.safetensors. Did you mean 'deit_tiny.safetensors'"
    ):
        load(NAME, weights=tmp_path / "deit_tinny.safetensors", **tiny)
    with pytest.raises(ModelError, match=r"There is no weights file .* Its folder .* does not exist either"):
        load(NAME, weights=tmp_path / "no" / "x.pth", **tiny)


def test_a_folder_is_not_a_file(tmp_path: Path, tiny: dict) -> None:
    with pytest.raises(ModelError, match=r"is a folder, but a file was expected. Give a file in it, or load 'hf:"):
        load(NAME, weights=tmp_path, **tiny)


@pytest.mark.parametrize("content", [b"junk", b"\x80\x02", b"j\x00"])
def test_a_file_that_no_unpickler_knows(tmp_path: Path, tiny: dict, content: bytes) -> None:
    path = tmp_path / "junk.pth"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"junk.pth cannot be read as (a torch file|tensors only)"):
        load(NAME, weights=path, **tiny)


@pytest.mark.parametrize("name", ["cut.safetensors", "cut.pth"])
def test_a_truncated_file(tmp_path: Path, vit: nn.Module, tiny: dict, name: str) -> None:
    path = tmp_path / name
    save_file(vit.state_dict(), path) if path.suffix == ".safetensors" else torch.save(vit.state_dict(), path)
    path.write_bytes(path.read_bytes()[:3000])
    kind = "safetensors" if path.suffix == ".safetensors" else "a torch file"
    with pytest.raises(
        ModelError, match=rf"{name} cannot be read as {kind}, so it is probably cut off, damaged or in another format"
    ):
        load(NAME, weights=path, **tiny)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"<html></html>"])
@pytest.mark.parametrize("name", ["a.safetensors", "a.pth"])
def test_something_else_in_the_file(tmp_path: Path, tiny: dict, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=r"cannot be read as"):
        load(NAME, weights=tmp_path / name, **tiny)


def test_pickled_objects_are_not_run(tmp_path: Path, vit: nn.Module, tiny: dict) -> None:
    torch.save(vit, tmp_path / "whole.pth")
    with pytest.raises(ModelError, match=r"whole.pth cannot be read as tensors only: .* could run code. Save it anew"):
        load(NAME, weights=tmp_path / "whole.pth", **tiny)


@pytest.mark.parametrize(("content", "came"), [({"epoch": 3}, "a dict with epoch"), ([torch.ones(1)], "a list"), ({}, "a dict")])
def test_no_state_dict_in_the_file(tmp_path: Path, tiny: dict, content: object, came: str) -> None:
    torch.save(content, tmp_path / "own.pth")
    with pytest.raises(ModelError, match=rf"should hold tensors by name, bare or under state_dict, .* but it holds {came}"):
        load(NAME, weights=tmp_path / "own.pth", **tiny)


# -- the real files ---------------------------------------------------------------------------------------------------


def test_the_real_deit_tiny(shared: Path) -> None:
    subject = load("timm:deit_tiny_patch16_224", weights=shared / "weights" / "deit_tiny_patch16_224.safetensors")
    assert subject.labels[:2] == ("tench", "goldfish")
    assert len(subject.labels) == 1000
    assert subject.preprocess.size == (224, 224)
    assert (subject.layout().grid, subject.layout().prefix, len(subject.layout().blocks)) == ((14, 14), 1, 12)


def test_ten_classes_have_no_names_unless_given(shared: Path) -> None:
    path = shared / "weights" / "deit_tiny_cifar10.safetensors"
    subject = load("timm:deit_tiny_patch16_224", weights=path)
    assert subject.forward(torch.zeros(1, 3, 224, 224)).shape == (1, 10)
    assert (subject.labels, subject.label(3), subject.dtype) == ((), "class 3", torch.float32)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    assert load("timm:deit_tiny_patch16_224", weights=path, labels=names).label(3) == "cat"
