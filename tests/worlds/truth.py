"""The truth of a simulated world, on the clocks of its reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

_LEAST_SHARED = 3  # operations: a single one fits anywhere

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueClock:
    """The true clock of a report, as a line with knots: true UTC and the report's time, both increasing."""

    true_ns: Int64s
    report_ns: Int64s

    def to_report(self, true_ns: Int64s) -> Int64s:
        """Return the report's times at true times, to a nanosecond."""
        return _interpolate(true_ns, self.true_ns, self.report_ns)

    def to_true(self, report_ns: Int64s) -> Int64s:
        """Return the true times of times of the report, to a nanosecond."""
        return _interpolate(report_ns, self.report_ns, self.true_ns)

    @property
    def first_ns(self) -> int:
        """The true start of the capture."""
        return int(self.true_ns[0])

    @property
    def last_ns(self) -> int:
        """The true end of the capture."""
        return int(self.true_ns[-1])


@dataclass(frozen=True)
class Truth:
    """Tables of `fixtures.truth` of one world."""

    folder: Path

    def table(self, name: str) -> pl.DataFrame:
        """Read a table of the truth."""
        return pl.read_parquet(self.folder / "truth" / f"{name}.parquet")

    @cached_property
    def clocks(self) -> dict[str, TrueClock]:
        """The true clock of each report."""
        return {
            str(name): TrueClock(true_ns=knots["true_ns"].to_numpy(), report_ns=knots["report_ns"].to_numpy())
            for (name,), knots in self.table("clock_knots").group_by("report", maintain_order=True)
        }

    @cached_property
    def machine_of(self) -> dict[str, str]:
        """The machine of each report."""
        return dict(self.table("clocks").select("report", "machine").iter_rows())

    @cached_property
    def exchanges(self) -> pl.DataFrame:
        """Exchanges between replicas of which both kernels are recorded: `MESSAGES`."""
        return self.table("exchanges").drop_nulls(["send_correlation_id", "receive_correlation_id"])

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Messages of which both kernels are recorded: `MESSAGES`, with `message`, a number."""
        both = self.table("messages").drop_nulls(["send_correlation_id", "receive_correlation_id"])
        return both.with_row_index("message")

    def on_reports(self, frame: pl.DataFrame, report: str, *columns: str) -> pl.DataFrame:
        """Replace true times by times of the reports that a column names."""
        moved = {name: frame[name].to_numpy().copy() for name in columns}
        reports = frame[report].to_numpy()
        for name, clock in self.clocks.items():
            rows = reports == name
            for times in moved.values():
                times[rows] = clock.to_report(times[rows])
        return frame.with_columns(pl.Series(name, times) for name, times in moved.items())

    def count_groups(self) -> int:
        """Count the groups of clocks that share operations, three or more of two reports, or are of one machine."""
        shared: Counter[tuple[str, str]] = Counter()
        for frame in (self.messages, self.exchanges):
            shared.update(frame.select("send_report", "receive_report").iter_rows())
        collectives = self.table("collectives").drop_nulls("correlation_id")
        members = collectives.group_by("communicator", "instance").agg(pl.col("report").unique().sort())
        for names in members["report"].to_list():
            shared.update(combinations(names, 2))
        counts: Counter[frozenset[str]] = Counter()
        for pair, count in shared.items():
            counts[frozenset(pair)] += count
        group = {name: {name} for name in self.clocks}
        for names in combinations(self.clocks, 2):
            is_machine = len({self.machine_of[name] for name in names}) == 1
            if is_machine or counts[frozenset(names)] >= _LEAST_SHARED:
                union = set().union(*(group[name] for name in names))
                group |= dict.fromkeys(union, union)
        return len({id(members_of) for members_of in group.values()})


def _interpolate(times: Int64s, origin: Int64s, target: Int64s) -> Int64s:
    """Map times along a line with knots; before and after it at the rate of its ends."""
    piece = np.clip(np.searchsorted(origin, times, side="right") - 1, 0, len(origin) - 2)
    rate = np.diff(target) / np.diff(origin)
    return target[piece] + np.round((times - origin[piece]) * rate[piece]).astype(np.int64)
