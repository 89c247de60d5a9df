"""Lanes whose clock is far off, as after a start without a set clock: drawn from the start of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import Training
from nsys_pp.units import NS_PER_DAY

_LONGEST_NS = 1 << 52  # 52 days; pages have exact times up to twice as many
_SHOWN = 3  # labels in a note
_FRAMES = ("steps", "jobs", "lane_states", "ideal")
_TIMES = ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns", "host_start_ns", "host_end_ns")


def bring_near(training: Training) -> Training:
    """Move the times of lanes that are months from most others to the start of these, with a note.

    A clock that was never set shows 1970. On one time axis with the others, nothing could be seen, and a page has
    exact times for 104 days only.

    Returns:
        The same training if all lanes are near each other.

    Raises:
        NsysPPError: The events of one lane are months apart.
    """
    spans = pl.concat(
        getattr(training, name).select("lane", "start_ns", "end_ns").drop_nulls() for name in _FRAMES
    )
    first_ns, last_ns = spans.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    if first_ns is None or last_ns - min(first_ns, training.zero_ns) <= _LONGEST_NS:
        return training
    lanes = (
        spans.group_by("lane").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns", "lane")
    )
    lane, start, end = (lanes[name].to_numpy().astype(np.int64) for name in lanes.columns)
    labels = dict(training.lanes.select("lane", "label").rows())
    if (too_long := np.flatnonzero(end - start > _LONGEST_NS)).size:
        raise NsysPPError(
            f"no chart can show `{labels.get(int(lane[too_long[0]]))}`: its events are"
            f" {int((end - start)[too_long[0]]) // NS_PER_DAY:,} days apart",
            "its report is damaged, or its clock was set while it was recorded; name the other reports",
        )
    offset = _find_offsets(start)
    notes = [
        f"the clock of {_name([labels[int(of)] for of in lane[offset == moved]])} is {abs(int(moved)) // NS_PER_DAY:,} days from"
        " that of most others, as if it was never set: drawn apart, from the start of the others"
        for moved in np.unique(offset[offset != 0])
    ]
    offsets = pl.DataFrame(
        {"lane": lane, "offset_ns": offset}, schema={"lane": pl.UInt32, "offset_ns": pl.Int64}
    )
    frames: dict[str, Any] = {
        name: _move(getattr(training, name), offsets, "lane", _TIMES) for name in _FRAMES
    }
    transfers = training.transfers
    for lane_column, side in (("sender", "send"), ("receiver", "receive")):
        transfers = _move(transfers, offsets, lane_column, (f"{side}_start_ns", f"{side}_end_ns"))
    begin = int((start + offset).min())
    zero_ns = training.zero_ns if training.zero_ns + _LONGEST_NS > begin else begin
    return replace(training, **frames, transfers=transfers, zero_ns=zero_ns, notes=[*training.notes, *notes])


def _find_offsets(start: Int64s) -> Int64s:
    """Find the number to add to the times of each lane; 0 for lanes near most others.

    Args:
        start: First start on each lane, ascending.
    """
    offset = np.zeros_like(start)
    rest = np.arange(len(start))
    begin: int | None = None
    while len(rest):
        # of all windows that begin with a lane the one with most lanes, the last of several: an unset clock is early
        last = np.searchsorted(start[rest], start[rest] + (_LONGEST_NS >> 1), side="right")
        count = last - np.arange(len(rest))
        first = int(np.flatnonzero(count == count.max())[-1])
        members = rest[first : first + int(count[first])]
        if begin is None:
            begin = int(start[members[0]])
        else:
            offset[members] = begin - start[members[0]]
        rest = np.setdiff1d(rest, members)
    return offset


def _move(frame: pl.DataFrame, offsets: pl.DataFrame, lane: str, times: tuple[str, ...]) -> pl.DataFrame:
    """Add the offset of the lane to times."""
    moved = frame.join(offsets, left_on=lane, right_on="lane", how="left", maintain_order="left")
    present = [name for name in times if name in frame.columns]
    return moved.with_columns(pl.col(present) + pl.col("offset_ns").fill_null(0)).drop("offset_ns")


def _name(labels: list[str]) -> str:
    shown = ", ".join(f"`{label}`" for label in labels[:_SHOWN])
    return f"{shown} and {len(labels) - _SHOWN:,} more" if len(labels) > _SHOWN else shown
