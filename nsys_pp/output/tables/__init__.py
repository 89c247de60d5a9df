"""Renderers of tables: one for the terminal, one for each file format.

To add a file format, write its function in `formats.py` and add an entry to `FORMATS`. The functions are
imported when they are used, as they need polars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from nsys_pp.registry import import_on_call


class Format(Struct, frozen=True, kw_only=True):
    """A file format of tables.

    Attributes:
        suffixes: File name extensions; files in a folder have the first one.
        write: Function that writes `Content` to a new file.
        text: Function that formats `Content` as text; None: the format is binary and cannot be printed.
        holds_many: A file can contain several tables.
        is_data: It has exact values under the names of columns; otherwise headings and readable units.
    """

    suffixes: tuple[str, ...]
    write: Callable[[Any, Path], None]
    text: Callable[[Any], str] | None = None
    holds_many: bool = False
    is_data: bool = True


def _find(name: str) -> Callable[..., Any]:
    return import_on_call(f"nsys_pp.output.tables.formats:{name}")


# File formats by name, the value of `--format`.
FORMATS: Mapping[str, Format] = {
    "parquet": Format(suffixes=(".parquet",), write=_find("write_parquet")),
    "csv": Format(suffixes=(".csv",), write=_find("write_csv"), text=_find("format_csv")),
    "json": Format(
        suffixes=(".json",),
        write=partial(_find("write_text"), text=_find("format_json")),
        text=_find("format_json"),
        holds_many=True,
    ),
    "sqlite": Format(suffixes=(".sqlite", ".db"), write=_find("write_sqlite"), holds_many=True),
    "markdown": Format(
        suffixes=(".md",),
        write=partial(_find("write_text"), text=_find("format_markdown")),
        text=_find("format_markdown"),
        holds_many=True,
        is_data=False,
    ),
}

# Names of formats by file name extension.
SUFFIXES: Mapping[str, str] = {suffix: name for name, one in FORMATS.items() for suffix in one.suffixes}


def is_one_file(path: Path) -> bool:
    """Return whether a path is a file with the extension of a format; otherwise it is a folder."""
    return path.suffix in SUFFIXES and not path.is_dir()


def files_in(folder: Path, names: Iterable[str], format: str) -> dict[str, Path]:
    """Return the file of each table in a folder."""
    return {name: folder / f"{name}{FORMATS[format].suffixes[0]}" for name in names}
