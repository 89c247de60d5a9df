"""Host gaps: the longest times without compute, with the activity of the host in them."""

from __future__ import annotations

from typing import Any

from nsys_pp.units import NS_PER_S, format_duration
from nsys_pp.write.report.bars import Bar, Piece, draw_bars
from nsys_pp.write.report.section import Drawn, Section
from nsys_pp.write.report.source import PageSource

_MOST_ROWS = 12


def _draw(source: PageSource) -> Drawn:
    frame = source.tables["gaps"].frame
    if frame.is_empty():
        return Drawn(absent="No gap between kernels was found.")
    rows = frame.head(_MOST_ROWS).to_dicts()
    used = dict.fromkeys(_color(row["cause"]) for row in rows)
    legend = {key: "outside all steps" if key == "other" else key.replace("_", " ") for key in used}
    has_lanes = len(source.training.lanes) > 1
    bars = [_draw_row(row, has_lanes=has_lanes) for row in rows]
    return Drawn(html=draw_bars(bars, caption="The longest gaps between kernels, by cause", legend=legend))


def _draw_row(row: dict[str, Any], *, has_lanes: bool) -> Bar:
    calls = [f"in {row[kind]}" for kind in ("os_call", "call", "range") if row[kind] is not None]
    length = format_duration(row["length_ns"])
    text = ", ".join([length, *calls[:1]])
    lane = [row["lane"]] if has_lanes else []
    step = [] if row["step"] is None else [f"step {row['step']}"]
    where = ", ".join([*lane, *step, f"at {row['start_ns'] / NS_PER_S:.3f} s"])
    cause = "outside all steps" if row["cause"] is None else row["cause"].replace("_", " ")
    piece = Piece(
        key=_color(row["cause"]), value=row["length_ns"], text=", ".join([f"{cause} {length}", *calls])
    )
    return Bar(label=where, pieces=(piece,), text=text)


def _color(cause: str | None) -> str:
    return "other" if cause is None else cause


SECTION = Section(
    name="host",
    title="Host gaps",
    lead="What the host did while GPUs waited: calls and ranges of the thread that launched the next kernel.",
    kinds=("host", "idle"),
    tables=("gaps",),
    sums=("idle", "launches", "sync"),
    draw=_draw,
)
