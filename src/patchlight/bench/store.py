"""Rows in Parquet parts, each written under another name and renamed, each carrying the keys of what it holds."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        ("picture", pa.string()), ("content", pa.string()), ("index", pa.int64()), ("label", pa.int64()),
        ("explained", pa.int64()), ("predicted", pa.int64()), ("probability", pa.float64()), ("value", pa.float64()),
        ("curve", pa.list_(pa.float64())), ("at", pa.list_(pa.float64())), ("parts", pa.string()), ("error", pa.string()),
        ("map_seconds", pa.float64()), ("metric_seconds", pa.float64()), ("device", pa.string()),
    ]
)  # fmt: skip
MEASURED = ("map_seconds", "metric_seconds", "device")
"""Columns that differ from run to run: time and place."""
ORDER = ("model", "data", "method", "metric", "seed", "index", "cell", "content")


@dataclass(frozen=True)
class Work:
    """What a part holds: the cells by their keys, and the pictures by the digest of their content."""

    cells: tuple[str, ...]
    pictures: str
    first: int
    count: int
    failed: tuple[str, ...] = ()  # cells in which some picture has an error for its value
    made: float = 0.0  # seconds since 1970

    @property
    def name(self) -> str:
        return f"{digest([sorted(self.cells), self.pictures])}.parquet"

    def done(self, *, failed: bool = True) -> set[tuple[str, str]]:
        return {(cell, self.pictures) for cell in self.cells if failed or cell not in self.failed}


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

    def write(self, rows: Sequence[Mapping[str, Any]], work: Work, keys: Mapping[str, Any] | None = None) -> None:
        """The rows of one part, whole or not at all; writing the same work again replaces it by itself.

        keys: what the keys of the cells are digests of, kept for whoever asks where a number comes from.
        """
        table = pa.Table.from_pylist([dict(r) for r in rows], schema=SCHEMA)
        failed = sorted({str(r["cell"]) for r in rows if r.get("error")})
        about = {"cells": sorted(work.cells), "pictures": work.pictures, "first": work.first, "count": work.count,
                 "failed": failed, "made": time.time(), "keys": dict(keys or {})}  # fmt: skip
        table = table.replace_schema_metadata({KEY: json.dumps(about).encode()})
        self.put(f"parts/{work.name}", lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True))

    def put(self, name: str, write: Callable[[Any], Any]) -> None:
        """A file whole or not at all: written under another name, then renamed."""
        system, path = self.system
        aside = f"{path}/aside/{name.rpartition('/')[2]}.{uuid.uuid4().hex[:8]}"
        try:
            system.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
            system.makedirs(f"{path}/aside", exist_ok=True)
            with system.open(aside, "wb") as file:
                write(file)
            system.mv(aside, f"{path}/{name}")
        except BaseException as error:
            with contextlib.suppress(Exception):
                system.rm(aside)
            if isinstance(error, OSError):
                raise PatchlightError(
                    f"the store {self.address} cannot be written ({error.strerror or error}). What was finished before is "
                    "complete and stays. Make room or give it the rights, then run the same command again: it goes on there."
                ) from error
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

    def done(self, *, failed: bool = True) -> set[tuple[str, str]]:
        """(cell, pictures) of everything that is there and whose key matches its name. failed=False: without what failed."""
        return {pair for part, work in self.works() if part.endswith(work.name) for pair in work.done(failed=failed)}

    def table(self) -> pa.Table:
        """All rows, ordered so that equal stores give equal tables. A picture that two parts have for a cell counts once: parts
        overlap where a run was repeated for what failed, or with another number of pictures. The newest is taken."""
        seen: set[tuple[str, str, str]] = set()
        tables = []
        for part, work in sorted(self.works(), key=lambda pair: (-pair[1].made, pair[0])):
            if not part.endswith(work.name):
                continue
            table = self.rows_of(part)
            keys = list(zip(*(table[c].to_pylist() for c in ("cell", "content", "picture")), strict=True))
            if not seen.isdisjoint(keys):
                table = table.filter(pa.array([key not in seen for key in keys]))
            seen.update(keys)
            tables.append(table.replace_schema_metadata(None))
        whole = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
        return whole.sort_by([(c, "ascending") for c in ORDER])

    def rows_of(self, part: str) -> pa.Table:
        system, _ = self.system
        try:
            with system.open(part, "rb") as file:
                return pq.read_table(file, schema=SCHEMA, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise PatchlightError(
                f"the part {part} of the store is damaged ({str(error).splitlines()[0]}). Delete that file and run the plan "
                "again: only what it held is made again."
            ) from error

    def remember(self, name: str, text: str) -> None:
        """A file beside the parts: the plan, and what it consists of."""
        self.put(name, lambda file: file.write(text.encode()))

    def recall(self, name: str) -> str | None:
        system, path = self.system
        system.invalidate_cache()
        try:
            with system.open(f"{path}/{name}", "rb") as file:
                return file.read().decode()
        except FileNotFoundError:
            return None

    def clean(self, *, age: float = 3600.0) -> None:
        """Take away what killed runs left beside the parts; what is younger may belong to a run that is at work."""
        system, path = self.system
        with contextlib.suppress(OSError, NotImplementedError):
            for left in system.ls(f"{path}/aside", detail=False):
                if time.time() - system.modified(left).timestamp() > age:
                    system.rm(left)


def work_of(schema: pa.Schema) -> Work:
    about = json.loads((schema.metadata or {})[KEY])
    return Work(
        tuple(about["cells"]), about["pictures"], about["first"], about["count"], tuple(about["failed"]), float(about["made"])
    )


def without_measured(table: pa.Table) -> pa.Table:
    """The columns that must be the same from run to run."""
    return table.drop_columns([c for c in MEASURED if c in table.column_names])


def missing(cells: Iterable[str], pictures: str, done: set[tuple[str, str]]) -> list[str]:
    return [cell for cell in cells if (cell, pictures) not in done]
