"""Captures in time, and captures of one nsys session: reports of the same processes, one after the other, on one clock."""

from __future__ import annotations

from nsys_pp.frames.report import Session

# Captures of one session differ by rounding: by up to 10 ns where some were recorded (nsys 2023.4 and 2024.2: `--capture-range-end=repeat`, and
# `nsys start` and `stop`). Sessions differ by the time between their starts, or, where the start is that of the system clock, by the error of
# two readings of UTC: some 0.1 ms.
_ROUNDING_NS = 100


def capture_window(session: Session) -> tuple[int, int] | None:
    """Return the start and the end of a capture in UTC, in ns; None where one is unknown."""
    if session.utc_epoch_ns is None or session.capture_end_ns is None:
        return None
    return session.utc_epoch_ns, session.utc_epoch_ns + session.capture_end_ns - session.time_shift_ns


def share_origin(session: Session, other: Session) -> bool:
    """Return whether nsys recorded the starts of two reports of one machine on one clock, with one reading of UTC."""
    if session.origin_ns is None or other.origin_ns is None:
        return False
    return abs(session.origin_ns - other.origin_ns) <= _ROUNDING_NS


def share_session(session: Session, other: Session) -> bool:
    """Return whether two reports of one machine are captures of one nsys session.

    Such captures follow each other in time.

    Args:
        session: Of one report.
        other: Of another report of its machine.
    """
    first, second = capture_window(session), capture_window(other)
    if first is None or second is None or not share_origin(session, other):
        return False
    return first[1] <= second[0] or second[1] <= first[0]
