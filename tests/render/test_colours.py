"""Scales and colours: symmetric when signed, never NaN, no warnings."""

from __future__ import annotations

import numpy as np
import pytest

from patchlight.core.errors import SettingError
from patchlight.render.colours import CENTRE, colourise, is_signed, limits, palette, steps


def test_signed_means_a_negative_part_that_can_be_seen() -> None:
    assert is_signed(np.array([[-1.0, 2.0]]))
    assert is_signed(np.array([[-1.0, -2.0]]))
    assert not is_signed(np.array([[-1e-7, 2.0]]))
    assert not is_signed(np.zeros((2, 2)))
    assert not is_signed(np.full((2, 2), np.nan))


def test_limits() -> None:
    values = np.linspace(-1, 4, 1001)
    low, high = limits(values, signed=True, percentile=100)
    assert (low, high) == (-4.0, 4.0)
    assert limits(values, signed=False, percentile=100) == (-1.0, 4.0)
    peak = np.append(np.linspace(0, 1, 999), 1e6)
    assert limits(peak, signed=False)[1] < 1.01
    assert limits(peak, signed=True)[1] < 1.01


def test_limits_of_odd_maps() -> None:
    lone = np.zeros((30, 30))
    lone[3, 3] = 5
    assert limits(lone, signed=False) == (0.0, 5.0)
    assert limits(-lone, signed=True) == (-5.0, 5.0)
    assert limits(np.full((2, 2), 3.0), signed=False) == (3.0, 3.0)
    assert limits(np.full((2, 2), np.nan), signed=True) == (0.0, 0.0)
    assert limits(np.array([np.inf, 1.0, 2.0, np.nan]), signed=False, percentile=100) == (1.0, 2.0)


@pytest.mark.parametrize("values", [np.zeros((3, 4)), np.full((3, 4), 7.0), np.full((3, 4), np.nan), np.full((3, 4), 1e-300)])
@pytest.mark.parametrize("signed", [True, False])
def test_a_constant_map_is_neutral(values: np.ndarray, signed: bool) -> None:  # noqa: FBT001
    if signed and values.flat[0] == 7:
        pytest.skip("a constant that is not zero has a sign to show")
    colours = colourise(values, scale=limits(values, signed=signed), signed=signed)
    assert colours.shape == (3, 4, 3)
    assert np.array_equal(colours, np.broadcast_to(palette(None, signed=signed)[CENTRE if signed else 0], (3, 4, 3)))


def test_the_centre_of_signed_colours_is_zero_and_grey() -> None:
    assert steps(np.array([[-2.0, 0.0, 2.0, 9.0, np.inf, -np.inf, np.nan]]), scale=(-2, 2), signed=True).tolist() == [
        [1, CENTRE, 255, 255, 255, 0, CENTRE]
    ]
    centre = palette(None, signed=True)[CENTRE].astype(int)
    assert np.ptp(centre) <= 3
    left, right = palette(None, signed=True)[1].astype(int), palette(None, signed=True)[255].astype(int)
    assert left.argmax() == 2
    assert right.argmax() == 0


def test_unsigned_colours_go_from_low_to_high() -> None:
    assert steps(np.array([[1.0, 2.0, 3.0, -9.0, np.nan]]), scale=(1, 3), signed=False).tolist() == [[0, 128, 255, 0, 0]]
    luma = palette(None, signed=False) @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(luma) > -1).all()


def test_colours_match_matplotlib() -> None:
    assert palette("viridis", signed=False)[255].tolist() == [253, 231, 37]
    assert palette("viridis", signed=False)[0].tolist() == [68, 1, 84]


def test_an_unknown_colour_map() -> None:
    with pytest.raises(SettingError, match=r"There is no colour map 'virids'\. Did you mean 'viridis'"):
        palette("virids", signed=False)
