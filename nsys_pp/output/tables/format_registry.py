"""Registry of the file formats of tables, and the names of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nsys_pp.registry import Registry

if TYPE_CHECKING:
    from nsys_pp.output.tables.format import Format

FORMATS: Registry[Format] = Registry(
    {
        name: f"nsys_pp.output.tables.{name}:FORMAT"
        for name in ("parquet", "csv", "json", "sqlite", "markdown")
    }
)
"""File formats by name; a new format is a module of this package and an entry here."""

SUFFIXES: Mapping[str, str] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".sqlite": "sqlite",
    ".db": "sqlite",
    ".md": "markdown",
}
"""Names of formats by file name extension."""


def is_one_file(path: Path) -> bool:
    """Return whether a path is a file with the extension of a format; otherwise it is a folder."""
    return path.suffix in SUFFIXES and not path.is_dir()


def files_in(folder: Path, names: Iterable[str], format: str) -> dict[str, Path]:
    """Return the file of each table in a folder."""
    return {name: folder / f"{name}{FORMATS[format].suffixes[0]}" for name in names}
