"""Upper limit of rows of a table: positions of rows are numbers of 32 bits in frames and in some arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nsys_pp.errors import ReportError
from nsys_pp.read.table import Source

MOST_ROWS = 2**31 - 1
_LEAST_ROW_BYTES = 5  # pointer, length, row id, length of the header, one value


def check_row_counts(path: Path, sources: Sequence[Source], counts: Mapping[str, int]) -> None:
    """Check the number of rows of each table before any is read.

    Args:
        path: A SQLite file, or a folder of tables.
        sources: Tables to read.
        counts: Number of rows by table, or the last row id; one that the file has no room for is damaged, and no count.

    Raises:
        ReportError: A table has more rows than can be processed.
    """
    room = path.stat().st_size // _LEAST_ROW_BYTES if path.is_file() else None
    for source in sources:
        count = counts.get(source.name, 0)
        if count > MOST_ROWS and (room is None or count <= room):
            raise ReportError(
                f"`{path}` has {count:,} rows in `{source.name}`; expected at most {MOST_ROWS:,}",
                "record a shorter time, with `nsys profile --delay` and `--duration`",
            )
