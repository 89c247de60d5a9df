"""What a trace shows, apart from any file format: tracks, and lanes of slices, marks and counters on them.

`nsys_pp.write.tracks` makes a `Drawing` from frames; `nsys_pp.write.perfetto` and
`nsys_pp.write.chrome` only encode it. One lane holds slices that nest properly (or do not
overlap), so overlapping work needs several lanes on one track.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

SLICES = pl.Schema(
    {  # one row per slice, in order of position; further columns are arguments
        "start_ns": pl.Int64(),  # report clock
        "end_ns": pl.Int64(),
        "depth": pl.Int32(),  # slices of this lane around it
        "name": pl.Categorical(),
        "color": pl.Categorical(),  # a key of `nsys_pp.write.colors`; null leaves it to the viewer
        "flow_id": pl.UInt64(),  # slices that share one are joined by an arrow; null where none
    }
)

MARK_POINTS = pl.Schema(
    {  # one row per instant, by time_ns
        "time_ns": pl.Int64(),
        "name": pl.Categorical(),
        "color": pl.Categorical(),
    }
)

SAMPLES = pl.Schema(
    {  # one row per change of a counter, by time_ns
        "time_ns": pl.Int64(),
        "value": pl.Float64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Maps a report's clock onto the trace's: `trace_ns = event_ns + offset_ns`."""

    offset_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A row of the trace; its place in the tree is its `path`.

    Tracks that hold no lane and no child are not drawn. The order among siblings is `rank`.
    """

    path: tuple[str, ...]  # unique in the drawing, e.g. ("node2", "GPU 0", "stream 7")
    name: str
    rank: int
    description: str = ""
    counter_unit: str | None = None  # set for counter tracks only


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLane:
    """Slices that nest properly on one track.

    `slices` has the columns of SLICES in pre-order: each slice directly before the slices
    inside it, siblings by time (so begin and end events in file order follow from depth).
    Every further column is an argument shown with the slice, under the column's name; its
    type is an integer, Float64, Boolean or Categorical; null means that the slice lacks it.
    """

    track: tuple[str, ...]
    lane: int  # 0, 1, ...: lanes of one track are drawn as one row
    clock: Clock
    slices: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkLane:
    """Instants on one track; further columns are arguments, as in SliceLane."""

    track: tuple[str, ...]
    clock: Clock
    marks: pl.DataFrame  # MARK_POINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterLane:
    """Samples of one counter track; a value holds until the next sample."""

    track: tuple[str, ...]
    clock: Clock
    samples: pl.DataFrame  # SAMPLES


Lane = SliceLane | MarkLane | CounterLane


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A trace, or what one report adds to it: tracks and what stands on them.

    `root` is the name of the row above all. Parents of tracks may be left out: their name is the
    last part of their path. `lanes` in any order; the trace's clock is UTC nanoseconds, or the report's own clock
    where no report knows UTC. `attributes` are free facts written into the trace's metadata.
    """

    root: str
    tracks: list[Track]
    lanes: list[Lane]
    is_utc: bool = True
    attributes: dict[str, str] = field(default_factory=dict)
