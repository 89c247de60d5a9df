"""Communication: time of calls, and the links between ranks."""

from __future__ import annotations

from typing import Any

from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import format_bytes, format_count, format_duration

_MOST_ROWS = 12


def _draw(source: PageSource) -> Drawn:
    filled = source.sums["communication"]
    if filled.frame.is_empty():
        return Drawn(absent=f"No communication between GPUs: {filled.missing or 'no kernel of NCCL ran'}.")
    rows = filled.frame.head(_MOST_ROWS).to_dicts()
    of = f", the first {_MOST_ROWS} of {len(filled.frame):,}" if len(filled.frame) > _MOST_ROWS else ""
    caption = f"Time of communication kernels, summed over ranks, by call and size{of}; waiting for late ranks included"
    return Drawn(html=draw_bars([_draw_row(row) for row in rows], caption=caption))


def _draw_row(row: dict[str, Any]) -> Bar:
    size = "" if row["size_bytes"] is None else f", {format_bytes(row['size_bytes'])}"
    ranks = "" if row["rank_count"] is None else f", {format_count(row['rank_count'], 'rank')}"
    total = format_duration(round(row["total_ns"]))
    text = f"{total} in {format_count(row['count'], 'kernel')}"
    return Bar(
        label=f"{row['call']}{size}{ranks}",
        pieces=(Piece(key="communication", value=row["total_ns"], text=text),),
        text=text,
    )


SECTION = Section(
    name="communication",
    title="Communication",
    lead="Kernels of NCCL by call and size, and the waits and transfers of messages on each link.",
    kinds=("link", "communication", "missing", "losses"),
    tables=("links",),
    sums=("communication",),
    draw=_draw,
)
