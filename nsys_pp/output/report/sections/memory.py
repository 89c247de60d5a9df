"""Memory of GPUs, where its use was recorded."""

from __future__ import annotations

import polars as pl

from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import format_bytes


def _draw(source: PageSource) -> Drawn:
    filled = source.sums["memory"]
    if filled.frame.is_empty():
        return Drawn(absent=f"Use of memory: {filled.missing or filled.table.empty}.")
    kinds = filled.frame.filter(~pl.col("name").str.starts_with(" "), pl.col("peak_bytes") > 0)
    bars = [
        Bar(
            label=row["kind"] or "unknown",
            pieces=(Piece(key="copy", value=row["peak_bytes"], text=format_bytes(row["peak_bytes"])),),
            text=format_bytes(row["peak_bytes"]),
        )
        for row in kinds.to_dicts()
    ]
    return Drawn(html=draw_bars(bars, caption="Most memory in use on a single GPU, by kind"))


SECTION = Section(
    name="memory",
    title="Memory",
    lead="Allocations by CUDA itself, which frameworks keep and reuse: memory that is reserved, not used.",
    sums=("memory",),
    draw=_draw,
)
