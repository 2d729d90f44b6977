"""Contact sheets: pictures down, methods across, one colour scale for each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from patchlight.core.errors import PictureError
from patchlight.render.colours import is_signed, limits, palette
from patchlight.render.overlay import OPACITY, Box, checked, opacities, overlay, seen_pixels, tinted

Scale = tuple[tuple[float, float], bool]
Font = ImageFont.FreeTypeFont


@dataclass(frozen=True)
class Row:
    """One picture of a sheet and its map from each method.

    `notes` has a line for each map, shown in its cell: why it is missing, or what to know about it.
    """

    picture: Image.Image
    title: str
    subtitle: str = ""
    maps: tuple[np.ndarray | None, ...] = ()
    box: Box | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Theme:
    paper: str
    ink: str
    quiet: str
    cell: str


LIGHT = Theme(paper="#ffffff", ink="#1d2129", quiet="#6b7280", cell="#f1f2f4")
DARK = Theme(paper="#15171b", ink="#eceef1", quiet="#9aa1ab", cell="#22252b")


@dataclass(frozen=True)
class Plan:
    """Where everything lies, in pixels of the result: lengths of the design times its density."""

    rows: int
    columns: int
    cell: int
    density: int
    head: int

    def px(self, length: float) -> int:
        return round(length * self.density)

    @property
    def side(self) -> int:
        return self.px(self.cell)

    @property
    def size(self) -> tuple[int, int]:
        width = 2 * self.px(MARGIN) + (1 + self.columns) * self.side + self.columns * self.px(GAP)
        return width, self.top(self.rows) + self.px(LEGEND + MARGIN)

    def left(self, column: int) -> int:
        """Column 0 is the picture."""
        return self.px(MARGIN) + column * (self.side + self.px(GAP))

    def top(self, row: int) -> int:
        """The upper edge of a row, its title first."""
        return self.px(MARGIN) + self.head + row * (self.px(TITLE + SPACE) + self.side)

    def square(self, row: int, column: int) -> tuple[int, int, int, int]:
        """The cell of a picture (column 0) or a map, without its title."""
        x, y = self.left(column), self.top(row) + self.px(TITLE)
        return x, y, x + self.side, y + self.side

    @property
    def legend(self) -> int:
        """The base line of the legend's words."""
        return self.top(self.rows) + self.px(20)


MARGIN, GAP, TITLE, SPACE, LEGEND = 28, 10, 26, 18, 44
TEXT, SMALL = 13, 11


@dataclass(frozen=True)
class Page:
    """The sheet in work: where things lie, in which colours, and what is drawn on."""

    plan: Plan
    theme: Theme
    canvas: Image.Image

    def font(self, *, bold: bool = False) -> Font:
        return font(self.plan.px(TEXT if bold else SMALL), bold=bold)

    def write(self, at: tuple[int, int], text: str, *, bold: bool = False, anchor: str = "ls") -> None:
        """Text on its base line: bold in ink, else quiet."""
        colour = self.theme.ink if bold else self.theme.quiet
        ImageDraw.Draw(self.canvas).text(at, text, font=self.font(bold=bold), fill=colour, anchor=anchor)

    def fill(self, box: tuple[int, int, int, int], colour: str) -> None:
        self.canvas.paste(colour, box)


