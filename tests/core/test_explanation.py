"""What `explain` returns: scores on tokens and pixels, a record that can be stored, an overlay."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import patchlight as pl
import tiny


@pytest.fixture(scope="module")
def found() -> pl.Explanation:
    return tiny.explain("vit_non_square", "rollout", start_block=1)


def test_pixels_are_the_tokens_enlarged_bilinearly(found):
    enlarged = F.interpolate(found.tokens[:, None], size=(32, 48), mode="bilinear", align_corners=False)[:, 0]
    assert torch.equal(found.pixels, enlarged)
    assert torch.equal(found.scores, found.tokens)
    pixels = tiny.explain("vit", "saliency")
    assert pixels.tokens is None
    assert torch.equal(pixels.scores, pixels.pixels)


def test_it_tells_what_it_is(found):
    assert len(found) == 3
    assert "rollout of 3 pictures 32x48, 4x6 tokens, VisionTransformer" in repr(found)
    assert "pixels" in repr(tiny.explain("vit", "saliency"))
    assert found.settings == {
        "start_block": 1, "head_fusion": "mean", "discard": 0.0, "residual": 0.5, "readout": None,
    }  # fmt: skip
    assert found.seconds > 0
    assert found.size == (32, 48)


def test_the_saved_file_holds_the_scores_and_their_record(found, tmp_path):
    path = found.save(tmp_path / "deep" / "map")
    assert path == tmp_path / "deep" / "map.npz"
    assert [p.name for p in path.parent.iterdir()] == ["map.npz"]
    with np.load(path) as arrays:
        assert np.array_equal(arrays["tokens"], found.tokens.numpy())
        assert np.array_equal(arrays["pixels"], found.pixels.numpy())
        assert np.array_equal(arrays["target"], found.target.numpy())
        assert np.array_equal(arrays["logits"], found.logits.numpy())
        record = json.loads(arrays["record"].item())
    assert record["method"] == "rollout"
    assert record["settings"]["start_block"] == 1
    assert record["size"] == [32, 48]
    assert record["pictures"] == ["picture 0", "picture 1", "picture 2"]
    assert record["notes"] == ["class-blind: the map does not depend on the target"]


def test_a_tensor_among_the_settings_is_told_by_its_shape(tmp_path):
    kept = tiny.explain("vit", "smooth_grad", noise=torch.zeros(2, 3, 32, 32)).save(tmp_path / "a.npz")
    with np.load(kept) as arrays:
        assert json.loads(arrays["record"].item())["settings"]["noise"] == "tensor (2, 3, 32, 32)"


def test_a_settings_tuple_is_told_as_a_list(tmp_path):
    kept = tiny.explain("vit", "rollout", readout=(1, 2)).save(tmp_path / "a.npz")
    with np.load(kept) as arrays:
        assert json.loads(arrays["record"].item())["settings"]["readout"] == [1, 2]


def test_a_half_precision_model_can_be_saved(tmp_path):
    model = tiny.fresh("vit").to(torch.bfloat16)
    kept = pl.explain(model, tiny.pictures(), "transformer_mm").save(tmp_path / "a.npz")
    with np.load(kept) as arrays:
        assert arrays["tokens"].dtype == np.float32


@pytest.mark.parametrize("index", [0, 2, -1])
def test_an_overlay_has_the_size_of_the_picture(found, index):
    overlay = found.overlay(index)
    assert isinstance(overlay, Image.Image)
    assert overlay.size == (48, 32)


def test_an_overlay_has_the_size_of_the_photo():
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 100, 3), dtype=np.uint8))
    assert pl.explain(tiny.subject("vit"), photo, "rollout").overlay().size == (100, 60)


@pytest.mark.parametrize("index", [3, -4])
def test_a_picture_that_is_not_there_is_an_error(found, index):
    with pytest.raises(pl.PatchlightError, match=f"picture {index} was asked for, but there are 3. Give a number from 0 to 2"):
        found.overlay(index)
