"""Summaries of a few rows, written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES, DISTRIBUTION, SUMMARY_PROCESSES, Summary
from nsys_pp.frames.conform import build_schema
from nsys_pp.tables.registry import PADDLE_TABLES
from nsys_pp.tables.registry import SUMMARY_TABLES as TABLES
from nsys_pp.tables.summary import TableOptions


def schema_of_aggregates(name: str) -> pl.Schema:
    """`process` replaces process_key and device_id."""
    keys = ("process_key", "device_id")
    own = {column: dtype for column, dtype in AGGREGATE_FRAMES[name].items() if column not in keys}
    return build_schema({"process": SUMMARY_PROCESSES["process"], **own})


def make_summary(processes: pl.DataFrame | None = None, **frames: list[dict[str, Any]]) -> Summary:
    """Make a summary; a row may have `durations` (or `bytes`) instead of the columns of a spread."""
    return Summary(
        processes=make_processes(1) if processes is None else processes,
        frames={name: make_frame(name, frames.get(name, [])) for name in AGGREGATE_FRAMES},
        recorded=(frozenset(),),
    )


def make_frame(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = schema_of_aggregates(name)
    full = [{"process": 0, **row, **_spread(row.get("values"))} for row in rows]
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in full], schema=schema)


def make_processes(count: int, *, gpus_per_process: int = 1, stages: int = 1) -> pl.DataFrame:
    """Ranks 0, 1, ... with two GPUs on each machine."""
    rows = [
        {
            "process": rank,
            "report": rank // gpus_per_process,
            "process_key": rank // gpus_per_process,
            "device_id": rank % gpus_per_process,
            "machine": f"node{rank // 2 + 1}",
            "gpu": f"GPU {rank % 2}",
            "stage": rank * stages // max(count, 1),
            "label": f"rank {rank}",
        }
        for rank in range(count)
    ]
    return pl.DataFrame(rows, schema=SUMMARY_PROCESSES)


def build(table: str, summary: Summary, *, by: str = "run", paddle_compat: bool = False) -> pl.DataFrame:
    registry = PADDLE_TABLES if paddle_compat else TABLES
    return registry[table].build(summary, TableOptions(by=by))


def rows_of(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.select(columns).rows()


def _spread(values: Sequence[int] | None) -> dict[str, Any]:
    if values is None:
        return {}
    found = build_distributions(pl.DataFrame({"value": values}, schema={"value": pl.Int64}), [], "value")
    return found.select(list(DISTRIBUTION)).row(0, named=True)
