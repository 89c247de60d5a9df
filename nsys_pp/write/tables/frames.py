"""Frames -> tables: Parquet, CSV, JSON, SQLite, Markdown, or lines on a terminal."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nsys_pp.write.files import check_output, open_output, replace_file, translate_errors

FORMATS = {  # file name ending -> format
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".sqlite": "sqlite",
    ".db": "sqlite",
    ".md": "markdown",
}

# what GitHub's Markdown takes for more than text; `_` inside a word is none of it
_MARKDOWN = re.compile(r"[\\`*<>\[\]|~&]|(?<![^\W_])_|_(?![^\W_])")
_GAP = 2  # cells between columns
_LEAST_TEXT = 16  # a column of names narrower than that says nothing


def write_table(frame: pl.DataFrame, path: Path, *, format: str, name: str, force: bool) -> None:
    """Write a frame to a file.

    Args:
        frame: Any frame of numbers, strings and booleans.
        path: Where to; replaced only with `force`.
        format: "parquet", "csv", "json" (a list of objects), "sqlite" or "markdown".
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
            elif format == "json":
                frame.write_json(stream)
            else:
                stream.write(_format_markdown(frame).encode())


def format_table(frame: pl.DataFrame, *, format: str) -> str:
    """Write a frame as text: "csv", "json" (a list of objects) or "markdown"."""
    frame = _plain(frame)
    if format == "markdown":
        return _format_markdown(frame)
    return frame.write_csv() if format == "csv" else frame.write_json() + "\n"


def format_tables(frames: Mapping[str, pl.DataFrame], *, format: str, titles: Mapping[str, str]) -> str:
    """Write frames as one text: "json" (an object of lists), or "markdown" with a heading for each.

    Args:
        frames: By name.
        format: How.
        titles: Headings by name; the name itself where there is none.
    """
    texts = {name: format_table(frame, format=format) for name, frame in frames.items()}
    if format == "markdown":
        return "\n".join(f"## {titles.get(name, name)}\n\n{text}" for name, text in texts.items())
    members = [f"{json.dumps(name)}: {text.rstrip()}" for name, text in texts.items()]
    return "{" + ",\n".join(members) + "}\n"


def is_one_file(path: Path) -> bool:
    """Whether a path is a file with an ending that tells how it is written; else it is a folder."""
    return path.suffix in FORMATS and not path.is_dir()


def files_in(folder: Path, names: Iterable[str], format: str) -> dict[str, Path]:
    """Name the file of each table in a folder."""
    ending = {kind: suffix for suffix, kind in reversed(FORMATS.items())}[format]
    return {name: folder / f"{name}{ending}" for name in names}


def write_tables(
    frames: Mapping[str, pl.DataFrame], output: Path, *, format: str, titles: Mapping[str, str], force: bool
) -> list[Path]:
    """Write frames to one file that can hold them all, or to a folder with a file for each.

    Args:
        frames: By name; the names of the files in a folder, and of the tables in SQLite.
        output: A file if it has an ending of `FORMATS`, else a folder, which is made.
        format: As for `write_table`; a file of "csv" or "parquet" holds one frame.
        titles: Headings for "markdown".
        force: Replace what is there.

    Returns:
        The files.

    Raises:
        OutputError: One cannot be written; what is there is found before any is written.
        ValueError: The format holds one frame, and there are several.
    """
    if not is_one_file(output):
        with translate_errors(output):
            output.mkdir(parents=True, exist_ok=True)
        paths = files_in(output, frames, format)
        for path in paths.values():
            check_output(path, force=force)
        for name, path in paths.items():
            write_table(frames[name], path, format=format, name=name, force=force)
        return [*paths.values()]
    if format in ("csv", "parquet"):
        if len(frames) != 1:
            raise ValueError(f"a {format} file holds one table, not {len(frames)}")
        ((name, frame),) = frames.items()
        write_table(frame, output, format=format, name=name, force=force)
        return [output]
    with replace_file(output, force=force) as target:
        if format == "sqlite":
            for name, frame in frames.items():
                _write_sqlite(_plain(frame), target, name)
        else:
            with open_output(target) as stream:
                stream.write(format_tables(frames, format=format, titles=titles).encode())
    return [output]


