"""Drawing: the contents of a trace, independent of the file format.

A drawing has tracks, and on them subtracks of slices, marks and counter samples. `nsys_pp.write.trace.tracks`
builds the `Drawing` of each report; `nsys_pp.write.perfetto.trace` and `nsys_pp.write.chrome.trace` encode it. The
slices of one subtrack nest (or do not overlap), so overlapping work needs several subtracks of one track.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nsys_pp.frames.part import Track

HEADER_SEQUENCE = 1  # of packets about the whole trace; 0 is invalid

SLICES = pl.Schema(
    {  # one row per slice, in order of position; further columns are arguments
        "start_ns": pl.Int64(),  # report clock
        "end_ns": pl.Int64(),
        "depth": pl.Int32(),  # slices of this subtrack around it
        "name": pl.Categorical(),
        "color": pl.Categorical(),  # a key of `nsys_pp.write.trace.colors`; null leaves it to the viewer
        "flow_id": pl.UInt64(),  # slices with the same id are joined by an arrow; null for none
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
class SliceSubtrack:
    """Slices that nest properly on one track.

    `slices` has the columns of SLICES in pre-order: each slice directly before the slices
    inside it, siblings by time (so begin and end events in file order follow from depth).
    Every further column is an argument shown with the slice, under the column's name; its
    type is an integer, Float64, Boolean or Categorical; null: the slice does not have it.
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
    """Samples of one counter track; a value is valid until the next sample."""

    track: tuple[str, ...]
    samples: pl.DataFrame  # SAMPLES


Subtrack = SliceSubtrack | MarkSubtrack | CounterSubtrack


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Drawing of one report, independent of other reports.

    Parents of tracks may be omitted: their name is the last part of their path. `subtracks` are in any
    order. A `nsys_pp.write.trace.placement.Placement` has the names of the outermost tracks and their position in
    a trace.
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
