"""Frames -> tables: Parquet, CSV, JSON, SQLite, or lines on a terminal."""

from __future__ import annotations

import errno
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsys_pp.write.files import open_output, replace_file

FORMATS = {  # file name ending -> format
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".sqlite": "sqlite",
    ".db": "sqlite",
}


def write_table(frame: pl.DataFrame, path: Path, *, format: str, name: str, force: bool) -> None:
    """Write a frame to a file.

    Args:
        frame: Any frame of numbers, strings and booleans.
        path: Where to; replaced only with `force`.
        format: "parquet", "csv", "json" (a list of objects) or "sqlite".
        name: The table's name in SQLite.
        force: Replace what is there.

    Raises:
        OutputError: It cannot be written.
    """
    frame = _plain(frame)
    with replace_file(path, force=force) as target:
        if format == "sqlite":
            _write_sqlite(frame, target, name)
            return
        with open_output(target) as stream:
            if format == "parquet":
                frame.write_parquet(stream, compression="zstd", statistics=False)
            elif format == "csv":
                frame.write_csv(stream)
            else:
                frame.write_json(stream)


def format_table(frame: pl.DataFrame, *, format: str) -> str:
    """Write a frame as text: "csv" or "json" (a list of objects)."""
    frame = _plain(frame)
    return frame.write_csv() if format == "csv" else frame.write_json() + "\n"


def print_table(frame: pl.DataFrame, *, limit: int, console: Console) -> None:
    """Print the first rows of a frame as a table no wider than the terminal.

    Numbers are right-aligned with thousands marked; long names are shortened in the middle.

    Args:
        frame: Any frame.
        limit: Most rows to print; a line below says how many there are more.
        console: Where to.
    """
    shown = _plain(frame.head(limit))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, dtype in shown.schema.items():
        is_number = dtype.is_numeric()
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis")
    for row in shown.iter_rows():
        table.add_row(*(Text(_format_cell(value)) for value in row))
    console.print(table)
    if len(frame) > limit:
        console.print(f"... {len(frame) - limit:,} more rows", style="dim")


def shorten(text: str, width: int) -> str:
    """Shorten a text in its middle, where kernel names differ least.

    >>> shorten("void at::native::vectorized_elementwise_kernel", 20)
    'void at::nat...ernel'
    """
    if len(text) <= width:
        return text
    tail = (width - 3) // 3
    return f"{text[: width - 3 - tail]}...{text[-tail:]}"


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return shorten(str(value), 40).replace("\n", " ")


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Categories and enumerations are ours alone: outside, they are strings."""
    return frame.with_columns(pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String))


def _write_sqlite(frame: pl.DataFrame, path: Path, name: str) -> None:
    """Write by sqlite-utils; it takes rows one by one, the one writer here that does."""
    import sqlite_utils
    from sqlite_utils.utils import OperationalError

    database = sqlite_utils.Database(path, execute_plugins=False)
    try:
        columns = {column: _sqlite_type(dtype) for column, dtype in frame.schema.items()}
        table = database[name]
        table.create(columns)  # type: ignore[union-attr]
        table.insert_all(frame.iter_rows(named=True), batch_size=10_000)  # type: ignore[union-attr]
    except OperationalError as error:
        # SQLite keeps the system's number to itself
        number = errno.ENOSPC if "full" in str(error) else errno.EIO
        raise OSError(number, str(error)) from error
    finally:
        database.close()


def _sqlite_type(dtype: pl.DataType) -> type:
    if dtype.is_integer() or dtype == pl.Boolean:
        return int
    return float if dtype.is_float() else str
