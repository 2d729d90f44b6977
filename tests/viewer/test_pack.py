"""What is made short comes back, within what was promised."""

from __future__ import annotations

import base64
import io
import zlib

import numpy as np
import pytest
from PIL import Image

from patchlight.render.pack import NOTHING, packed, packed_attention, picture_url


def unpacked(found: dict) -> np.ndarray:
    raw = base64.b64decode(found["data"])
    if found["bits"] == 16:
        steps = np.frombuffer(raw, "<i2").astype(float)
        steps[steps == NOTHING] = np.nan
        return (steps / 32767 * found["most"]).reshape(found["shape"])
    steps = np.frombuffer(zlib.decompress(raw), np.int8).astype(float)
    return (np.sign(steps) * (steps / 127) ** 2 * found["most"]).reshape(found["shape"])


def test_a_patch_map_keeps_sixteen_bits_and_knows_what_is_no_number():
    values = np.random.default_rng(0).normal(size=(14, 14)) * 1e-5
    values[3, 4] = np.nan
    back = unpacked(packed(values))
    assert np.isnan(back[3, 4])
    assert np.nanmax(np.abs(back - values)) <= np.nanmax(np.abs(values)) / 32767


def test_a_map_of_pixels_keeps_small_values_apart():
    values = np.random.default_rng(0).normal(size=(224, 224)) ** 3
    found = packed(values)
    most = np.abs(values).max()
    assert found["bits"] == 8
    # the step at v = q² m is 2 sqrt(v m) / 127 wide, plus half a step at zero
    assert (np.abs(unpacked(found) - values) <= np.sqrt(np.abs(values) * most) / 127 + most / 127**2).all()


@pytest.mark.parametrize("values", [np.zeros((2, 3)), np.full((2, 3), np.nan), np.array([[np.inf, -np.inf]])])
def test_maps_without_a_scale_can_be_packed(values):
    back = unpacked(packed(values))
    assert back.shape == values.shape
    assert np.isfinite(back[~np.isnan(values)]).all()


def test_attention_comes_back_row_by_row():
    rows = np.random.default_rng(0).dirichlet(np.full(50, 0.1), size=(3, 50)).astype(np.float32)
    found = packed_attention(rows)
    most = (np.frombuffer(base64.b64decode(found["most"]), np.uint8).reshape(3, 50, 1) / 255) ** 2
    steps = np.frombuffer(zlib.decompress(base64.b64decode(found["data"])), np.uint8).reshape(3, 50, 50)
    back = most * (steps / 31) ** 2
    assert (np.abs(back - rows) <= np.sqrt(rows * most) / 31 + most / 31**2).all()
    assert (most[..., 0] >= rows.max(-1) - 1e-7).all()


def test_a_photo_is_scaled_down_and_never_up():
    url, size = picture_url(Image.new("RGB", (2000, 1000), "red"))
    assert size == (640, 320)
    assert Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size == size
    assert picture_url(Image.new("RGB", (30, 20)))[1] == (30, 20)