def sheet(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    cell: int = 224,
    dark: bool = False,
    scale: Literal["method", "picture"] = "method",
    density: int = 2,
) -> Image.Image:
    """A contact sheet of pictures and methods (`columns`), each cell showing what the model saw.

    `scale`: one colour scale for each method over all pictures, so that a weak map looks weak; or each map by itself.
    `cell` is a side in points of which each has `density` pixels, as on screens of high resolution.
    """
    check(rows, columns)
    names = [wrapped(name, font(TEXT * density, bold=True), cell * density) for name in columns]
    head = round(density * (TEXT * 1.3 * max(len(lines) for lines in names) + 12))
    plan = Plan(len(rows), len(columns), cell, density, head)
    theme = DARK if dark else LIGHT
    page = Page(plan, theme, Image.new("RGB", plan.size, theme.paper))
    scales = [column_scale([row.maps[j] for row in rows]) for j in range(len(columns))]
    draw_heads(page, names)
    for i, row in enumerate(rows):
        draw_row(page, i, row, scales, own=scale == "picture")
    for j, found in enumerate(scales):
        draw_legend(page, j, found, numbers=scale == "method")
    remark = "a scale for each method" if scale == "method" else "a scale for each map"
    page.write((plan.left(0), plan.legend), ellipsised(remark, page.font(), plan.side))
    return page.canvas


def check(rows: Sequence[Row], columns: Sequence[str]) -> None:
    if not rows or not columns:
        raise PictureError(
            f"A sheet takes at least one picture and one method, but {len(rows)} and {len(columns)} came. Give rows and columns."
        )
    for row in rows:
        if len(row.maps) != len(columns):
            raise PictureError(
                f"The row {row.title!r} has {len(row.maps)} maps for {len(columns)} methods. "
                "Give one for each, None where it is missing."
            )
        for found in row.maps:
            if found is not None:
                checked(found)


def column_scale(maps: Sequence[np.ndarray | None]) -> Scale | None:
    """The limits of one method over all its maps, and whether they are signed; None without a map."""
    values = [np.asarray(m, dtype=np.float64).ravel() for m in maps if m is not None]
    if not values:
        return None
    every = np.concatenate(values)
    signed = is_signed(every)
    return limits(every, signed=signed), signed


def view(row: Row, side: int) -> tuple[Image.Image, Box]:
    """What the model saw, scaled to fit a square, and the box in it (beyond its edges where the model saw beyond the picture)."""
    box = row.box or (0.0, 0.0, float(row.picture.width), float(row.picture.height))
    seen = seen_pixels(row.picture, box)
    width, height = seen[2] - seen[0], seen[3] - seen[1]
    ratio = side / max(width, height)
    size = max(1, round(width * ratio)), max(1, round(height * ratio))
    image = row.picture.crop(seen).convert("RGB").resize(size, Image.Resampling.LANCZOS)
    across, down = size[0] / width, size[1] / height
    x0, y0, x1, y1 = box
    return image, ((x0 - seen[0]) * across, (y0 - seen[1]) * down, (x1 - seen[0]) * across, (y1 - seen[1]) * down)


def draw_heads(page: Page, names: Sequence[Sequence[str]]) -> None:
    """The names of the methods, standing on one base line."""
    plan = page.plan
    base = plan.px(MARGIN) + plan.head - plan.px(12)
    for j, lines in enumerate(names):
        for k, text in enumerate(reversed(lines)):
            page.write((plan.left(j + 1), base - k * plan.px(TEXT * 1.3)), text, bold=True)


def draw_row(page: Page, i: int, row: Row, scales: Sequence[Scale | None], *, own: bool) -> None:
    draw_title(page, i, row)
    image, box = view(row, page.plan.side)
    draw_square(page, (i, 0), image)
    for j, values in enumerate(row.maps):
        note = row.notes[j] if j < len(row.notes) else ""
        found = scales[j]
        if values is None or found is None:
            draw_missing(page, (i, j + 1), note or "no map")
            continue
        span, signed = found
        span = limits(values, signed=signed) if own else span
        draw_square(page, (i, j + 1), overlay(image, values, box=box, scale=span, signed=signed))
        if note:
            draw_caption(page, (i, j + 1), note)


def draw_title(page: Page, i: int, row: Row) -> None:
    """Class in ink, the rest quiet, on one line above the row."""
    plan = page.plan
    x, y, right = plan.left(0), plan.top(i) + plan.px(TITLE - 8), plan.size[0] - plan.px(MARGIN)
    title = ellipsised(row.title, page.font(bold=True), right - x)
    page.write((x, y), title, bold=True)
    x += round(page.font(bold=True).getlength(title)) + plan.px(10)
    page.write((x, y), ellipsised(row.subtitle, page.font(), right - x))


