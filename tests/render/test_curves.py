"""Curves as a picture."""

from __future__ import annotations

import numpy as np
import pytest

import patchlight as pl
from patchlight.render.curves import COLOURS, curves

AT = np.linspace(0, 1, 5)


def test_every_line_is_drawn_in_its_colour():
    lines = {"one": np.tile(1 - AT, (3, 1)) + np.arange(3)[:, None] / 10, "two": np.tile(AT, (1, 1))}
    image = curves(AT, lines, title="deletion")
    colours = {c for _, c in image.getcolors(1 << 20)}
    for colour in COLOURS[:2]:
        assert tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) in colours


def test_broken_rows_are_left_out():
    rows = np.tile(AT, (2, 1))
    broken = np.concatenate([rows, np.full((1, 5), np.nan)])
    assert curves(AT, {"a": broken}).tobytes() == curves(AT, {"a": rows}).tobytes()
    assert curves(AT, {"a": broken[2:]}).size == curves(AT, {"a": rows}).size


def test_what_does_not_fit_is_told_so():
    with pytest.raises(pl.PatchlightError, match="curves takes at least one line, but none came"):
        curves(AT, {})
    with pytest.raises(pl.PatchlightError, match=r"the curve 'a' is \(2, 4\), but \(5 places\) were given"):
        curves(AT, {"a": np.zeros((2, 4))})
