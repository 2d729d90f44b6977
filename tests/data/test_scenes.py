"""Drawn scenes: what is said to cause the class does, to the pixel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import patchlight as pl
from patchlight import data


def pixels(item):
    return np.asarray(item.picture).astype(int)


@pytest.mark.parametrize("part", ["object", "distractors", "mark"])
@pytest.mark.parametrize("texture", ["plain", "mixed"])
def test_masks_are_exact_what_is_left_out_changes_there_and_nowhere_else(part, texture):
    settings = {"count": 12, "texture": texture, "mark": 0.5, "size": 64}
    for whole, without in zip(data.open("scenes", **settings), data.open("scenes", leave_out=part, **settings), strict=True):
        changed = (pixels(whole) != pixels(without)).any(-1)
        assert (changed == (whole.parts[part] == 1)).all()
        assert changed.any()
        assert (whole.mask == without.mask).all()
        assert whole.label == without.label


def test_nothing_covers_anything_else():
    for item in data.open("scenes", count=40, distractors=4, mark=1.0):
        assert sum(m.astype(int) for m in item.parts.values()).max() == 1


def test_the_box_is_that_of_the_mask():
    for item in data.open("scenes", count=5):
        ((x0, y0, x1, y1),) = item.boxes
        inside = np.zeros_like(item.mask)
        inside[int(y0) : int(y1), int(x0) : int(x1)] = 1
        assert (item.mask <= inside).all()
        assert item.mask[int(y0)].any()
        assert item.mask[:, int(x1) - 1].any()


def test_an_object_stands_out_from_what_is_behind_it():
    for item in data.open("scenes", count=40):
        scene = pixels(item)
        colour = scene[item.mask == 1][0]
        around = np.zeros_like(item.mask)
        around[1:-1, 1:-1] = 1
        behind = scene[(item.mask == 0) & (item.parts["distractors"] == 0) & (around == 1)]
        assert (scene[item.mask == 1] == colour).all()
        assert np.median(np.abs(behind - colour).max(-1)) > 0.25 * 255


def test_a_picture_depends_on_seed_and_number_alone():
    long, short = data.open("scenes", count=30), data.open("scenes", count=10)
    assert long[:10].digest() == short.digest()
    assert data.open("scenes", count=10, seed=1).digest() != short.digest()
    assert (pixels(long[7]) == pixels(short[7])).all()


def test_classes_are_even_and_named_by_the_shape():
    found = data.open("scenes", count=1200, classes=6)
    counts = Counter(e.label for e in found.entries)
    assert sorted(counts) == list(range(6))
    assert min(counts.values()) > 140  # 200 each, 4.6 standard deviations
    assert found.labels == ("disc", "triangle", "cross", "ring", "square", "star")


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_the_mark_agrees_in_the_share_that_was_asked_for(share):
    marked = data.open("scenes", count=600, mark=share)
    caused = data.open("scenes", count=600, mark=share, cause="mark")
    agreeing = 0
    for entry, other in zip(marked.entries, caused.entries, strict=True):
        shape, mark = entry.picture.__self__.classes
        assert entry.label == shape
        assert other.label == other.picture.__self__.classes[1]
        agreeing += shape == mark
    assert agreeing / 600 == pytest.approx(share, abs=0.06)


def test_the_cause_is_what_the_mask_shows():
    item = data.open("scenes", count=1, mark=1.0, cause="mark")[0]
    assert (item.mask == item.parts["mark"]).all()
    assert set(data.open("scenes", count=1)[0].parts) == {"object", "distractors"}


def test_marks_of_one_class_have_one_colour():
    colours = {}
    for item in data.open("scenes", count=40, mark=1.0):
        colours.setdefault(item.label, set()).update(map(tuple, pixels(item)[item.parts["mark"] == 1]))
    assert [len(c) for c in colours.values()] == [1, 1, 1, 1]
    assert len(set.union(*colours.values())) == 4


@pytest.mark.parametrize("classes", [2, 6])
def test_nothing_else_has_the_colour_of_a_mark(classes):
    found = list(data.open("scenes", count=60, mark=0.5, classes=classes, distractors=3))
    marks = {tuple(pixels(i)[i.parts["mark"] == 1][0]) for i in found}
    assert len(marks) == classes
    for item in found:
        beside = pixels(item)[item.parts["mark"] == 0]
        gaps = np.abs(beside[:, None] - np.array(sorted(marks))).max(-1).min(1)
        assert gaps.min() > 0.05 * 255
        things = pixels(item)[(item.parts["object"] == 1) | (item.parts["distractors"] == 1)]
        assert np.abs(things[:, None] - np.array(sorted(marks))).max(-1).min() > 0.25 * 255


def test_settings_that_cannot_be_drawn_are_errors():
    with pytest.raises(pl.PatchlightError, match=r"distractors are needed, but count=0"):
        data.open("scenes", count=0)
    with pytest.raises(pl.PatchlightError, match=r"there are shapes for 2 to 6 classes, but 7 came"):
        data.open("scenes", classes=7)
    with pytest.raises(pl.PatchlightError, match=r"mark is a share from 0 to 1 or None, but 2.0 came"):
        data.open("scenes", mark=2)
    with pytest.raises(pl.PatchlightError, match=r"the mark cannot be the cause or left out"):
        data.open("scenes", cause="mark")
