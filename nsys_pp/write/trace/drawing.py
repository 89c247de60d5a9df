"""What a trace shows, apart from any file format: tracks, and subtracks of slices, marks and counters on them.

`nsys_pp.write.trace.tracks` makes a `Drawing` of each report; `nsys_pp.write.perfetto.trace` and
`nsys_pp.write.chrome.trace` only encode it. One subtrack holds slices that nest properly (or do not
overlap), so overlapping work needs several subtracks on one track.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.frames.part import Track

SLICES = pl.Schema(
    {  # one row per slice, in order of position; further columns are arguments
        "start_ns": pl.Int64(),  # report clock
        "end_ns": pl.Int64(),
        "depth": pl.Int32(),  # slices of this subtrack around it
        "name": pl.Categorical(),
        "color": pl.Categorical(),  # a key of `nsys_pp.write.trace.colors`; null leaves it to the viewer
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clock:
    """Maps a report's clock onto the trace's, piece by piece: `trace_ns = event_ns + offset_ns`.

    A piece holds from its `from_ns` until that of the next, the first one also before. Offsets
    never decrease: a step back would put what comes after it before what came before.

    Args:
        from_ns: Where pieces begin, on the report's clock; increasing.
        offset_ns: The offset of each.

    Raises:
        ValueError: There is no piece, pieces are not in order, or an offset is less than the one before.

    >>> clock = Clock(from_ns=np.array([0, 100]), offset_ns=np.array([5, 7]))
    >>> clock.to_trace(np.array([-1, 99, 100])).tolist()
    [4, 104, 107]
    >>> clock.to_report(104), clock.to_report(106), clock.to_report(107)
    (99, 100, 100)
    """

    from_ns: NDArray[np.int64]
    offset_ns: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.from_ns.ndim != 1 or self.from_ns.shape != self.offset_ns.shape or not len(self.from_ns):
            raise ValueError("a clock needs pieces, each with one begin and one offset")
        if (np.diff(self.from_ns) <= 0).any():
            raise ValueError("the pieces of a clock are not in order")
        if (np.diff(self.offset_ns) < 0).any():
            raise ValueError("an offset of a clock decreases")

    @classmethod
    def fixed(cls, offset_ns: int) -> Clock:
        """Map by one offset at all times."""
        return cls(from_ns=np.zeros(1, np.int64), offset_ns=np.array([offset_ns], np.int64))

    def to_trace(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map times of the report, in any order, onto the trace's clock."""
        piece = np.searchsorted(self.from_ns[1:], times_ns, side="right")
        return times_ns + self.offset_ns[piece]

    def to_report_times(self, trace_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map times that `to_trace` gave, in any order, back onto the report's clock.

        >>> clock = Clock(from_ns=np.array([0, 100]), offset_ns=np.array([5, 7]))
        >>> clock.to_report_times(clock.to_trace(np.array([99, 100, -1]))).tolist()
        [99, 100, -1]
        """
        begins = self.from_ns[1:] + self.offset_ns[1:]  # of further pieces, on the trace's clock
        return trace_ns - self.offset_ns[np.searchsorted(begins, trace_ns, side="right")]

    def to_report(self, trace_ns: int) -> int:
        """Return the earliest time of the report that is drawn at `trace_ns` or later."""
        begins = self.from_ns[1:] + self.offset_ns[1:]  # of further pieces, on the trace's clock
        piece = int(np.searchsorted(begins, trace_ns, side="right"))
        reached = trace_ns - int(self.offset_ns[piece])
        following = self.from_ns[piece + 1 : piece + 2]
        return min(reached, *map(int, following)) if len(following) else reached


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSubtrack:
    """Slices that nest properly on one track.

    `slices` has the columns of SLICES in pre-order: each slice directly before the slices
    inside it, siblings by time (so begin and end events in file order follow from depth).
    Every further column is an argument shown with the slice, under the column's name; its
    type is an integer, Float64, Boolean or Categorical; null means that the slice lacks it.
    """

    track: tuple[str, ...]
    number: int  # 0, 1, ... among the slice subtracks of the track, which are drawn as one row
    slices: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkSubtrack:
    """Instants on one track; further columns are arguments, as in SliceSubtrack."""

    track: tuple[str, ...]
    marks: pl.DataFrame  # MARK_POINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSubtrack:
    """Samples of one counter track; a value holds until the next sample."""

    track: tuple[str, ...]
    samples: pl.DataFrame  # SAMPLES


Subtrack = SliceSubtrack | MarkSubtrack | CounterSubtrack


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What one report shows: tracks and what stands on them, whatever other reports there are.

    Parents of tracks may be left out: their name is the last part of their path. `subtracks` in any
    order. How the outermost tracks are called and where all of it stands in a trace says a
    `nsys_pp.write.trace.placement.Placement`.
    """

    report_id: int  # 64 bits that tell the report from all others
    tracks: list[Track]
    subtracks: list[Subtrack]
