"""Where each report's clock stands on the common one.

For now the common clock is UTC as each machine recorded it: `utc = event - shift + epoch`
(nsys gives the UTC of the session's start, and the total shift that the exporter applied).
Machines that keep time by NTP differ by up to some milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsys_pp.units import NS_PER_S

# Where sessions start on a clock that is not UTC. Events may lie before their session's start, and
# a trace has no times below 0.
_START_WITHOUT_UTC_NS = 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one report says of its clock, in ns."""

    utc_epoch_ns: int | None  # UTC at the start of the session
    time_shift_ns: int  # what the exporter added to every event


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The offset of each report, in the order given: `trace_ns = event_ns + offset_ns`."""

    offset_ns: list[int]
    zero_ns: int  # start of the earliest session on the trace's clock
    is_utc: bool  # the trace's clock is UTC
    unplaced: list[int]  # reports without a UTC among reports with one: put at the earliest start


def align_by_utc(reports: Sequence[Recorded]) -> Alignment:
    """Put reports on one clock by the UTC that each recorded.

    Args:
        reports: One or more.

    Returns:
        Offsets onto UTC where at least one report knows it. Without, every session starts at the
        same time, one day after 0.

    >>> align_by_utc([
    ...     Recorded(utc_epoch_ns=1_000, time_shift_ns=0),
    ...     Recorded(utc_epoch_ns=1_500, time_shift_ns=1_500),  # exported with normalised time
    ... ])
    Alignment(offset_ns=[1000, 0], zero_ns=1000, is_utc=True, unplaced=[])
    """
    epochs = [report.utc_epoch_ns for report in reports if report.utc_epoch_ns is not None]
    zero_ns = min(epochs, default=_START_WITHOUT_UTC_NS)
    return Alignment(
        offset_ns=[
            (zero_ns if report.utc_epoch_ns is None else report.utc_epoch_ns) - report.time_shift_ns
            for report in reports
        ],
        zero_ns=zero_ns,
        is_utc=bool(epochs),
        unplaced=[row for row, report in enumerate(reports) if report.utc_epoch_ns is None and bool(epochs)],
    )
