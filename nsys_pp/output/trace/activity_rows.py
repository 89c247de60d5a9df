"""Rows of data that is shown on request: calls, states and samples of threads, and counters of the system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.search import find_rows
from nsys_pp.output.trace.drawing import MarkSubtrack, SliceSubtrack, Subtrack, is_flow
from nsys_pp.output.trace.slices import nested_subtracks

SYSTEM = "system"
"""Name of the outermost row with what belongs to no process."""

_ARGUMENTS = (
    *("size_bytes", "peer", "tag", "stream_id", "cpu", "address", "count", "detail", "event_id", "stack"),
)


class ActivityRow(Struct, frozen=True, kw_only=True):
    """A row of a thread, of a process, or of the system.

    Attributes:
        title: Its title: "OS calls", "states".
        thread_key: None: a row of the process, or of the system.
        activities: `ACTIVITIES` with `activity_id`, `parent_id` (the innermost activity of the row around each), and columns of
            flow ids.
    """

    title: str
    thread_key: int | None
    activities: pl.DataFrame


def split_by_process(activities: pl.DataFrame) -> Mapping[int | None, list[ActivityRow]]:
    """Split `ACTIVITIES` into rows, by process; None: of the system."""
    rows: dict[int | None, list[ActivityRow]] = {}
    keys = ["process_key", "thread_key", "row"]
    for (process, thread, title), of_row in activities.partition_by(
        keys, as_dict=True, maintain_order=True
    ).items():
        row = ActivityRow(title=str(title), thread_key=thread, activities=of_row)
        rows.setdefault(process, []).append(row)
    return rows


def draw_activities(row: ActivityRow, track: tuple[str, ...]) -> Iterator[Subtrack]:
    """Draw a row: instants alone as marks, else slices; an activity without an end is a slice of no length."""
    activities = row.activities.sort("start_ns", maintain_order=True)
    if activities["end_ns"].null_count() == len(activities):
        marks = activities.select("name", *_ARGUMENTS, time_ns="start_ns", color=_no_color())
        yield MarkSubtrack(track=track, marks=marks)
        return
    parent = find_rows(numbers(activities["activity_id"]), numbers(activities["parent_id"]))
    slices = activities.select(
        "start_ns",
        end_ns=pl.coalesce("end_ns", "start_ns"),
        parent=pl.Series(parent),
        name="name",
        color=_no_color(),
        **{name: pl.col(name) for name in activities.columns if is_flow(name)},
        **{name: pl.col(name) for name in _ARGUMENTS},
    )
    for _, number, content in nested_subtracks(slices):
        yield SliceSubtrack(track=track, number=number, content=content)


def _no_color() -> pl.Expr:
    return pl.lit(None, dtype=pl.Categorical())
