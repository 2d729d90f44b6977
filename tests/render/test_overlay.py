"""The overlay, pixel by pixel."""

from __future__ import annotations

import time

import numpy as np
import pytest
from PIL import Image

from patchlight.core.errors import PictureError, SettingError
from patchlight.core.preprocess import Preprocess
from patchlight.render.overlay import dimmed, overlay


def photo(width: int = 320, height: int = 200) -> Image.Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 255 - x], axis=-1).astype(np.uint8))


def grid(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(14, 14))


def test_the_size_is_that_of_the_photo_and_the_photo_is_left_alone() -> None:
    given = photo()
    result = overlay(given, np.abs(grid()))
    assert (result.size, result.mode) == ((320, 200), "RGB")
    assert np.array_equal(np.asarray(given), np.asarray(photo()))


@pytest.mark.parametrize("values", [np.zeros((14, 14)), np.full((14, 14), 0.3), np.full((14, 14), np.nan)])
def test_a_map_without_anything_leaves_the_photo_as_it_is(values: np.ndarray) -> None:
    assert np.array_equal(np.asarray(overlay(photo(), values)), np.asarray(photo()))
    zero = overlay(photo(), np.zeros((14, 14)), signed=True, scale=(-1, 1))
    assert np.array_equal(np.asarray(zero), np.asarray(photo()))


def test_outside_the_box_all_is_grey_and_inside_nothing_is() -> None:
    result = np.asarray(overlay(photo(), np.zeros((14, 14)), box=(60.2, 10, 240.4, 190)))
    inside = np.zeros((200, 320), bool)
    inside[10:190, 60:240] = True
    assert np.array_equal(result[inside], np.asarray(photo())[inside])
    assert np.array_equal(result[~inside], np.asarray(dimmed(photo()))[~inside])
    assert np.ptp(result[~inside].astype(int), axis=-1).max() == 0


def test_a_signed_map_shows_both_signs_and_zero_is_clear() -> None:
    values = np.zeros((3, 3))
    values[0, 0], values[2, 2] = -1, 1
    grey = Image.new("RGB", (300, 300), (128, 128, 128))
    result = np.asarray(overlay(grey, values)).astype(int)
    assert result[10, 10].argmax() == 2
    assert result[290, 290].argmax() == 0
    assert result[290, 10].tolist() == [128, 128, 128]


def test_opacity_grows_with_the_value() -> None:
    grey = Image.new("RGB", (256, 20), (128, 128, 128))
    ramp = np.linspace(0, 1, 256)[None].repeat(20, axis=0)
    for opacity in (0.0, 0.4, 1.0):
        shown = np.asarray(overlay(grey, ramp, opacity=opacity, scale=(0, 1), cmap="gray"))[10, :, 0].astype(int)
        t = np.arange(256) / 255
        assert np.abs(shown - (128 + opacity * t * (255 * t - 128))).max() <= 3


@pytest.mark.parametrize("box", [(40.0, 0.0, 240.0, 200.0), (-30.0, -50.0, 350.0, 250.0), (0.0, 0.0, 320.0, 200.0)])
def test_a_peak_stands_where_the_box_puts_it(box: tuple[float, float, float, float]) -> None:
    values = np.zeros((14, 14))
    values[8, 5] = 1
    shown = np.asarray(overlay(Image.new("RGB", (320, 200)), values, box=box, scale=(0, 1))).astype(float).sum(-1)
    shown[shown == shown[0, 0]] = 0
    x0, y0, x1, y1 = box
    inside = np.zeros_like(shown)
    left, top, right, bottom = max(0, int(x0)), max(0, int(y0)), min(320, int(x1)), min(200, int(y1))
    inside[top:bottom, left:right] = shown[top:bottom, left:right]
    y, x = np.indices(shown.shape) + 0.5
    assert (inside * x).sum() / inside.sum() == pytest.approx(x0 + 5.5 / 14 * (x1 - x0), abs=0.6)
    assert (inside * y).sum() / inside.sum() == pytest.approx(y0 + 8.5 / 14 * (y1 - y0), abs=0.6)


def test_the_box_of_the_preprocessing_lays_the_map_where_it_was_seen() -> None:
    """A bright square, seen by the model, averaged on its patch grid and laid back: it covers the square."""
    picture = Image.new("RGB", (431, 297), "black")
    picture.paste("white", (250, 120, 290, 160))
    preprocess = Preprocess(size=(224, 224), resize=256)
    patches = preprocess(picture)[0].reshape(14, 16, 14, 16).mean((1, 3)).numpy()
    patches = patches - patches.min()
    grey = Image.new("RGB", picture.size, (0, 0, 0))
    shown = np.asarray(overlay(grey, patches, box=preprocess.box(*picture.size), cmap="gray")).astype(float)[:, 100:330, 0]
    shown = shown * (shown > 120)
    y, x = np.indices(shown.shape) + 0.5
    assert (shown * x).sum() / shown.sum() + 100 == pytest.approx(270, abs=2.5)
    assert (shown * y).sum() / shown.sum() == pytest.approx(140, abs=2.5)


def test_pixel_maps_may_be_larger_than_the_photo() -> None:
    assert overlay(photo(50, 40), np.abs(np.random.default_rng(0).normal(size=(224, 224)))).size == (50, 40)


def test_longest_bounds_the_result_and_keeps_the_aspect() -> None:
    result = overlay(photo(), np.zeros((14, 14)), box=(60, 0, 260, 200), longest=160)
    assert result.size == (160, 100)
    outside = np.asarray(result)[:, :30].astype(int)
    assert np.ptp(outside, axis=-1).max() == 0
    assert np.ptp(np.asarray(result)[:, 31:129].astype(int), axis=-1).max() > 0
    assert overlay(photo(), np.zeros((14, 14)), longest=9999).size == (320, 200)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_one_odd_value_does_no_harm(odd: float) -> None:
    values = np.abs(grid())
    values[3, 3] = odd
    assert overlay(photo(), values).size == (320, 200)


def test_one_scale_for_several_maps() -> None:
    strong, weak = np.abs(grid()), np.abs(grid()) / 1e4
    assert np.array_equal(np.asarray(overlay(photo(), weak, scale=(0, 3))), np.asarray(photo()))
    assert not np.array_equal(np.asarray(overlay(photo(), strong, scale=(0, 3))), np.asarray(photo()))


def test_a_large_photo_is_quick() -> None:
    large = photo(4000, 3000)
    start = time.perf_counter()
    overlay(large, np.abs(grid()), box=(500, 0, 3500, 3000))
    assert time.perf_counter() - start < 10  # about half a second on one core


def test_what_an_overlay_refuses() -> None:
    with pytest.raises(PictureError, match=r"A map is \(h, w\), but \(2, 14, 14\) came"):
        overlay(photo(), np.zeros((2, 14, 14)))
    with pytest.raises(PictureError, match=r"A map is \(h, w\), but \(0, 14\) came"):
        overlay(photo(), np.zeros((0, 14)))
    with pytest.raises(SettingError, match=r"opacity is a number from 0 to 1, but 1\.5 came"):
        overlay(photo(), grid(), opacity=1.5)
    with pytest.raises(PictureError, match=r"The box \(400, 0, 500, 100\) holds no pixel of the picture \(320 x 200\)"):
        overlay(photo(), grid(), box=(400, 0, 500, 100))
