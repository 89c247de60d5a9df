"""Stragglers: ranks and stages that compute longer than their peers."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.write.report.bars import Bar, Piece, draw_bars
from nsys_pp.write.report.section import Drawn, Section
from nsys_pp.write.report.source import PageSource

_MOST_ROWS = 12
_LEAST_SCALE = 0.1
_LEAST_EXCESS = 0.05  # of a link that is shown although it is not slow
_KINDS = {"rank": "Ranks", "stage": "Stages", "link": "Links"}


def _draw(source: PageSource) -> Drawn:
    frame = source.tables["stragglers"].frame
    if frame.is_empty():
        return Drawn(
            absent="Nothing to compare: there is a single rank and stage, or no range is known to be a forward or a backward"
            " (`nsys-pp pipeline --explain-jobs`)."
        )
    drawn = []
    least = max(_LEAST_SCALE, *frame["excess_fraction"].drop_nulls())  # one scale for all kinds
    for kind, title in _KINDS.items():
        rows = frame.filter(what=kind).sort("excess_fraction", descending=True, nulls_last=True)
        if kind == "link" and not _has_excess(rows):
            continue
        shown = rows.head(_MOST_ROWS).to_dicts()
        of = f", the {_MOST_ROWS} slowest of {len(rows):,}" if len(rows) > _MOST_ROWS else ""
        what = "transfer of a message" if kind == "link" else "own compute per micro-batch"
        caption = f"{title}: {what} relative to the peers{of}"
        drawn.append(draw_bars([_draw_row(row) for row in shown], caption=caption, least=least))
    return Drawn(html="".join(drawn))


def _has_excess(rows: pl.DataFrame) -> bool:
    """Return whether any link is slow, or as much slower than its peers as to be looked at."""
    return bool((rows["is_slow"] | (rows["excess_fraction"] >= _LEAST_EXCESS)).any())


def _draw_row(row: dict[str, Any]) -> Bar:
    excess, noise, is_slow = row["excess_fraction"] or 0.0, row["noise_fraction"], bool(row["is_slow"])
    text = f"{round(excess, 3) + 0.0:+.1%}"  # no "-0.0 %"
    text += " (noise unknown)" if noise is None else f" (noise {noise:.1%})"
    text = text.replace("%", " %")
    piece = Piece(key="bubble" if is_slow else "compute", value=excess, text=text)
    return Bar(
        label=row["label"],
        pieces=(piece,),
        text=f"{text}, slow" if is_slow else text,
        is_marked=is_slow,
    )


SECTION = Section(
    name="stragglers",
    title="Stragglers",
    lead="Ranks, stages and links compared with the median of their peers; waiting for others is not counted.",
    kinds=("straggler",),
    tables=("stragglers",),
    draw=_draw,
)
