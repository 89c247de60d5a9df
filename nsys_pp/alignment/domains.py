"""Clock domains: reports that share a clock, and the first guess of each clock from recorded times.

`utc = event - shift + epoch` is the first guess (nsys records the UTC of the session's start, and the
total shift that the exporter applied). Machines synchronised by NTP differ by up to some milliseconds,
and two sessions of one machine by about 0.1 ms, because each reads UTC separately.
Captures of one nsys session, however, are exact relative to each other: nsys computes their UTC from one reading.
Where nsys also recorded the system clock (CLOCK_MONOTONIC at the start of the session, since 2025),
the reports of one machine are exact relative to each other and form one domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

from msgspec import Struct

from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import share_session
from nsys_pp.units import NS_PER_S

# Start of sessions on a clock that is not UTC. Events may precede their session, and a trace has no
# negative times.
START_WITHOUT_UTC_NS = 86_400 * NS_PER_S

# One system clock has one difference from UTC, but for the error of each reading and corrections in between. NVIDIA's
# own rule is a second, which two containers with clocks of their own can meet by chance.
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
        group = next((group for group in own if _fits([sessions[at] for at in group], session)), None)
        if group is None:
            groups.append([row])
            own.append(groups[-1])
        else:
            group.append(row)
    base_ns = [0] * len(sessions)
    for group in groups:
        lead = _find_utc_lead(sessions, group)
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
    domain_of = [0] * len(sessions)
    for number, group in enumerate(groups):
        for row in group:
            domain_of[row] = number
    domains = [
        Domain(
            machine=sessions[group[0]].machine,
            reports=tuple(group),
            is_utc=use_utc and any(sessions[row].utc_epoch_ns is not None for row in group),
        )
        for group in groups
    ]
    return Guess(domains=domains, domain_of=domain_of, base_ns=base_ns)


def _fits(group: Sequence[Session], session: Session) -> bool:
    """Return whether a report shares the clock of a group of its machine."""
    return _share_system_clock(group[0], session) or all(share_session(one, session) for one in group)


def _share_system_clock(session: Session, other: Session) -> bool:
    if session.system_clock_ns is None or other.system_clock_ns is None:
        return False
    if session.utc_epoch_ns is None or other.utc_epoch_ns is None:
        return False  # containers may have system clocks of their own
    lead = (session.utc_epoch_ns - session.system_clock_ns) - (other.utc_epoch_ns - other.system_clock_ns)
    return abs(lead) < _ONE_CLOCK_NS


def _find_utc_lead(sessions: Sequence[Session], group: list[int]) -> int | None:
    """Return the median of UTC minus system clock of the group's reports; None for a single report."""
    leads = [
        session.utc_epoch_ns - session.system_clock_ns
        for session in (sessions[row] for row in group)
        if session.utc_epoch_ns is not None and session.system_clock_ns is not None
    ]
    return median_low(leads) if len(group) > 1 and leads else None
