"""Damage of a SQLite file that can be seen at a small part of the cost of reading it.

The decoder of large tables (`sqlite_pages.py`) checks each page that it reads; a table that it refuses is left to SQLite,
which reads much of what is damaged without an error. So SQLite checks the tables that it reads itself, and a small
file as a whole: that takes 4 ms for each MB.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

from nsys_pp.frames.raw import RowTally
from nsys_pp.read.sqlite_plain import Layout
from nsys_pp.read.sqlite_query import quote_name
from nsys_pp.read.table import Source

_SMALL_FILE_BYTES = 4_000_000
_LEAST_ROW_BYTES = 5  # pointer, length, row id, length of the header, one value

Query = Callable[[str], pl.DataFrame]


def find_damage(
    path: Path, query: Query, layouts: Mapping[str, Layout], read_by_sqlite: Collection[str]
) -> str | None:
    """Return the first complaint of SQLite about the tables that it reads, or about all of a small file; else None.

    Args:
        path: The file.
        query: Runs a query.
        layouts: How each table is stored.
        read_by_sqlite: Tables that SQLite reads.

    Raises:
        adbc.Error: SQLite cannot check it.
    """
    # values of generated columns and constraints are programs of the file, which a check would run
    is_plain = all(layout.is_plain for layout in layouts.values())
    query("PRAGMA ignore_check_constraints = ON")
    if is_plain and path.stat().st_size <= _SMALL_FILE_BYTES:
        return _check(query, "1")
    for name in read_by_sqlite:
        if layouts[name].is_plain and (complaint := _check(query, quote_name(name))):
            return complaint
    return None


def count_missing(
    path: Path,
    tally: RowTally,
    sources: Sequence[Source],
    layouts: Mapping[str, Layout],
    last_rows: Mapping[str, int],
) -> None:
    """Count the missing rows of each table of events: SQLite numbers rows from 1, and the numbers have no gaps.

    Numbers of more rows than the file has room for are damaged themselves, and no count.
    """
    size = path.stat().st_size
    for source in sources:
        frame, last = source.table.frame, last_rows.get(source.name, 0)
        numbers_itself = layouts[source.name].row_id is not None  # its ids need not begin at 1
        if frame not in tally.read or not source.table.groups or numbers_itself:
            continue
        count = last - tally.read[frame]
        if count > 0 and last * _LEAST_ROW_BYTES <= size:
            tally.missing[frame] = count


def _check(query: Query, argument: str) -> str | None:
    rows = query(f"PRAGMA quick_check({argument})")
    lines = [line for text in rows.to_series().to_list() for line in str(text).splitlines()]
    complaints = [line for line in lines if not line.startswith("***")]
    return None if complaints == ["ok"] else next(iter(complaints), "malformed")
