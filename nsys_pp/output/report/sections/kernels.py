"""Kernels by family."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import format_count, format_duration

_MOST_ROWS = 14


def _draw(source: PageSource) -> Drawn:
    filled = source.sums["families"]
    families = filled.frame.filter(~pl.col("name").str.starts_with(" "))  # indented rows are their kernels
    if families.is_empty():
        return Drawn(absent=f"No GPU operations: {filled.missing or filled.table.empty}.")
    rows = families.head(_MOST_ROWS).to_dicts()
    return Drawn(
        html=draw_bars(
            [_draw_row(row) for row in rows], caption="Time of GPU operations by family, summed over ranks"
        )
    )


def _draw_row(row: dict[str, Any]) -> Bar:
    share = "" if row["fraction"] is None else f" ({row['fraction']:.1%})".replace("%", " %")
    text = f"{format_duration(round(row['total_ns']))}{share}"
    spoken = f"{text}, {format_count(row['count'], 'operation')}"
    color = "communication" if row["name"] == "communication" else "forward"
    return Bar(label=row["name"], pieces=(Piece(key=color, value=row["total_ns"], text=spoken),), text=text)


SECTION = Section(
    name="kernels",
    title="Kernels, by family",
    lead="What the GPUs run, by families that the names of kernels show; below, by kind of job and by name.",
    tables=("families", "stage_families", "iteration_families"),
    sums=("families", "kernels"),
    draw=_draw,
)
