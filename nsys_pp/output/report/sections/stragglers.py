"""Stragglers: ranks and stages that compute longer than their peers."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.output.report.bars import Bar, Piece, draw_bars
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource

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
        what = "median transfer of a message," if kind == "link" else "median own compute per micro-batch,"
        caption = f"{title}: {what} relative to the peers{of}"
        drawn.append(
            draw_bars(
                [_draw_row(row, _find_finding(source, row)) for row in shown], caption=caption, least=least
            )
        )
    return Drawn(html="".join(drawn))


def _has_excess(rows: pl.DataFrame) -> bool:
    """Return whether any link is slow, or as much slower than its peers as to be looked at."""
    return bool((rows["is_slow"] | (rows["excess_fraction"] >= _LEAST_EXCESS)).any())


def _find_finding(source: PageSource, row: dict[str, Any]) -> Finding | None:
    """Find the finding on a rank or stage; the table compares all steps, the verdict also those since a change."""
    return next(
        (
            finding
            for finding in source.verdict.findings
            if finding.kind == "straggler"
            and finding.subject == row["what"]
            and (finding.lane == row["lane"] if row["what"] == "rank" else finding.stage == row["stage"])
        ),
        None,
    )


def _draw_row(row: dict[str, Any], finding: Finding | None) -> Bar:
    excess, noise = row["excess_fraction"] or 0.0, row["noise_fraction"]
    is_slow = bool(row["is_slow"]) or finding is not None
    text = f"{round(excess, 3) + 0.0:+.1%}"  # no "-0.0 %"
    text += " (noise unknown)" if noise is None else f" (noise {noise:.1%})"
    text = text.replace("%", " %") + (", slow" if is_slow else "")
    if finding is not None and finding.since_step is not None:
        text += f" since step {finding.since_step}"
    piece = Piece(key="bubble" if is_slow else "compute", value=excess, text=text)
    return Bar(label=row["label"], pieces=(piece,), text=text, is_marked=is_slow)


SECTION = Section(
    name="stragglers",
    title="Stragglers",
    lead="Ranks, stages and links compared with the median of their peers; waiting for others is not counted.",
    kinds=("straggler",),
    tables=("stragglers",),
    draw=_draw,
)
