"""SQL over a store, by DuckDB."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.csv

from patchlight.bench.store import Store
from patchlight.core.errors import PatchlightError, SettingError


def ask(address: str, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns and the rows that a query over the table `rows` gives."""
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise PatchlightError(
            "SQL over a store is answered by DuckDB, which is missing: pip install 'patchlight[bench]'"
        ) from error

    with duckdb.connect() as connection:
        connection.register("rows", Store(address).table())
        try:
            found = connection.execute(query)
        except duckdb.Error as error:
            raise SettingError(f"the query cannot be answered: {str(error).splitlines()[0]} The table is called rows.") from error
        return [d[0] for d in found.description or []], found.fetchall()


def all_rows(address: str) -> str:
    """Every row as CSV; lists as JSON."""
    table = Store(address).table()
    for name in ("curve", "at"):
        place = table.column_names.index(name)
        texts = [None if v is None else str(v) for v in table[name].to_pylist()]
        table = table.set_column(place, name, pa.array(texts, pa.string()))
    file = io.BytesIO()
    pyarrow.csv.write_csv(table, file)
    return file.getvalue().decode()
