"""A table as Parquet."""

from __future__ import annotations

from pathlib import Path

from nsys_pp.write.files import open_output
from nsys_pp.write.tables.format import Content, Format, select_frame


def write_parquet(content: Content, path: Path) -> None:
    """Write a table as Parquet."""
    frame = select_frame(content)
    with open_output(path) as stream:
        frame.write_parquet(stream, compression="zstd", compression_level=1, statistics=False)


FORMAT = Format(name="parquet", suffixes=(".parquet",), holds_many=False, write=write_parquet)
