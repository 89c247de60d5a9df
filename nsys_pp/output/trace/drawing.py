"""Drawing: the contents of a trace, independent of the file format.

A drawing has a tree of tracks. A track has subtracks of slices, marks or counter samples. Slices of the same subtrack
nest or do not overlap, so a track with overlapping slices has several subtracks. `nsys_pp.output.trace.tracks` draws
reports; `nsys_pp.output.perfetto.trace` and `nsys_pp.output.chrome.trace` encode drawings.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.part import Track

HEADER_SEQUENCE = 1  # of packets about the whole trace; 0 is invalid

SLICES = pl.Schema(
    {  # one row per slice, each directly before the slices inside it; further columns are arguments
        "start_ns": pl.Int64(),  # report clock
        "end_ns": pl.Int64(),
        "depth": pl.Int32(),  # number of slices of this subtrack around it
        "name": pl.Categorical(),
        "color": pl.Categorical(),  # a key of `nsys_pp.output.trace.colors`; null: the viewer chooses a color
        "flow_id": pl.UInt64(),  # slices with the same id are joined by an arrow; null: no arrow
    }
)
MORE_FLOWS = "flow_id_"
"""Prefix of further columns as `flow_id`, of slices where several arrows begin."""

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


class ArrangedSlices(Struct, frozen=True, kw_only=True):
    """Rows of a frame of slices, in order of drawing, gathered only where a frame is needed.

    Attributes:
        source: Columns of SLICES without `depth`, and arguments; of many subtracks.
        rows: Of the source.
        depth: Of each of these rows.
    """

    source: pl.DataFrame
    rows: Int64s
    depth: NDArray[np.int32]

    def gather(self) -> pl.DataFrame:
        """Return `SLICES`, with arguments."""
        return self.source[self.rows].with_columns(depth=pl.Series(self.depth, dtype=pl.Int32))


class SliceSubtrack(Struct, frozen=True, kw_only=True):
    """Slices on one track that nest or do not overlap.

    `slices` has the columns of SLICES in pre-order: each slice directly before the slices
    inside it, siblings by time. So the order of begin and end events in the file follows from `depth`.
    Columns whose names begin with `MORE_FLOWS` have further flow ids. Each other column is an argument of the slice, shown under the name of the column; its type is an
    integer, Float64, Boolean or Categorical. Null: the slice does not have the argument.
    """

    track: tuple[str, ...]
    number: int  # 0, 1, ... among the slice subtracks of the track; all of them are drawn as one row
    content: pl.DataFrame | ArrangedSlices

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The types of the columns."""
        frame = self.content if isinstance(self.content, pl.DataFrame) else self.content.source
        types = dict(zip(frame.columns, frame.dtypes, strict=True))
        return types if frame is self.content else {**types, "depth": SLICES["depth"]}

    @property
    def slices(self) -> pl.DataFrame:
        """The slices; arranged ones are gathered each time."""
        return self.content if isinstance(self.content, pl.DataFrame) else self.content.gather()


class MarkSubtrack(Struct, frozen=True, kw_only=True):
    """Instants on one track; further columns are arguments, as in SliceSubtrack."""

    track: tuple[str, ...]
    marks: pl.DataFrame  # MARK_POINTS


class CounterSubtrack(Struct, frozen=True, kw_only=True):
    """Samples of one counter track; a value is valid until the next sample."""

    track: tuple[str, ...]
    samples: pl.DataFrame  # SAMPLES


Subtrack = SliceSubtrack | MarkSubtrack | CounterSubtrack


class Drawing(Struct, frozen=True, kw_only=True):
    """Drawing of one report, independent of other reports.

    `tracks` may omit the parents of tracks: the name of an omitted parent is the last item of its path. `subtracks` are
    in any order. Names and order of the outermost tracks in a trace are set by a
    `nsys_pp.output.trace.placement.Placement`.
    """

    report_id: int  # 64 bits, unique per report
    tracks: list[Track]
    subtracks: list[Subtrack]


def is_flow(column: str) -> bool:
    """Return whether a column of slices has flow ids."""
    return column == "flow_id" or column.startswith(MORE_FLOWS)


def sequence_id(report_id: int) -> int:
    """Return the packet sequence of a report, also the high half of its flow ids: 31 bits of its id.

    With the 32nd bit set, Perfetto's importer v52 does not recognize the clocks of the sequence
    (`IsConvertedSequenceClock` shifts a signed number).
    """
    return max(report_id & 0x7FFFFFFF, HEADER_SEQUENCE + 1)
