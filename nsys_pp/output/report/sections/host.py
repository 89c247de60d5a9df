"""Host gaps: the longest times without compute that the host or loading data causes, with the activity of the host in them."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.frames.training import HOST_CAUSES
from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import NS_PER_S, format_duration

_MOST_ROWS = 12


def _draw(source: PageSource) -> Drawn:
    frame = source.tables["gaps"].frame
    if frame.is_empty():
        return Drawn(absent="No gap between kernels was found.")
    rows = frame.filter(pl.col("cause").cast(pl.String).is_in(HOST_CAUSES)).head(_MOST_ROWS).to_dicts()
    if not rows:
        return Drawn(
            absent="None of the longest gaps is caused by the host or by loading data; the table has all of them."
        )
    used = dict.fromkeys(row["cause"] for row in rows)
    legend = {key: key.replace("_", " ") for key in used}
    has_lanes = len(source.training.lanes) > 1
    bars = [_draw_row(row, has_lanes=has_lanes) for row in rows]
    return Drawn(
        html=draw_bars(
            bars,
            caption="The longest gaps between kernels that the host or loading data causes",
            legend=legend,
        )
    )


def _draw_row(row: dict[str, Any], *, has_lanes: bool) -> Bar:
    calls = [f"in {row[kind]}" for kind in ("os_call", "call", "range") if row[kind] is not None]
    length = format_duration(row["length_ns"])
    text = ", ".join([length, *calls[:1]])
    lane = [row["lane"]] if has_lanes else []
    where = ", ".join([*lane, f"step {row['step']}", f"at {row['start_ns'] / NS_PER_S:.3f} s"])
    cause = row["cause"].replace("_", " ")
    piece = Piece(key=row["cause"], value=row["length_ns"], text=", ".join([f"{cause} {length}", *calls]))
    return Bar(label=where, pieces=(piece,), text=text)


SECTION = Section(
    name="host",
    title="Host gaps",
    lead="What the host did while GPUs waited: calls and ranges of the thread that launched the next kernel.",
    kinds=("host", "idle"),
    tables=("gaps",),
    sums=("idle", "launches", "sync"),
    draw=_draw,
)
