"""Domains (reports that share a clock), the first guess of each clock, and the events that domains share.

`utc = event - shift + epoch` is the first guess (nsys records the UTC of the session's start, and the
total shift that the exporter applied). Machines synchronised by NTP differ by up to some milliseconds,
and two sessions of one machine by about 0.1 ms, because each reads UTC separately.
Captures of one nsys session, however, are exact relative to each other: nsys computes their UTC from one
reading. Where nsys also recorded the system clock (CLOCK_MONOTONIC at the start of the session, since 2025),
the reports of one machine are exact relative to each other and form one domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import share_session
from nsys_pp.units import NS_PER_S

# Start of sessions on a clock that is not UTC. Events may precede their session, and a trace has no
# negative times.
START_WITHOUT_UTC_NS = 86_400 * NS_PER_S

# One system clock has one difference from UTC, but for the error of each reading and corrections in between.
# NVIDIA's own rule is a second, which two containers with clocks of their own can meet by chance.
_ONE_CLOCK_NS = 10_000_000


class Domain(Struct, frozen=True, kw_only=True):
    """Reports with exactly known differences between their clocks."""

    machine: str
    reports: tuple[int, ...]  # indices of reports
    is_utc: bool  # the first guess is a recorded UTC


class Guess(Struct, frozen=True, kw_only=True):
    """The first guess: `utc = event_ns + base_ns` of the report."""

    domains: list[Domain]  # in order of their first report
    domain_of: list[int]  # of each report
    base_ns: list[int]  # of each report


def guess_clocks(sessions: Sequence[Session], *, use_utc: bool = True) -> Guess:
    """Group reports by clock domain and guess each clock from its recorded times.

    Args:
        sessions: Of one or more reports, in their order; sessions of one machine have the same `machine`.
        use_utc: If not, all sessions begin at one time, as if no report had a UTC.

    Returns:
        Domains and first guesses. Reports without UTC begin with the earliest report that has one; if
        none has, all begin one day after 0.
    """
    epochs = [session.utc_epoch_ns for session in sessions if session.utc_epoch_ns is not None and use_utc]
    start_ns = min(epochs, default=START_WITHOUT_UTC_NS)
    groups: list[list[int]] = []
    of_machine: dict[str, list[list[int]]] = {}
    for row, session in enumerate(sessions):
        own = of_machine.setdefault(session.machine, [])
        group = next(
            (
                group
                for group in own
                if _share_system_clock(sessions[group[0]], session)
                or all(share_session(sessions[at], session) for at in group)
            ),
            None,
        )
        if group is None:
            groups.append([row])
            own.append(groups[-1])
        else:
            group.append(row)
    base_ns = [0] * len(sessions)
    for group in groups:
        known = [(sessions[row].utc_epoch_ns, sessions[row].system_clock_ns) for row in group]
        leads = [epoch - clock for epoch, clock in known if epoch is not None and clock is not None]
        lead = median_low(leads) if len(group) > 1 and leads else None
        for row in group:
            session = sessions[row]
            if lead is not None and session.system_clock_ns is not None:
                base_ns[row] = lead + session.system_clock_ns - session.time_shift_ns
            else:
                epoch = start_ns if session.utc_epoch_ns is None else session.utc_epoch_ns
                base_ns[row] = epoch - session.time_shift_ns
        if not use_utc:
            first = min(base_ns[row] + sessions[row].time_shift_ns for row in group)
            for row in group:
                base_ns[row] += start_ns - first
    number_of = {row: number for number, group in enumerate(groups) for row in group}
    domains = [
        Domain(
            machine=sessions[group[0]].machine,
            reports=tuple(group),
            is_utc=use_utc and any(sessions[row].utc_epoch_ns is not None for row in group),
        )
        for group in groups
    ]
    return Guess(domains=domains, domain_of=[number_of[row] for row in range(len(sessions))], base_ns=base_ns)


def _share_system_clock(session: Session, other: Session) -> bool:
    leads = [
        one.utc_epoch_ns - one.system_clock_ns
        for one in (session, other)  # without UTC they may be containers with system clocks of their own
        if one.utc_epoch_ns is not None and one.system_clock_ns is not None
    ]
    return len(leads) == 2 and abs(leads[0] - leads[1]) < _ONE_CLOCK_NS


COLLECTIVE, SEND, RECEIVE, SEND_RECEIVE, MPI = range(5)

# Number of operations kept of each channel: those after the longest gaps, which are the most distinctive.
MAX_EVENTS_PER_CHANNEL = 300

# A send that takes less left from a buffer. Its receive ends after it by the time of the transfer, if it
# waited at all. A receive that takes less came from a buffer: its end says nothing of the other side.
BUFFERED_NS = 15_000

_CHANNEL = ["report", "process_key", "device_id", "channel", "name", "communicator"]


class Events(Struct, frozen=True, kw_only=True):
    """Anchors as arrays, by channel and end; times in ns since `origin_ns` on the guessed clock.

    Two events can be one operation only if their `key` (name and communicator) agrees. Gaps are NaN at
    the ends of a channel.
    """

    origin_ns: int
    domain: Int64s
    channel: Int64s
    key: Int64s
    kind: Int64s
    start: Floats
    end: Floats
    gap_before: Floats
    gap_rank: Int64s  # rank of the gap before in its channel, the longest first, from 1
    has_communicator: Int64s  # 1 where NCCL recorded the communicator

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

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Events:
        """Return the events of these rows."""
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
    return np.asarray(has_other[number])


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
        channel=ints("channel_id"),
        key=ints("key"),
        kind=ints("kind"),
        start=floats("start_ns", origin_ns),
        end=floats("end_ns", origin_ns),
        gap_before=floats("gap_before"),
        gap_rank=ints("gap_rank"),
        has_communicator=rows["communicator"].is_not_null().cast(pl.Int64).to_numpy(),
    )


def _join(anchors: Sequence[pl.DataFrame], guess: Guess) -> pl.DataFrame:
    """Join the anchors of all reports.

    Names as strings, times on the guessed clock, with the number of each report and its domain.

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
