"""Tables of an export -> EXPORTED_TABLES."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.exported_tables import EXPORTED_TABLES
from nsys_pp.frames.raw import ExportedTable

_PREFIX = "show_"
_DRAWN = {"nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions"}
_NAMES = {  # read with what they name; no row of them is drawn
    *("gpu_metric_names", "soc_metric_names", "network_metric_names", "network_cards", "network_card_names"),
    *("generic_event_types", "generic_fields", "processor_counter_names", "processor_components"),
    "mpi_communicators",
}
_SUMS: Mapping[str, str] = {  # results that have sums of a table, by raw frame
    "os_calls": "summary --table os",
    "thread_switches": "summary --table overview",
    "cuda_memory": "summary --table memory",
    "samples": "pipeline --table host",
    "overheads": "pipeline --table overhead",
    "gpu_metrics": "pipeline --table metrics",
    "network_metrics": "pipeline --table network",
}


def build_exported_tables(tables: Iterable[ExportedTable]) -> pl.DataFrame:
    """Find the use of each table of an export.

    Returns:
        `EXPORTED_TABLES` by use, kind of `--show` and name; empty if tables were not listed.
    """
    rows = [
        (table.name, _find_use(table), _find_show(table), _find_sums(table), table.row_count)
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
    if _find_sums(table) is not None:
        return "summed"
    if table.frames:
        return "facts"
    return "counted" if table.is_known else "unknown"


def _find_show(table: ExportedTable) -> str | None:
    if (_DRAWN & {*table.frames}) or {*table.frames} <= _NAMES:
        return None
    shown = [group.removeprefix(_PREFIX) for group in table.groups if group.startswith(_PREFIX)]
    return ",".join(shown) or None


def _find_sums(table: ExportedTable) -> str | None:
    return ", ".join(_SUMS[frame] for frame in table.frames if frame in _SUMS) or None
