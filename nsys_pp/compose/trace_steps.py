"""Pieces of a trace by time: each has one or more steps of the run."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.compose.report_view import Window
from nsys_pp.compose.run import Run
from nsys_pp.compose.trace import TraceBuilder, TraceContent, find_window
from nsys_pp.compose.trace_pieces import Division, Drawn, Piece, describe_piece, list_owners
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import span_steps

_FILL = 0.8  # of the largest number of events: their number is estimated before they are drawn


def divide_by_steps(run: Run, builder: TraceBuilder, content: TraceContent, *, max_events: int) -> Division:
    """Draw a run as a trace for each group of successive steps.

    A group has as many steps as fit `max_events`, and at least one. A window reaches from the first start of its first
    step on any lane to that of the next group; the first and the last window include all that is before and after the
    steps. An event that overlaps two windows is in both pieces.

    Args:
        run: The run.
        builder: Builder of its trace, with `content.by_steps`.
        content: Content of the trace.
        max_events: Largest number of events of a trace.

    Raises:
        MissingDataError: The run has no steps, or there is nothing to draw.
    """
    starts = _find_starts(run)
    if starts.is_empty():
        raise MissingDataError(
            "`--split step` needs steps, and none were found",
            "add `--step-pattern`, or use `--split machine`",
        )
    whole = find_window(run, content)
    groups = group_steps(_estimate_rows(run, starts), most=_FILL * max_events)
    edges = [whole.start_ns, *(int(starts["start_ns"][group[0]]) for group in groups[1:]), whole.end_ns]
    windows = [Window(start_ns=edges[at], end_ns=edges[at + 1]) for at in range(len(groups))]
    overview, drawn = builder.draw_windows(run, windows)
    pieces = []
    for group, contents in zip(groups, drawn, strict=True):
        first, last = int(starts["first"][group[0]]), int(starts["last"][group[-1]])
        title = f"step {first}" if first == last else f"steps {first} to {last}"
        steps = run.training.steps.filter(pl.col("step").is_between(first, last))["step"]
        pieces.append(_describe(run, title, contents, steps.unique().sort().to_list()))
    return Division(
        split="step", overview=_describe(run, "overview", overview, None), pieces=pieces, omits_ranges=False
    )


def group_steps(rows: list[int], *, most: float) -> list[list[int]]:
    """Group successive steps, each group with at most a number of rows, or of one step.

    >>> group_steps([4, 4, 4, 20, 1], most=10)
    [[0, 1], [2], [3], [4]]
    """
    groups: list[list[int]] = []
    total = 0
    for step, count in enumerate(rows):
        if not groups or total + count > most:
            groups.append([])
            total = 0
        groups[-1].append(step)
        total += count
    return groups


def _find_starts(run: Run) -> pl.DataFrame:
    """List the first start of each step on any lane; steps that start together are one row.

    Returns:
        `start_ns`, and `first` and `last`, numbers of steps; in order of time.
    """
    spans = span_steps(run.training.steps).with_columns(pl.col("start_ns").cum_max())
    grouped = spans.group_by("start_ns").agg(first=pl.col("step").min(), last=pl.col("step").max())
    return grouped.sort("start_ns")


def _estimate_rows(run: Run, starts: pl.DataFrame) -> list[int]:
    """Estimate the number of events of each step; those before the first step count for it."""
    edges = starts["start_ns"].to_numpy()
    rows = np.zeros(len(edges), dtype=np.int64)
    for recorded, clock in zip(run.inputs, run.clocks.clocks, strict=True):
        density = recorded.part.frames["density"]
        step = np.searchsorted(edges, clock.to_trace(density["time_ns"].to_numpy()), side="right") - 1
        np.add.at(rows, step.clip(0), density["rows"].to_numpy())
    return [int(count) for count in rows]


def _describe(run: Run, title: str, contents: Drawn, steps: list[int] | None) -> Piece:
    owners = list_owners(run, contents.reports)
    return describe_piece(run, title, contents.shown, owners, set(owners), steps)
