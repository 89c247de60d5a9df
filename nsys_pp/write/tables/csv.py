"""A table as CSV: comma-separated values below one line of names."""

from __future__ import annotations

from pathlib import Path

from nsys_pp.write.files import open_output
from nsys_pp.write.tables.format import Content, Format, select_frame


def format_csv(content: Content) -> str:
    """Format a table as CSV."""
    return select_frame(content).write_csv()


def write_csv(content: Content, path: Path) -> None:
    """Write a table as CSV."""
    frame = select_frame(content)
    with open_output(path) as stream:
        frame.write_csv(stream)


FORMAT = Format(name="csv", suffixes=(".csv",), holds_many=False, write=write_csv, text=format_csv)
