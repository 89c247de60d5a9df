"""Tables as tables of an SQLite database."""

from __future__ import annotations

import errno
from pathlib import Path

import polars as pl

from nsys_pp.output.tables.format import Content, Format, select_data


def write_sqlite(content: Content, path: Path) -> None:
    """Write tables to a new database."""
    for name, frame in select_data(content).items():
        _write_frame(frame, path, name)


def _write_frame(frame: pl.DataFrame, path: Path, name: str) -> None:
    """Write a table with sqlite-utils, which receives rows one by one."""
    import sqlite_utils
    from sqlite_utils.utils import OperationalError

    database = sqlite_utils.Database(path, execute_plugins=False)
    try:
        columns = {column: _choose_type(dtype) for column, dtype in frame.schema.items()}
        table = database[name]
        table.create(columns)  # type: ignore[union-attr]
        table.insert_all(frame.iter_rows(named=True), batch_size=10_000)  # type: ignore[union-attr]
    except OperationalError as error:
        # SQLite does not expose the system's error number
        number = errno.ENOSPC if "full" in str(error) else errno.EIO
        raise OSError(number, str(error)) from error
    finally:
        database.close()


def _choose_type(dtype: pl.DataType) -> type:
    if dtype.is_integer() or dtype == pl.Boolean:
        return int
    return float if dtype.is_float() else str


FORMAT = Format(name="sqlite", suffixes=(".sqlite", ".db"), holds_many=True, write=write_sqlite)
