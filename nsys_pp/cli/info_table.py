"""One table of all reports: which machine, rank, GPU and stage, and where that was learned."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.text import Text

from nsys_pp.cli.info_screen import start_table
from nsys_pp.commands.info import ReportInfo

_SOURCES = {"machine": "machine_source", "rank": "rank_source", "stage": "stage_source"}


def print_roster(infos: Sequence[ReportInfo], console: Console) -> None:
    """Print a row per report, process and device: by machine, rank and GPU."""
    rows = pl.concat(one.roster.with_columns(label=pl.lit(one.label)) for one in infos)
    rows = rows.sort("machine_order", "rank", "gpu_number", "report", "device_id", nulls_last=True)
    rows = rows.with_columns(_unless_idle(rows["tensor"]), _unless_idle(rows["replica"]))
    has_stage = not rows["stage"].is_null().all()
    table = start_table("report", "machine", "rank", "GPU", *["stage"] * has_stage, "learned from")
    for row in rows.iter_rows(named=True):
        cells = [row["label"], row["machine"], _write(row["rank"]), (row["gpu"] or "").removeprefix("GPU ")]
        if has_stage:
            cells.append(_write_place(row["stage"], row["tensor"], row["replica"]))
        learned = [f"{what}: {row[source]}" for what, source in _SOURCES.items() if row[source]]
        table.add_row(*(Text(" ".join(cell.split())) for cell in (*cells, ", ".join(learned))))
    console.print(table)


def _unless_idle(places: pl.Series) -> pl.Series:
    """Leave out a way of splitting that has one part."""
    return places if places.n_unique() > 1 else pl.Series(places.name, [None] * len(places), dtype=pl.Int64)


def _write(number: int | None) -> str:
    return "" if number is None else str(number)


def _write_place(stage: int | None, tensor: int | None, replica: int | None) -> str:
    """Write a stage, and which of its tensor parts and replicas.

    >>> _write_place(1, 0, 3), _write_place(1, None, None), _write_place(None, None, None)
    ('1 (tp 0, dp 3)', '1', '')
    """
    parts = [f"{name} {place}" for name, place in (("tp", tensor), ("dp", replica)) if place is not None]
    return _write(stage) + (f" ({', '.join(parts)})" if parts and stage is not None else "")
