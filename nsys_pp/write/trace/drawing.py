"""Drawing: the contents of a trace, independent of the file format.

A drawing has a tree of tracks. A track has subtracks of slices, marks or counter samples. Slices of the same subtrack
nest or do not overlap, so a track with overlapping slices has several subtracks. `nsys_pp.write.trace.tracks` draws
reports; `nsys_pp.write.perfetto.trace` and `nsys_pp.write.chrome.trace` encode drawings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.frames.part import Track

HEADER_SEQUENCE = 1  # of packets about the whole trace; 0 is invalid

SLICES = pl.Schema(
    {  # one row per slice, each directly before the slices inside it; further columns are arguments
        "start_ns": pl.Int64(),  # report clock
        "end_ns": pl.Int64(),
        "depth": pl.Int32(),  # number of slices of this subtrack around it
        "name": pl.Categorical(),
        "color": pl.Categorical(),  # a key of `nsys_pp.write.trace.colors`; null: the viewer chooses a color
        "flow_id": pl.UInt64(),  # slices with the same id are joined by an arrow; null: no arrow
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


class TrackSlices:
    """Slices of a track, in order of drawing, that are built from rows of a frame when they are needed.

    A report has millions of slices, so a drawing holds the order of the rows in place of their copy.

    Args:
        source: Frame with the rows of the slices, which other tracks may share.
        order: Row of each slice.
        depth: Of each slice.
        build: Builds SLICES without depth, and arguments, of some rows of `source`, each from its row alone.
        start_ns: Column of `source` with the starts.
    """

    def __init__(
        self,
        source: pl.DataFrame,
        order: npt.NDArray[np.uint32],
        depth: npt.NDArray[np.int32],
        *,
        build: Callable[[pl.DataFrame], pl.DataFrame],
        start_ns: str,
    ) -> None:
        is_all = len(order) == len(source) and bool((order == np.arange(len(order), dtype=np.uint32)).all())
        self._source = source
        self._order = None if is_all else order
        self._depth = depth
        self._build = build
        self._start_ns = start_ns

    def __len__(self) -> int:
        """Return the number of slices."""
        return len(self._depth)

    def build(self) -> pl.DataFrame:
        """Build all slices (SLICES with arguments), subtrack after subtrack."""
        rows = self._source if self._order is None else self._source[self._order]
        return self._build(rows).with_columns(depth=pl.Series(self._depth))

    @cached_property
    def slices(self) -> pl.DataFrame:
        """All slices, built once."""
        return self.build()

    @cached_property
    def schema(self) -> pl.Schema:
        """Columns of the slices."""
        return self._build(self._source.clear()).with_columns(depth=pl.lit(0, dtype=pl.Int32)).schema

    def start_ns(self, at: int) -> int:
        """Return the start of a slice, by its position."""
        return int(self._source[self._start_ns][at if self._order is None else int(self._order[at])])


class SlicePart(Struct, frozen=True):
    """Slices of a subtrack: of its track from `first` to before `stop`."""

    track: TrackSlices
    first: int
    stop: int

    def __len__(self) -> int:
        """Return the number of slices."""
        return self.stop - self.first

    @property
    def schema(self) -> pl.Schema:
        """Columns of the slices."""
        return self.track.schema

    def build(self) -> pl.DataFrame:
        """Build the slices."""
        return self.track.slices[self.first : self.stop]


class SliceSubtrack(Struct, frozen=True, kw_only=True):
    """Slices on one track that nest or do not overlap.

    `slices` has the columns of SLICES in pre-order: each slice directly before the slices
    inside it, siblings by time. So the order of begin and end events in the file follows from `depth`.
    Each further column is an argument of the slice, shown under the name of the column; its type is an
    integer, Float64, Boolean or Categorical. Null: the slice does not have the argument.
    """

    track: tuple[str, ...]
    number: int  # 0, 1, ... among the slice subtracks of the track; all of them are drawn as one row
    slices: pl.DataFrame | SlicePart


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
    `nsys_pp.write.trace.placement.Placement`.
    """

    report_id: int  # 64 bits, unique per report
    tracks: list[Track]
    subtracks: list[Subtrack]


def sequence_id(report_id: int) -> int:
    """Return the packet sequence of a report, also the high half of its flow ids: 31 bits of its id.

    With the 32nd bit set, Perfetto's importer v52 does not recognize the clocks of the sequence
    (`IsConvertedSequenceClock` shifts a signed number).
    """
    return max(report_id & 0x7FFFFFFF, HEADER_SEQUENCE + 1)
