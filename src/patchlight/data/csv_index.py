from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from patchlight.core.errors import DataError, nearest
from patchlight.core.item import IGNORED
from patchlight.data._registry import Found, dataset, first, need
from patchlight.data._set import BACKGROUND, OBJECT, Entry, lazily, read_mask

Row = Mapping[str, str]


@dataset(
    gives=("label", "boxes", "mask"),
    licence="as the pictures' owners say",
    get="any pictures with a table",
    layout="index.csv with a column `file`, and the pictures in images/ or beside it",
    cite="none",
)
def csv_index(
    root: Path,
    *,
    index: str = "index.csv",
    label: str | None = None,
    masks: str | None = None,
    mask_values: Literal["binary", "trimap", "void"] = "binary",
    split: str | None = None,
) -> Found:
    """Pictures that a table lists: columns `file`, and where there are any `label`, `name`, `boxes` and `split`.

    `label` names the column of class numbers, by default `label`; `boxes` is a JSON list [[x0, y0, x1, y1], ...] in pixels.
    `masks` is the folder of the masks, which have the picture's name with .png. Their values: `binary` (0 background, all else
    object), `trimap` (1 object, 2 background, 3 undecided) or `void` (0 background, 255 undecided, all else object).
    `split` keeps the rows with that word in the column `split`.
    """
    table = need(root / index)
    rows, columns = read_rows(table)
    column(columns, "file", table)
    if split is not None:
        column(columns, "split", table)
        known = {r["split"] for r in rows}
        rows = [r for r in rows if r["split"] == split]
        if not rows:
            raise DataError(f"{table} has no row of the split {split!r}.{nearest(split, known)}")
    wanted = column(columns, label, table) if label is not None else "label" if "label" in columns else None
    pictures = first(root / "images") or root
    folder = None if masks is None else need(root / masks)
    entries = [entry(r, table, wanted, pictures, folder, mask_values) for r in rows]
    return Found(entries, names(rows, wanted) if "name" in columns else ())


def read_rows(table: Path) -> tuple[list[dict[str, str]], Sequence[str]]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            return list(reader), reader.fieldnames or ()
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} is not a table in UTF-8 with commas ({error}). Save it as CSV.") from error


def column(columns: Sequence[str], name: str, table: Path) -> str:
    if name not in columns:
        raise DataError(f"{table} has no column {name!r}.{nearest(name, columns)}")
    return name


def entry(row: Row, table: Path, label: str | None, pictures: Path, masks: Path | None, values: str) -> Entry:
    file = row["file"]
    return Entry(
        name=file,
        picture=pictures / file,
        label=None if label is None or not row[label] else number(row[label], file, label, table),
        boxes=lazily(read_boxes, row["boxes"], file, table) if row.get("boxes") else None,
        mask=None if masks is None else lazily(valued, (masks / file).with_suffix(".png"), values),
    )


def number(text: str, file: str, label: str, table: Path) -> int:
    if not text.strip().isdigit():
        raise DataError(
            f"{table}: the column {label!r} of {file} should hold a class number, but {text!r} came. Name the column with label=."
        )
    return int(text)


def read_boxes(text: str, file: str, table: Path) -> list[list[float]]:
    try:
        boxes = [[float(v) for v in box] for box in json.loads(text)]
    except (ValueError, TypeError):
        boxes = [[]]
    if any(len(b) != 4 for b in boxes):
        raise DataError(f"{table}: the boxes of {file} should be [[x0, y0, x1, y1], ...], but {text[:80]!r} came. Mend that row.")
    return boxes


def valued(path: Path, values: str) -> np.ndarray:
    """(h, w) of 1, 0 and -1."""
    found = read_mask(path)
    if found.ndim != 2:
        raise DataError(
            f"{path} should be a mask of one channel, but it has {found.shape[-1]}. Save it in grey or with a palette."
        )
    if values == "trimap" and (odd := sorted(set(np.unique(found).tolist()) - {1, 2, 3})):
        raise DataError(f"{path} should hold only 1, 2 and 3, but {odd[:5]} came. Set mask_values to what it is.")
    return MEANING[values](found).astype(np.int8)


MEANING: Mapping[str, Any] = {
    "binary": lambda v: np.where(v > 0, OBJECT, BACKGROUND),
    "trimap": lambda v: np.select([v == 1, v == 2], [OBJECT, BACKGROUND], IGNORED),
    "void": lambda v: np.select([v == 0, v == 255], [BACKGROUND, IGNORED], OBJECT),
}


def names(rows: Sequence[Row], label: str | None) -> list[str]:
    """The class names in order, where every number up to the last has one."""
    if label is None:
        return []
    found = {int(r[label]): r["name"] for r in rows if r[label].isdigit()}
    return [found.get(i, f"class {i}") for i in range(max(found, default=-1) + 1)]
