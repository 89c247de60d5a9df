"""Frames of clock alignment (anchors, clocks), and the mapping of one clock onto another."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.frames.conform import NAME, build_schema

# Greatest distance of the ends of one operation on its ranks, on one clock, but for exceptions. 2 to 26 us
# were measured on two H100s of one machine.
SKEW_NS = 60_000

ANCHORS = build_schema(
    {  # one row per operation that is shared with other ranks, from which clocks are aligned; by start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # null for MPI
        "channel": pl.String,  # its operations have the same order on every rank: "stream 17 of context 1"
        "kind": pl.Enum(["collective", "send", "receive", "send_receive", "mpi"]),
        "name": NAME,  # of the kernel or MPI call; the same on all ranks of an operation
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
        "reports": pl.List(pl.UInt32),  # indices of its reports
        "group": pl.UInt32,  # clocks of one group were compared with each other, directly or through others
        "source": pl.Enum(
            ["collectives", "MPI", "send/receive", "alone", "same machine", "UTC", "given", "nothing"]
        ),
        "offset_ns": pl.Int64,  # added to recorded UTC in the middle of the capture
        "drift_ppm": pl.Float64,  # rate relative to the median clock of its group; positive: fast
        # of the ends of shared operations, after correction; null without any
        "residual_median_ns": pl.Int64,
        "residual_p95_ns": pl.Int64,
        "bound_ns": pl.Int64,  # error bound relative to other clocks of its group; null: unknown
        "collective_count": pl.UInt32,  # operations shared with other clocks
        "mpi_count": pl.UInt32,
        "message_count": pl.UInt32,
    },
    name="CLOCKS",
)


class Clock(Struct, frozen=True, kw_only=True, eq=False):
    """Piecewise mapping of a report's clock onto the trace's clock: `trace_ns = event_ns + offset_ns`.

    A piece covers the times from its `from_ns` to the `from_ns` of the next piece; the first piece also
    covers all earlier times. Offsets never decrease: a decrease could swap the order of two events.

    Args:
        from_ns: Start of each piece on the report's clock, strictly increasing.
        offset_ns: Offset of each piece.

    Raises:
        ValueError: There are no pieces, pieces are not in order, or an offset is less than the previous one.

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
            raise ValueError("a clock needs pieces, each with one start and one offset")
        if (np.diff(self.from_ns) <= 0).any():
            raise ValueError("the pieces of a clock are not in order")
        if (np.diff(self.offset_ns) < 0).any():
            raise ValueError("an offset of a clock decreases")

    @classmethod
    def fixed(cls, offset_ns: int) -> Clock:
        """Build a clock with the same offset at all times."""
        return cls(from_ns=np.zeros(1, np.int64), offset_ns=np.array([offset_ns], np.int64))

    def shifted(self, offset_ns: int) -> Clock:
        """Build the clock with another offset added at all times."""
        return Clock(from_ns=self.from_ns, offset_ns=self.offset_ns + offset_ns)

    def to_trace(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map times of the report, in any order, onto the trace's clock."""
        return times_ns + self.offset_ns[np.searchsorted(self.from_ns[1:], times_ns, side="right")]

    def to_report_times(self, trace_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map times of the trace, in any order, back onto the report's clock: the inverse of `to_trace`.

        >>> clock = Clock(from_ns=np.array([0, 100]), offset_ns=np.array([5, 7]))
        >>> clock.to_report_times(clock.to_trace(np.array([99, 100, -1]))).tolist()
        [99, 100, -1]
        """
        starts = self.from_ns[1:] + self.offset_ns[1:]  # of all pieces but the first, on the trace's clock
        return trace_ns - self.offset_ns[np.searchsorted(starts, trace_ns, side="right")]

    def to_report(self, trace_ns: int) -> int:
        """Return the earliest time of the report that `to_trace` maps to `trace_ns` or later."""
        starts = self.from_ns[1:] + self.offset_ns[1:]  # of all pieces but the first, on the trace's clock
        piece = int(np.searchsorted(starts, trace_ns, side="right"))
        report_ns = trace_ns - int(self.offset_ns[piece])
        following = self.from_ns[piece + 1 : piece + 2]
        return min(report_ns, *map(int, following)) if len(following) else report_ns


# Columns of a lane (`LANES`) that define its clock.
CLOCK = ("clock", "clock_group", "bound_ns")


def describe_groups(groups: pl.Series) -> str:
    """Describe several groups of clocks; "" for a single one.

    Args:
        groups: Group of each clock or lane.
    """
    count = groups.n_unique()
    return f"{count} groups of clocks, not comparable with each other" if count > 1 else ""


def is_same_clock(suffix: str) -> pl.Expr:
    """Return whether two lanes have the same clock: their times are exact relative to each other.

    Args:
        suffix: Of the columns `CLOCK` of the other lane.
    """
    return pl.col("clock") == pl.col(f"clock{suffix}")


def is_comparable(suffix: str) -> pl.Expr:
    """Return whether the times of two lanes can be compared: of one clock, or of one group with known bounds.

    Args:
        suffix: Of the columns `CLOCK` of the other lane.
    """
    is_same_group = pl.col("clock_group") == pl.col(f"clock_group{suffix}")
    return (is_same_clock(suffix) | (is_same_group & _sum_bounds(suffix).is_not_null())).fill_null(False)


def relative_bound(suffix: str) -> pl.Expr:
    """Return the error bound of the times of two lanes relative to each other; null: unknown.

    Args:
        suffix: Of the columns `CLOCK` of the other lane.
    """
    return pl.when(is_same_clock(suffix)).then(0).otherwise(_sum_bounds(suffix))


def keep_comparable(pairs: pl.DataFrame, lanes: pl.DataFrame, left: str, right: str) -> pl.DataFrame:
    """Keep the rows with two lanes whose times can be compared.

    Args:
        pairs: Rows with the columns `left` and `right`.
        lanes: `LANES`.
        left: Column of one lane.
        right: Column of the other lane.
    """
    clocks = lanes.select("lane", *CLOCK)
    both = pairs.select(left, right)
    for name in (left, right):
        both = both.join(
            clocks, left_on=name, right_on="lane", how="left", maintain_order="left", suffix="_of_other"
        )
    return pairs.filter(both.select(is_comparable("_of_other")).to_series())


def number_comparable(lanes: pl.DataFrame) -> pl.Series:
    """Number the sets of lanes whose times can all be compared, from 0.

    Lanes of unknown bounds have only their clock.

    Args:
        lanes: `LANES`.

    Returns:
        The number of the set of each lane, in order (`clock_set`).
    """
    is_bounded = pl.col("bound_ns").is_not_null() & pl.col("clock_group").is_not_null()
    key = pl.struct(pl.when(is_bounded).then("clock_group"), clock=pl.when(~is_bounded).then("clock"))
    return lanes.select(clock_set=key.rank("dense") - 1).to_series()


def list_comparable_steps(steps: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """List the steps in which the times of all lanes can be compared: step.

    Args:
        steps: `RUN_STEPS`.
        lanes: `LANES`.
    """
    return (
        steps.join(lanes.select("lane", number_comparable(lanes)), on="lane", how="left")
        .group_by("step")
        .agg(pl.col("clock_set").n_unique())
        .filter(clock_set=1)
        .select("step")
        .sort("step")
    )


def _sum_bounds(suffix: str) -> pl.Expr:
    return pl.col("bound_ns") + pl.col(f"bound_ns{suffix}")
