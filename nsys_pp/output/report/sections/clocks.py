"""Clocks of machines, and the bounds of their errors."""

from __future__ import annotations

from typing import Any

from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import format_duration

_MOST_ROWS = 24


def _draw(source: PageSource) -> Drawn:
    frame = source.tables["clocks"].frame
    if len(frame) < 2:
        return Drawn(absent="There is a single clock: nothing to align.")
    rows = frame.sort("bound_ns", descending=True, nulls_last=False).head(_MOST_ROWS).to_dicts()
    of = f", the {_MOST_ROWS} largest of {len(frame):,}" if len(frame) > _MOST_ROWS else ""
    bars = [_draw_row(row) for row in rows]
    return Drawn(html=draw_bars(bars, caption=f"Bound of the error of each clock against the others{of}"))


def _draw_row(row: dict[str, Any]) -> Bar:
    bound = row["bound_ns"]
    text = "unknown" if bound is None else format_duration(bound)
    pieces = () if bound is None else (Piece(key="step", value=bound, text=f"error at most {text}"),)
    return Bar(label=f"{row['machine']}, {row['report']}", pieces=pieces, text=text)


SECTION = Section(
    name="clocks",
    title="Clocks and their bounds",
    lead="Corrections of recorded UTC by operations that ranks share, and the largest errors that they leave.",
    kinds=("clocks",),
    tables=("clocks",),
    draw=_draw,
)
