"""Frames about clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import NAME

SKEW_NS = 60_000
"""Greatest distance of the ends of one operation on its ranks, on one clock, but for exceptions.

2 to 26 us were measured on two H100s of one machine.
"""

ANCHORS = build_schema(
    {  # what ties a report's clock to those of others: operations that other ranks take part in; by start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # null for MPI
        "channel": pl.String,  # operations of one channel keep their order on every rank: "stream 17 of context 1"
        "kind": pl.Enum(["collective", "send", "receive", "send_receive", "mpi"]),
        "name": NAME,  # "AllReduce", "MPI_Barrier": what must agree for two to be one
        "communicator": pl.UInt64,  # the same on all ranks; null where unknown
        "rank": pl.Int64,  # within the communicator; null where unknown
        "peer": pl.Int64,  # rank within the communicator; null where unknown
        "size_bytes": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="ANCHORS",
)

CLOCKS = build_schema(
    {  # one row per clock (a machine, or a report of it), in order of its first report
        "machine": pl.String,
        "reports": pl.List(pl.UInt32),  # places among the reports
        "component": pl.UInt32,  # clocks of one component were compared with each other
        "source": pl.Enum(
            ["collectives", "MPI", "send/receive", "alone", "same machine", "UTC", "given", "nothing"]
        ),
        "offset_ns": pl.Int64,  # added to recorded UTC in the middle of the capture
        "drift_ppm": pl.Float64,  # how much faster the clock runs than most of its component
        "residual_median_ns": pl.Int64,  # of the ends of shared operations; null without any
        "residual_p95_ns": pl.Int64,
        "bound_ns": pl.Int64,  # the error of its times against others of its component; null: unknown
        "collective_count": pl.UInt32,  # operations shared with other clocks
        "mpi_count": pl.UInt32,
        "message_count": pl.UInt32,
    },
    name="CLOCKS",
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