def print_table(
    frame: pl.DataFrame, *, limit: int, console: Console, decimals: Mapping[str, int] | None = None
) -> None:
    """Print the first rows of a frame as a table no wider than the terminal.

    Numbers are right-aligned with thousands marked. The last column is the one that gives way:
    its texts are shortened in the middle to what the others leave; where they leave too little,
    the rightmost of the others are left out. Blanks that begin a text are indentation. In a file
    or a pipe every text stays whole.

    Args:
        frame: Any frame; the headings are its columns' names.
        limit: Most rows to print.
        console: Where to.
        decimals: How many a column of floats shows; three where it is not said.
    """
    shown = _plain(frame.head(limit))
    decimals = decimals or {}
    columns = [_Column(shown[name], decimals.get(name, 3)) for name in shown.columns]
    while len(columns) > 1 and console.is_terminal and _left(columns, console) < _LEAST_TEXT:
        del columns[-2]
    most = _left(columns, console) if console.is_terminal else None
    cells = [*(column.padded() for column in columns[:-1]), columns[-1].shortened(most)]
    for number, row in enumerate(zip(*cells, strict=True)):
        line = Text((" " * _GAP).join(row).rstrip(), style="" if number else "bold")
        console.print(line, soft_wrap=True)


def shorten(text: str, width: int) -> str:
    """Shorten a text in its middle, where kernel names differ least, to so many cells of a terminal.

    >>> shorten("void at::native::vectorized_elementwise_kernel", 20)
    'void at::nati…kernel'
    """
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{set_cell_size(text, width - 1 - tail)}…{set_cell_size(text[::-1], tail)[::-1]}"


class _Column:
    """A heading and the texts below it."""

    def __init__(self, values: pl.Series, decimals: int) -> None:
        self.is_number = values.dtype.is_numeric()
        self.texts = [values.name, *(_format_cell(value, decimals) for value in values)]
        self.width = max(map(cell_len, self.texts))

    def padded(self) -> list[str]:
        if self.is_number:
            return [text.rjust(self.width) for text in self.texts]
        return [set_cell_size(text, self.width) for text in self.texts]

    def shortened(self, most: int | None) -> list[str]:
        return self.texts if most is None else [_shorten_indented(text, most) for text in self.texts]


def _left(columns: list[_Column], console: Console) -> int:
    """Cells that the other columns leave to the last one."""
    return console.width - sum(column.width + _GAP for column in columns[:-1])


def _shorten_indented(text: str, width: int) -> str:
    """Shorten a text, but never to its indentation alone: that takes a third of the width at most."""
    name = text.lstrip(" ")
    indent = min(len(text) - len(name), width // 3)
    return " " * indent + shorten(name, width - indent)


def _format_cell(value: object, decimals: int) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.{decimals}f}"
    return clean(str(value))


def clean(text: str) -> str:
    """Make a text that a report gave safe for a terminal: it could move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def escape_markdown(text: str) -> str:
    r"""Let a text show as it is, whatever it holds, where GitHub reads it as Markdown.

    >>> print(escape_markdown("a_b|_c_ <d>"))
    a_b\|\_c\_ \<d\>
    """
    return _MARKDOWN.sub(r"\\\g<0>", text)


def _format_markdown(frame: pl.DataFrame) -> str:
    """Write a table in GitHub's Markdown, numbers to the right; names show as they are, whatever they hold."""
    columns = [
        [_format_cell(value, 3) for value in (column.name, *column)] for column in frame.iter_columns()
    ]
    header, *rows = [[*map(escape_markdown, row)] for row in zip(*columns, strict=True)]
    rule = ["---:" if dtype.is_numeric() else "---" for dtype in frame.dtypes]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))


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
