"""The same numbers as timm, torchvision and transformers, and the box that says where they come from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from timm.data.config import resolve_data_config
from timm.data.transforms_factory import create_transform
from torchvision.transforms._presets import ImageClassification, ObjectDetection
from torchvision.transforms.functional import InterpolationMode

from patchlight.core.errors import ModelError, PictureError
from patchlight.core.preprocess import Preprocess, from_hf, from_timm, from_torchvision

SIZES = [(301, 227), (227, 301), (255, 255), (97, 41), (333, 90), (64, 501), (1, 1)]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def smooth(width: int, height: int) -> Image.Image:
    """Waves and a little noise: no flat places, so that a shift of one pixel shows."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    noise = np.random.default_rng(0).normal(0, 6, (height, width, 3))
    waves = [np.sin(x / 9 + y / 31), np.cos(y / 7), np.sin((x + y) / 13)]
    return Image.fromarray((np.stack(waves, axis=-1) * 110 + 127 + noise).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "config",
    [
        {"input_size": (3, 64, 64), "crop_pct": 0.9},
        {"input_size": (3, 63, 63), "crop_pct": 0.875, "interpolation": "bilinear", "mean": MEAN, "std": STD},
        {"input_size": (3, 64, 64), "crop_pct": 1.0, "crop_mode": "squash", "interpolation": "lanczos"},
        {"input_size": (3, 64, 64), "crop_pct": 0.95, "crop_mode": "squash"},
        {"input_size": (3, 48, 80), "crop_pct": 0.95, "crop_mode": "squash"},
        {"input_size": (3, 48, 80), "crop_pct": 0.9},
        {"input_size": (3, 64, 64), "crop_pct": 0.9, "crop_mode": "border"},
        {"input_size": (3, 48, 80), "crop_pct": 1.0, "crop_mode": "border", "mean": MEAN, "std": STD},
        {"input_size": (3, 64, 64), "interpolation": "nearest"},
    ],
)
def test_timm_to_the_bit(config: dict[str, Any], size: tuple[int, int]) -> None:
    if config.get("crop_mode") == "border" and min(size) * 8 < max(size) and config["crop_pct"] == 1.0:
        pytest.skip("timm rounds the shorter side of such a strip to a pixel or none")
    transform: Any = create_transform(**resolve_data_config(pretrained_cfg=config), is_training=False)
    preprocess = from_timm(resolve_data_config(pretrained_cfg=config))
    image = smooth(*size)
    assert torch.equal(preprocess(image), transform(image))
    assert preprocess(image).shape == config["input_size"]
    assert preprocess == from_timm(config)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("crop", "resize"), [(64, 71), (63, 64), (64, 64), (80, 64)])
@pytest.mark.parametrize("mode", [InterpolationMode.BICUBIC, InterpolationMode.BILINEAR])
def test_torchvision_to_the_bit(crop: int, resize: int, mode: InterpolationMode, size: tuple[int, int]) -> None:
    transform = ImageClassification(crop_size=crop, resize_size=resize, interpolation=mode)
    preprocess = from_torchvision(transform)
    assert torch.equal(preprocess(smooth(*size)), transform(smooth(*size)))


SMALL: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {"size": {"height": 64, "width": 48}},
    "DeiTImageProcessor": {"size": {"height": 73, "width": 73}, "crop_size": {"height": 64, "width": 64}},
    "BeitImageProcessor": {"size": {"height": 70, "width": 70}, "crop_size": {"height": 63, "width": 64}, "do_center_crop": True},
    "CLIPImageProcessor": {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}},
    "SiglipImageProcessor": {"size": {"height": 64, "width": 64}},
    "BitImageProcessor": {"size": {"shortest_edge": 73}, "crop_size": {"height": 64, "width": 64}},
    "ConvNextImageProcessor": {"size": {"shortest_edge": 64}},
    "LevitImageProcessor": {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SMALL)
def test_transformers_on_pillow(name: str, size: tuple[int, int]) -> None:
    processor = getattr(transformers, name + "Pil")(**SMALL[name])
    image = smooth(*size)
    torch.testing.assert_close(from_hf(processor.to_dict())(image), pixels(processor, image), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [(301, 227), (227, 301), (97, 41)])
