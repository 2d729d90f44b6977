"""Rows in Parquet parts, each written under another name and renamed, each carrying the keys of what it holds."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchlight.bench.cell import digest
from patchlight.core.errors import PatchlightError, SettingError

try:
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise PatchlightError(
        f"the rows of a benchmark are kept by {error.name}, and that is missing: pip install 'patchlight[bench]'"
    ) from error

KEY = b"patchlight"
SCHEMA = pa.schema(
    [
        ("cell", pa.string()), ("model", pa.string()), ("data", pa.string()), ("method", pa.string()), ("metric", pa.string()),
        ("method_name", pa.string()), ("method_settings", pa.string()), ("metric_name", pa.string()),
        ("metric_settings", pa.string()), ("target", pa.string()), ("seed", pa.int64()), ("precision", pa.string()),
        ("picture", pa.string()), ("index", pa.int64()), ("label", pa.int64()), ("explained", pa.int64()),
        ("predicted", pa.int64()), ("probability", pa.float64()), ("value", pa.float64()),
        ("curve", pa.list_(pa.float64())), ("at", pa.list_(pa.float64())), ("parts", pa.string()), ("error", pa.string()),
        ("map_seconds", pa.float64()), ("metric_seconds", pa.float64()), ("device", pa.string()),
    ]
)  # fmt: skip
MEASURED = ("map_seconds", "metric_seconds", "device")
"""Columns that differ from run to run: time and place."""


@dataclass(frozen=True)
class Work:
    """What a part holds: the cells by their keys, and the pictures by the digest of their content."""

    cells: tuple[str, ...]
    pictures: str
    first: int
    count: int

    @property
    def name(self) -> str:
        return f"{digest([sorted(self.cells), self.pictures])}.parquet"

    def done(self) -> set[tuple[str, str]]:
        return {(cell, self.pictures) for cell in self.cells}


@dataclass(frozen=True)
class Store:
    """A folder of parts, local or behind any address that fsspec opens (s3://, gs://, memory://)."""

    address: str

    @property
    def system(self) -> tuple[Any, str]:
        try:
            system, path = fsspec.core.url_to_fs(self.address)
        except (ValueError, ImportError) as error:
            raise SettingError(
                f"there is no way into the store {self.address!r}: {error}. Give a folder, s3://..., or gs://..."
            ) from error
        return system, path.rstrip("/")

    def write(self, rows: Sequence[Mapping[str, Any]], work: Work) -> None:
        """The rows of one part, whole or not at all; writing the same work again replaces it by itself."""
        table = pa.Table.from_pylist([dict(r) for r in rows], schema=SCHEMA)
        about = {"cells": sorted(work.cells), "pictures": work.pictures, "first": work.first, "count": work.count}
        table = table.replace_schema_metadata({KEY: json.dumps(about).encode()})
        system, path = self.system
        system.makedirs(f"{path}/parts", exist_ok=True)
        aside = f"{path}/aside/{work.name}.{uuid.uuid4().hex[:8]}"
        system.makedirs(f"{path}/aside", exist_ok=True)
        try:
            with system.open(aside, "wb") as file:
                pq.write_table(table, file, compression="zstd")
            system.mv(aside, f"{path}/parts/{work.name}")
        except BaseException:
            with contextlib.suppress(Exception):
                system.rm(aside)
            raise

    def parts(self) -> list[str]:
        """The paths of all parts within the file system."""
        system, path = self.system
        system.invalidate_cache()
        return sorted(p for p in system.glob(f"{path}/parts/*.parquet"))

    def works(self) -> Iterator[tuple[str, Work]]:
        """Each part that can be read, and what it says it holds; one that cannot is passed over and so made again."""
        system, _ = self.system
        for part in self.parts():
            with contextlib.suppress(pa.ArrowException, OSError, KeyError, ValueError), system.open(part, "rb") as file:
                yield part, work_of(pq.read_schema(file))

    def done(self) -> set[tuple[str, str]]:
        """(cell, pictures) of everything that is there and whose key matches its name."""
        return {pair for part, work in self.works() if part.endswith(work.name) for pair in work.done()}

    def table(self) -> pa.Table:
        """All rows, ordered so that equal stores give equal tables; a cell and picture held by two parts counts once."""
        system, _ = self.system
        seen: set[tuple[str, str]] = set()
        tables = []
        for part, work in self.works():
            with system.open(part, "rb") as file:
                table = pq.read_table(file, schema=SCHEMA)
            fresh = [c for c in work.cells if (c, work.pictures) not in seen]
            if len(fresh) < len(work.cells):
                table = table.filter(pa.array([cell in fresh for cell in table["cell"].to_pylist()]))
            seen |= work.done()
            tables.append(table.replace_schema_metadata(None))
        whole = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
        return whole.sort_by([(c, "ascending") for c in ("model", "data", "method", "metric", "seed", "index", "cell")])

    def remember(self, name: str, text: str) -> None:
        """A file beside the parts: the plan, the price."""
        system, path = self.system
        system.makedirs(path, exist_ok=True)
        with system.open(f"{path}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def clean(self) -> None:
        """Take away what a killed run left beside the parts."""
        system, path = self.system
        with contextlib.suppress(FileNotFoundError):
            for left in system.ls(f"{path}/aside", detail=False):
                system.rm(left)


def work_of(schema: pa.Schema) -> Work:
    about = json.loads((schema.metadata or {})[KEY])
    return Work(tuple(about["cells"]), about["pictures"], about["first"], about["count"])


def without_measured(table: pa.Table) -> pa.Table:
    """The columns that must be the same from run to run."""
    return table.drop_columns([c for c in MEASURED if c in table.column_names])


def missing(cells: Iterable[str], pictures: str, done: set[tuple[str, str]]) -> list[str]:
    return [cell for cell in cells if (cell, pictures) not in done]