def draw_square(page: Page, at: tuple[int, int], image: Image.Image) -> None:
    """A picture in the middle of its cell (row, column)."""
    x, y, right, bottom = page.plan.square(*at)
    page.fill((x, y, right, bottom), page.theme.cell)
    page.canvas.paste(image, (x + (right - x - image.width) // 2, y + (bottom - y - image.height) // 2))


def draw_missing(page: Page, at: tuple[int, int], reason: str) -> None:
    x, y, right, bottom = page.plan.square(*at)
    page.fill((x, y, right, bottom), page.theme.cell)
    lines = wrapped(reason, page.font(), page.plan.side - page.plan.px(32), most=6)
    for k, text in enumerate(lines):
        down = round((k - (len(lines) - 1) / 2) * page.plan.px(SMALL * 1.5))
        page.write(((x + right) // 2, (y + bottom) // 2 + down), text, anchor="mm")


def draw_caption(page: Page, at: tuple[int, int], note: str) -> None:
    """A note on a strip at the foot of a cell."""
    plan = page.plan
    x, _, right, bottom = plan.square(*at)
    page.fill((x, bottom - plan.px(22), right, bottom), page.theme.cell)
    page.write((x + plan.px(8), bottom - plan.px(7)), ellipsised(note, page.font(), plan.side - plan.px(16)))


def draw_legend(page: Page, j: int, scale: Scale | None, *, numbers: bool) -> None:
    """A thin bar under a column: the colours as they lie on the photo, transparent where nothing was found."""
    if scale is None:
        return
    (low, high), signed = scale
    plan = page.plan
    x, y = plan.left(j + 1), plan.legend
    page.canvas.paste(bar(plan.side, plan.px(6), page.theme, signed=signed), (x, y - plan.px(22)))
    left, right = ("negative", "positive") if signed else ("low", "high")
    if numbers:
        left, right = f"{left}  {low:.2g}".replace("-", "\N{MINUS SIGN}"), f"{high:.2g}  {right}".replace("-", "\N{MINUS SIGN}")
    page.write((x, y), left)
    page.write((x + plan.side, y), right, anchor="rs")
    if signed:
        page.write((x + plan.side // 2, y), "0", anchor="ms")


def bar(width: int, height: int, theme: Theme, *, signed: bool) -> Image.Image:
    index = np.linspace(1 if signed else 0, 255, width).round().astype(np.uint8)
    paint = Image.fromarray(np.repeat(index[None], height, axis=0))
    return tinted(
        Image.new("RGB", paint.size, theme.cell), paint, palette(None, signed=signed), opacities(OPACITY, signed=signed)
    )


@cache
def font(size: int, *, bold: bool = False) -> Font:
    """DejaVu Sans, which matplotlib ships."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)


def ellipsised(text: str, face: Font, room: int) -> str:
    """The text, cut short with … where it does not fit."""
    text = " ".join(text.split())
    if face.getlength(text) <= room:
        return text
    while text and face.getlength(text + "…") > room:
        text = text[:-1]
    return text.rstrip() + "…" if text else ""


def wrapped(text: str, face: Font, room: int, *, most: int = 2) -> list[str]:
    """Lines that fit, broken at blanks and behind underscores; the last one is cut short where there is too much."""
    lines = [""]
    for piece in text.replace("_", "_\0").replace(" ", " \0").split("\0"):
        if lines[-1] and face.getlength((lines[-1] + piece).rstrip()) > room:
            lines.append("")
        lines[-1] += piece
    kept = [*lines[: most - 1], "".join(lines[most - 1 :])]
    return [ellipsised(part, face, room) for part in kept if part]