@pytest.mark.parametrize("name", SMALL)
def test_transformers_on_torchvision(name: str, size: tuple[int, int]) -> None:
    """The default processors resize on tensors, which rounds otherwise: by one grey level of 255, in 6 of 1000 values."""
    processor = getattr(transformers, name)(**SMALL[name])
    image = smooth(*size)
    preprocess = from_hf(processor.to_dict())
    levels = (preprocess(image) - pixels(processor, image)).abs() * torch.tensor(preprocess.std)[:, None, None] * 255
    assert levels.max() < 1.01
    assert levels.mean() < 0.01


@pytest.mark.parametrize("size", [(301, 227), (97, 41)])
def test_dino_v3_resizes_before_it_rounds(size: tuple[int, int]) -> None:
    """Its processor scales to 0..1 before it resizes, so nothing is rounded: 0.3 grey levels, 0.97 at most."""
    processor = transformers.DINOv3ViTImageProcessor(size={"height": 64, "width": 64})
    image = smooth(*size)
    preprocess = from_hf(processor.to_dict())
    levels = (preprocess(image) - pixels(processor, image)).abs() * torch.tensor(preprocess.std)[:, None, None] * 255
    assert levels.max() < 1.01
    assert levels.mean() < 0.35


@pytest.mark.parametrize("name", ["ViTImageProcessorPil", "CLIPImageProcessorPil"])
def test_transformers_at_their_own_settings(name: str) -> None:
    processor = getattr(transformers, name)()
    image = smooth(401, 333)
    torch.testing.assert_close(from_hf(processor.to_dict())(image), pixels(processor, image), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_normalize": False},
        {"do_rescale": False, "do_normalize": False},
        {"do_rescale": False},
        {"rescale_factor": 1 / 127.5},
        {"resample": 0},
        {"resample": 1},
        {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 50, "width": 61}},
    ],
)
def test_transformers_with_parts_left_out(settings: dict[str, Any]) -> None:
    processor = transformers.BitImageProcessorPil(size={"height": 64, "width": 64}, **{"do_center_crop": False, **settings})
    image, preprocess = smooth(97, 83), from_hf(processor.to_dict())
    assert torch.allclose(preprocess(image), pixels(processor, image), rtol=1e-6, atol=2e-6)
    assert np.abs(np.asarray(preprocess.undo(preprocess(image)), int) - np.asarray(preprocess.view(image), int)).max() <= 1


def pixels(processor: Any, image: Image.Image) -> torch.Tensor:
    return processor(image, return_tensors="pt")["pixel_values"][0].to(torch.float32)


def test_old_processor_files() -> None:
    assert from_hf({"size": 64, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}).resize == (64, 64)
    old = from_hf({"size": 64, "crop_size": 56, "do_center_crop": True, "resample": 3})
    assert (old.resize, old.size, old.interpolation, old.mean) == (64, (56, 56), "bicubic", (0.5, 0.5, 0.5))
    assert from_hf({"size": [48, 64]}).size == (48, 64)
    assert from_hf({"size": {"shortest_edge": 384}, "crop_pct": 0.9}).resize == (384, 384)


@pytest.mark.parametrize("fit", ["cover", "squash", "contain", 70, None])
@pytest.mark.parametrize("size", [(400, 300), (300, 403), (640, 150), (90, 70)])
def test_a_marker_is_found_where_the_box_says(fit: Any, size: tuple[int, int]) -> None:
    resize = fit if fit is None or isinstance(fit, int) else (72, 80)
    fit = fit if isinstance(fit, str) else "squash"
    preprocess = Preprocess(size=(64, 72), mean=(0, 0, 0), resize=resize, fit=fit)
    width, height = size
    x0, y0, x1, y1 = preprocess.box(width, height)
    for across, down in ((0.5, 0.5), (0.3, 0.7), (0.8, 0.45)):
        x, y = x0 + across * (x1 - x0), y0 + down * (y1 - y0)
        if not (6 < x < width - 6 and 6 < y < height - 6):
            continue
        seen = preprocess(spot(size, x, y))[0].double()
        weight = (seen - seen.median()).clamp(min=0)
        weight = weight * (weight > 0.2 * weight.max())
        found_x = float((weight.sum(0) * (torch.arange(72) + 0.5)).sum() / weight.sum()) / 72
        found_y = float((weight.sum(1) * (torch.arange(64) + 0.5)).sum() / weight.sum()) / 64
        assert found_x == pytest.approx(across, abs=0.01)
        assert found_y == pytest.approx(down, abs=0.01)


