"""Events: the anchors of all reports as arrays, in order of channel and end.

A channel is a sequence of operations with the same order on every rank: the operations of one
name that a process runs on one stream, or within one communicator where NCCL recorded it. The gaps between
the ends of neighbours in a channel are the same on every rank of a collective, independent of the offsets of their
clocks, so operations are matched by these gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.alignment.domains import Guess
from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import ANCHORS

KINDS = ("collective", "send", "receive", "send_receive", "mpi")
COLLECTIVE, SEND, RECEIVE, SEND_RECEIVE, MPI = range(5)

MAX_EVENTS_PER_CHANNEL = 300
"""Number of operations kept of each channel: those after the longest gaps, which are the most distinctive."""

BUFFERED_NS = 15_000
"""A send that takes less left from a buffer: its receive ends after it by the time of the transfer, if it waited at all. A
receive that takes less came from a buffer: its end says nothing of the other side."""

_CHANNEL = ["report", "process_key", "device_id", "channel", "name", "communicator"]


class Events(Struct, frozen=True, kw_only=True):
    """Anchors as arrays, by channel and end; times in ns since `origin_ns` on the guessed clock.

    Two events can be one operation only if their `key` (name and communicator) agrees. Gaps are NaN at
    the ends of a channel.
    """

    origin_ns: int
    domain: Int64s
    report: Int64s
    channel: Int64s
    key: Int64s
    kind: Int64s
    start: Floats
    end: Floats
    gap_before: Floats
    gap_rank: Int64s  # rank of the gap before in its channel, the longest first, from 1
    has_communicator: Int64s  # 1 where NCCL recorded the communicator
    rank: Int64s  # within the communicator, -1 where unknown
    peer: Int64s

    def __len__(self) -> int:
        return len(self.end)

    @property
    def is_message(self) -> npt.NDArray[np.bool_]:
        """Mask of the events that are sends or receives."""
        return (self.kind >= SEND) & (self.kind <= SEND_RECEIVE)

    @property
    def is_buffered(self) -> npt.NDArray[np.bool_]:
        """Mask of the messages that did not wait for the other side."""
        return self.is_message & (self.end - self.start <= BUFFERED_NS)

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_] | slice) -> Events:
        """Return the events of these rows; by a slice, without copies."""
        return Events(
            origin_ns=self.origin_ns,
            **{name: getattr(self, name)[rows] for name in self.__struct_fields__ if name != "origin_ns"},
        )


def mark_shared(values: Int64s, domain: Int64s) -> Bools:
    """Return the mask of rows whose value occurs in more than one domain.

    >>> mark_shared(np.array([7, 7, 8, 8]), np.array([0, 1, 1, 1])).tolist()
    [True, True, False, False]
    """
    first, number = find_distinct(values)
    has_other = np.bincount(number, domain != domain[first][number], len(first)) > 0
    mask: Bools = has_other[number]
    return mask


def gather_events(anchors: Sequence[pl.DataFrame], guess: Guess) -> Events:
    """Gather the anchors of all reports, on the guessed clock.

    Args:
        anchors: `ANCHORS` of each report.
        guess: First guess of their clocks.

    Returns:
        The events of all channels, at most `MAX_EVENTS_PER_CHANNEL` of each.
    """
    rows = _join(anchors, guess)
    is_message = pl.col("kind").is_in(["send", "receive", "send_receive"])
    is_quick = is_message & (pl.col("end_ns") - pl.col("start_ns") <= BUFFERED_NS)
    rows = rows.filter(~is_quick | (pl.col("kind") == "send")).with_columns(is_quick=is_quick)
    # gaps between those that end together with others do not depend on the sends between them
    before = pl.col("end_ns") - pl.col("end_ns").shift(1).over("channel_id", "is_quick")
    rows = (
        rows.with_columns(
            channel_id=pl.struct(_CHANNEL).rank("dense").cast(pl.Int64) - 1,
            key=pl.struct("name", "communicator").rank("dense").cast(pl.Int64) - 1,
            kind=pl.col("kind").to_physical().cast(pl.Int64),
        )
        .sort("channel_id", "end_ns", "start_ns")
        .with_columns(gap_before=before)
        .with_columns(
            gap_rank=pl.col("gap_before")
            .rank("ordinal", descending=True)
            .over("channel_id", "is_quick")
            .fill_null(0)
        )
        .filter(pl.col("gap_rank") <= MAX_EVENTS_PER_CHANNEL)
    )
    origin_ns = rows["start_ns"].min()
    origin_ns = origin_ns if isinstance(origin_ns, int) else 0

    def floats(column: str, origin: int = 0) -> Floats:
        return (rows[column] - origin).cast(pl.Float64).fill_null(float("nan")).to_numpy()

    def ints(column: str) -> Int64s:
        return rows[column].cast(pl.Int64).fill_null(-1).to_numpy()

    return Events(
        origin_ns=origin_ns,
        domain=ints("domain"),
        report=ints("report"),
        channel=ints("channel_id"),
        key=ints("key"),
        kind=ints("kind"),
        start=floats("start_ns", origin_ns),
        end=floats("end_ns", origin_ns),
        gap_before=floats("gap_before"),
        gap_rank=ints("gap_rank"),
        has_communicator=rows["communicator"].is_not_null().cast(pl.Int64).to_numpy(),
        rank=ints("rank"),
        peer=ints("peer"),
    )


def _join(anchors: Sequence[pl.DataFrame], guess: Guess) -> pl.DataFrame:
    """Join the anchors of all reports: names as strings, times on the guessed clock, with the number of each report and its domain.

    Column by column: a query of each frame takes longer than its rows.
    """
    frames = [ANCHORS.to_frame(), *anchors]
    columns = {
        name: pl.concat([frame[name].cast(pl.String) if name == "name" else frame[name] for frame in frames])
        for name in ANCHORS
    }
    counts = np.array([len(frame) for frame in anchors], dtype=np.int64)
    of_report = {"report": range(len(anchors)), "domain": guess.domain_of, "base_ns": guess.base_ns}
    columns |= {
        name: pl.Series(name, np.repeat(np.array(values[: len(anchors)], dtype=np.int64), counts))
        for name, values in of_report.items()
    }
    times = (pl.col(name) + pl.col("base_ns") for name in ("start_ns", "end_ns"))
    return pl.DataFrame(columns).with_columns(*times).drop("base_ns")
