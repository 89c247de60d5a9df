"""Tables of an export -> EXPORTED_TABLES."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.exported_tables import EXPORTED_TABLES
from nsys_pp.frames.raw import ExportedTable

_PREFIX = "show_"
_DRAWN = {"nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions"}
_SUMMED = {
    *("synchronizations", "cuda_events", "mpi_messages", "mpi_collectives", "mpi_communicators"),
    *("os_calls", "thread_switches", "cuda_memory", "diagnostics"),
}


def build_exported_tables(tables: Iterable[ExportedTable]) -> pl.DataFrame:
    """Find the use of each table of an export.

    A table with several uses has the first one in the order of `TABLE_USE`: calls of the operating system are drawn on
    request, and summed.

    Returns:
        `EXPORTED_TABLES` by use, kind of `--show` and name; empty if tables were not listed.
    """
    rows = [
        (table.name, _find_use(table), _find_show(table), table.row_count)
        for table in sorted(tables, key=lambda table: table.name)
    ]
    if not rows:
        return EXPORTED_TABLES.to_frame()
    frame = pl.DataFrame(rows, schema=EXPORTED_TABLES, orient="row")
    return frame.sort("use", "show", maintain_order=True).pipe(conform, EXPORTED_TABLES)


def _find_use(table: ExportedTable) -> str:
    if _DRAWN & {*table.frames}:
        return "drawn"
    if _find_show(table) is not None:
        return "on request"
    if _SUMMED & {*table.frames}:
        return "summed"
    if table.frames:
        return "facts"
    return "counted" if table.is_known else "unknown"


def _find_show(table: ExportedTable) -> str | None:
    if _DRAWN & {*table.frames}:
        return None
    shown = [group.removeprefix(_PREFIX) for group in table.groups if group.startswith(_PREFIX)]
    return shown[0] if shown else None
