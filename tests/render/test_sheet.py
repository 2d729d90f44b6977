"""The contact sheet: sizes, one scale for each method, empty cells, long names."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageColor

from patchlight.core.errors import PictureError
from patchlight.render.sheet import DARK, LIGHT, MARGIN, Plan, Row, ellipsised, font, sheet, wrapped


def row(title: str = "cat", *maps: np.ndarray | None, notes: tuple[str, ...] = ()) -> Row:
    return Row(Image.new("RGB", (120, 80), (128, 128, 128)), title, "0.98", maps, (20, 0, 100, 80), notes)


def blob(size: float = 1.0) -> np.ndarray:
    return size * np.outer(np.hanning(14), np.hanning(14))


def cell(image: Image.Image, plan: Plan, at: tuple[int, int]) -> np.ndarray:
    return np.asarray(image.crop(plan.square(*at))).astype(int)


def plan_of(image: Image.Image, rows: int, columns: int, *, side: int = 64) -> Plan:
    """The plan of a sheet, its head found from the height."""
    bare = Plan(rows, columns, side, 1, 0)
    return Plan(rows, columns, side, 1, image.height - bare.size[1])


def test_size_and_margins() -> None:
    rows = [row("a", blob(), -blob()), row("b", blob(), None)]
    small, large = (sheet(rows, ["one", "two"], cell=64, density=d) for d in (1, 2))
    assert (large.width, large.height) == (2 * small.width, 2 * small.height)
    for image, theme in ((small, LIGHT), (sheet(rows, ["one", "two"], cell=64, dark=True), DARK)):
        edge = np.asarray(image)[: MARGIN // 2].reshape(-1, 3)
        assert (edge == ImageColor.getrgb(theme.paper)).all()


def test_one_scale_for_each_method_or_each_picture() -> None:
    rows = [row("strong", blob(), blob()), row("weak", blob(0.01), blob(50))]
    shared, own = (sheet(rows, ["one", "two"], cell=64, density=1, scale=s) for s in ("method", "picture"))
    plan = plan_of(shared, 2, 2)
    grey = np.full((64, 64, 3), 128)
    assert np.abs(cell(shared, plan, (1, 1)) - grey).max() <= 2
    assert np.abs(cell(shared, plan, (0, 1)) - grey).max() > 50
    assert np.array_equal(cell(own, plan, (0, 1)), cell(own, plan, (1, 1)))
    assert np.array_equal(cell(own, plan, (0, 2)), cell(own, plan, (1, 2)))


def test_cells_show_the_box() -> None:
    picture = Image.new("RGB", (120, 80), "red")
    picture.paste("lime", (20, 0, 100, 80))
    image = sheet([Row(picture, "a", maps=(np.zeros((4, 4)),), box=(20, 0, 100, 80))], ["one"], cell=64, density=1)
    plan = plan_of(image, 1, 1)
    for column in (0, 1):
        assert (cell(image, plan, (0, column)) == (0, 255, 0)).all()


def test_a_wide_view_keeps_its_aspect() -> None:
    image = sheet([Row(Image.new("RGB", (120, 60), "red"), "a", maps=(blob(),))], ["one"], cell=64, density=1)
    found = cell(image, plan_of(image, 1, 1), (0, 0))
    assert (found[16:48] == (255, 0, 0)).all()
    assert (found[:16] == ImageColor.getrgb(LIGHT.cell)).all()


def test_a_box_beyond_the_picture() -> None:
    image = sheet([Row(Image.new("RGB", (60, 60), "red"), "a", maps=(blob(),), box=(-10, -10, 70, 70))], ["one"], cell=64)
    assert image.mode == "RGB"


def test_a_missing_map_is_an_empty_cell_with_its_reason() -> None:
    silent, said = (
        sheet([row("a", blob(), None, notes=("", n))], ["one", "two"], cell=128, density=1) for n in ("", "needs a class token")
    )
    plan = plan_of(silent, 1, 2, side=128)
    paper = np.array(ImageColor.getrgb(LIGHT.cell))
    for image in (silent, said):
        found = cell(image, plan, (0, 2))
        assert (found[:8] == paper).all()
        assert (found != paper).any()
    assert not np.array_equal(cell(silent, plan, (0, 2)), cell(said, plan, (0, 2)))


def test_a_note_under_a_map_and_a_column_without_maps() -> None:
    image = sheet([row("a", np.full((3, 3), 2.0), None, notes=("constant map",))], ["one", "two"], cell=96, density=1)
    plan = plan_of(image, 1, 2, side=96)
    found = cell(image, plan, (0, 1))
    assert (found[:70] == 128).all()
    assert (found[76:] != 128).any()


def test_the_legend_has_a_bar_for_each_method() -> None:
    image = sheet([row("a", blob(), blob() - 0.5)], ["one", "two"], cell=64, density=1)
    plan = plan_of(image, 1, 2)
    found = np.asarray(image).astype(int)[plan.legend - plan.px(20)]
    assert found[plan.left(1) + 63].argmax() != 2  # bright yellow
    assert found[plan.left(2)].argmax() == 2
    assert found[plan.left(2) + 63].argmax() == 0
    assert np.ptp(found[plan.left(2) + 32]) < 12


def test_long_names_are_wrapped_and_cut() -> None:
    face = font(13)
    assert wrapped("rollout", face, 200) == ["rollout"]
    assert wrapped("transformer_attribution", face, 110) == ["transformer_", "attribution"]
    lines = wrapped("a_very_long_name_of_a_method_that_goes_on_and_on", face, 90)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(face.getlength(line) <= 90 for line in lines)
    assert ellipsised("unbreakable" * 9, face, 100).endswith("…")
    assert ellipsised("x", face, 1) == ""
    tall = sheet([row("t" * 500, blob())], ["a_name_that_needs_two_lines"], cell=64, density=1)
    assert tall.width == sheet([row("t", blob())], ["a"], cell=64, density=1).width


def test_what_a_sheet_refuses() -> None:
    with pytest.raises(PictureError, match="at least one picture and one method, but 0 and 1 came"):
        sheet([], ["one"])
    with pytest.raises(PictureError, match=r"The row 'cat' has 1 maps for 2 methods\. Give one for each"):
        sheet([row("cat", blob())], ["one", "two"])
    with pytest.raises(PictureError, match=r"A map is \(h, w\), but \(3,\) came"):
        sheet([row("cat", np.zeros(3))], ["one"])