def spot(size: tuple[int, int], x: float, y: float) -> Image.Image:
    """A round white spot with its centre at (x, y) on a black photo, in pixels whose centres lie at one half."""
    across, down = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)
    light = 255 * np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * 3.0**2))
    return Image.fromarray(np.repeat(light.round().astype(np.uint8)[..., None], 3, axis=-1))


def test_boxes_by_hand() -> None:
    centre = Preprocess(size=(224, 224), resize=256)
    assert centre.box(512, 512) == (32.0, 32.0, 480.0, 480.0)
    assert centre.box(768, 512) == (160.0, 32.0, 608.0, 480.0)
    assert Preprocess(size=(224, 224), resize=(224, 224)).box(640, 480) == (0.0, 0.0, 640.0, 480.0)


def test_the_box_reaches_out_where_the_crop_was_filled_up() -> None:
    preprocess = Preprocess(size=(64, 64))
    assert preprocess.box(40, 33) == (-12.0, -15.0, 52.0, 49.0)
    seen = np.asarray(preprocess.view(Image.new("RGB", (40, 33), "white")))
    assert seen[15:48, 12:52].min() == 255
    assert not seen[:15].any()
    assert not seen[:, 52:].any()


def test_undo_gives_back_what_the_model_saw() -> None:
    preprocess = Preprocess(size=(40, 56), mean=MEAN, std=STD, resize=60)
    image = smooth(97, 83)
    assert np.array_equal(np.asarray(preprocess.undo(preprocess(image))), np.asarray(preprocess.view(image)))
    assert preprocess.undo(torch.full((3, 4, 4), math.nan)).size == (4, 4)
    assert preprocess.undo(torch.randn(3, 4, 4, dtype=torch.bfloat16, requires_grad=True)).mode == "RGB"


def test_what_preprocess_refuses() -> None:
    preprocess = Preprocess(size=(64, 64), resize=64)
    with pytest.raises(PictureError, match=r"A picture of 1 x 90000 pixels becomes 64 x 5760000 before the crop.*Cut it"):
        preprocess(Image.new("RGB", (1, 90000)))
    with pytest.raises(PictureError, match="takes an RGB picture, but mode 'L' came"):
        preprocess(Image.new("L", (8, 8)))
    with pytest.raises(PictureError, match=r"is \(3, H, W\), but \(1, 3, 8, 8\) came\. Give one picture of the batch"):
        preprocess.undo(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"input_size": (1, 64, 64)}, "timm's data configuration has 1 channels, but pictures have 3"),
        ({"crop_mode": "fancy"}, "has the crop mode 'fancy', but center, squash or border was expected"),
        ({"interpolation": "random"}, "resizes with 'random', but one of bicubic, bilinear, nearest, lanczos was expected"),
        ({"mean": (0.5, 0.5)}, "has 2 values of mean, but 3 were expected"),
    ],
)
def test_timm_configurations_that_cannot_be_met(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_timm(config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"size": {"longest_edge": 800}}, r"the image processor has the size .*longest_edge.*, but a number, height and width"),
        ({}, r"has the size None, but a number"),
        (
            {"size": {"shortest_edge": 64}, "image_processor_type": "X"},
            r"X leaves the size of the picture open .*Give preprocess=",
        ),
        ({"do_resize": False}, r"leaves the size of the picture open \(size None, no crop\)"),
        ({"size": 64, "resample": 5}, r"resizes with 5, but one of bicubic"),
        (
            {"size": 64, "image_mean": [0.5, 0.5]},
            r"has 2 values of image_mean, but 3 were expected, one for each colour. Give preprocess=",
        ),
    ],
)
def test_processors_that_cannot_be_met(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_hf(config)


def test_a_torchvision_transform_of_another_kind() -> None:
    with pytest.raises(ModelError, match=r"the transform ObjectDetection is not that of a torchvision classification model"):
        from_torchvision(ObjectDetection())
