"""Bubbles by cause, of each stage."""

from __future__ import annotations

from typing import Any

from nsys_pp.frames.training import BUBBLE_CAUSES
from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.units import format_duration

_MOST_ROWS = 24
_PARTS = ("compute", "pause", *BUBBLE_CAUSES)


def _draw(source: PageSource) -> Drawn:
    stages = source.tables["stages"].frame
    has_stages = bool(stages["stage"].drop_nulls().len())
    name = "stage" if has_stages else "label"
    frame = stages if has_stages else source.tables["lanes"].frame
    if frame.is_empty():
        return Drawn(absent="No complete step was found, so there are no bubbles to explain.")
    rows = frame.head(_MOST_ROWS).to_dicts()
    used = [part for part in _PARTS if any(row[f"{part}_ns"] for row in rows)]
    caption = f"A mean step of each {'stage' if has_stages else 'rank'}: compute, and the bubble by cause"
    if len(frame) > _MOST_ROWS:
        caption += f" (the first {_MOST_ROWS} of {len(frame):,})"
    legend = {_color(part): part.replace("_", " ") for part in used if part != "pause"}
    bars = [_draw_row(row, name, used) for row in rows]
    return Drawn(html=draw_bars(bars, caption=caption, legend=legend))


def _draw_row(row: dict[str, Any], name: str, used: list[str]) -> Bar:
    label = row[name]
    if name == "stage":
        label = "unknown stage" if label is None else f"stage {label}"
    pieces = [
        Piece(
            key=_color(part),
            value=row[f"{part}_ns"],
            text=f"{part.replace('_', ' ')} {format_duration(round(row[f'{part}_ns']))}",
        )
        for part in used
    ]
    text = f"bubble {format_duration(round(row['bubble_ns']))}"
    if row["bubble_fraction"] is not None:
        text += f" ({row['bubble_fraction']:.1%})".replace("%", " %")
    if row["ideal_bubble_ns"] is not None:
        text += f", ideal {format_duration(round(row['ideal_bubble_ns']))}"
    return Bar(label=label, pieces=tuple(pieces), text=text)


def _color(part: str) -> str:
    return "compute" if part == "pause" else part


SECTION = Section(
    name="bubbles",
    title="Bubbles, by cause and stage",
    lead="Where the time without compute goes: waiting for other ranks, transfers, late launches, or nothing left to do.",
    kinds=("bubble", "idle", "profiler", "requests"),
    tables=("stages", "schedule", "critical"),
    draw=_draw,
)
