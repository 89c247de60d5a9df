"""Clocks as a table: what is added to each, and how well that is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsys_pp.commands.align import AlignResult
from nsys_pp.units import NS_PER_US

_COUNTS = {"collective_count": "coll", "mpi_count": "mpi", "message_count": "msg"}
_LEAST_NAME = 8


def print_clocks(aligned: AlignResult, console: Console) -> None:
    """Print a row per clock, and what cannot be said of some."""
    clocks = aligned.clocks
    has_reports = clocks["machine"].is_duplicated().any()
    table = Table(box=None, pad_edge=False, header_style="cyan")
    table.add_column("machine", overflow="fold", min_width=_LEAST_NAME)
    if has_reports:
        table.add_column("report", overflow="fold", min_width=_LEAST_NAME)
    for heading in ("added us", "drift ppm", "residual us", "bound us"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("shared", overflow="fold", min_width=_LEAST_NAME)
    for row in clocks.iter_rows(named=True):
        labels = [aligned.labels[at] for at in row["reports"]]
        name = labels[0] if len(labels) == 1 else f"{len(labels)} reports"
        cells = (
            row["machine"],
            *[name] * has_reports,
            f"{row['offset_ns'] / NS_PER_US:+,.1f}",
            f"{row['drift_ppm'] or 0:+.1f}",
            ", ".join(_write_us(row[f"residual_{part}_ns"]) for part in ("median", "p95")).strip(", "),
            _write_us(row["bound_ns"]) or "unknown",
            _write_source(row),
        )
        table.add_row(*(Text(" ".join(cell.split())) for cell in cells))
    console.print(table)


def _write_us(time_ns: int | None) -> str:
    return "" if time_ns is None else f"{time_ns / NS_PER_US:,.1f}"


def _write_source(row: Mapping[str, Any]) -> str:
    """Write what a clock's place was found from.

    >>> _write_source({"source": "collectives", "collective_count": 12, "mpi_count": 0, "message_count": 3})
    '12 coll, 3 msg'
    >>> _write_source({"source": "UTC", "collective_count": 0, "mpi_count": 0, "message_count": 0})
    'UTC alone'
    """
    words = {
        "UTC": "UTC alone",
        "given": "--offset",
        "alone": "the only clock",
        "same machine": "same machine",
        "nothing": "nothing",
    }
    if row["source"] in words:
        return words[row["source"]]
    return ", ".join(f"{row[column]:,} {word}" for column, word in _COUNTS.items() if row[column])
