"""Where tables are written, and how: what commands with several tables share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from nsys_pp.write.tables.frames import FORMATS, files_in, is_one_file

_ONE_FRAME = ("csv", "parquet")


def settle_format(output: str, format: str | None, names: Sequence[str] | None, *, option: str) -> str:
    """Settle how tables are written; refuse what cannot be.

    Args:
        output: A file, a folder, or "-".
        format: What is asked for.
        names: Of the tables that are asked for; None: it was left open.
        option: That names tables.
    """
    path = Path(output)
    if output == "-":
        format = format or "table"
        if format in ("parquet", "sqlite"):
            raise click.UsageError(f"{format} cannot be printed; choose a file or a folder with `-o`")
    elif is_one_file(path):
        format = format or FORMATS[path.suffix]
    elif format is None:
        extensions = ", ".join(FORMATS)
        raise click.UsageError(
            f"unknown extension of `{output}`; expected {extensions}, or a folder with a `--format`"
        )
    if format == "table" and output != "-":
        raise click.UsageError("a table is printed; omit `-o`, or choose another `--format`")
    if format in _ONE_FRAME and (output == "-" or is_one_file(path)) and (names is None or len(names) > 1):
        raise click.UsageError(f"{format} holds one table; choose it with `{option}`, or a folder with `-o`")
    return format


def list_outputs(output: str, format: str, names: Sequence[str]) -> list[Path]:
    """List what will be written, as far as its folder is there."""
    path = Path(output)
    if output == "-":
        return []
    if is_one_file(path):
        return [path]
    return [*files_in(path, names, format).values()] if path.is_dir() else []
