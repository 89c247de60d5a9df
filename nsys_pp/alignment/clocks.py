"""Many clocks, one: where each report stands on the trace's clock, and how well that is known.

The trace's clock is UTC as most machines recorded it, as far as their operations tie them together
(`nsys_pp.alignment.collectives`, `nsys_pp.alignment.fit`). It runs at the pace of the clock that runs
fastest, so that every other clock is only ever moved forward: a report's times are mapped piece by
piece, and a step back between two pieces could swap the order of its events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from nsys_pp.alignment.causality import find_groups, reach_of_messages
from nsys_pp.alignment.collectives import Matches, match_events
from nsys_pp.alignment.domains import Domain, Guess, guess_clocks
from nsys_pp.alignment.events import COLLECTIVE, MPI, RECEIVE, SEND, Events, gather_events
from nsys_pp.alignment.fit import fit_clocks
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import CLOCKS, Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import Session
from nsys_pp.units import NS_PER_S

ClockMode = Literal["collectives", "utc", "none"]


_ASSUMED_SKEW_NS = 75_000.0  # of the ends of one operation, where too few were seen to measure it
_SESSIONS_APART_NS = (
    1_000_000  # how far two sessions of one machine may read its UTC apart: 0.1 ms was measured
)
_MESSAGE_NOISE = 10.0  # ends of a send and its receive say less than those of a collective
_STEP_NS = (100.0, 1_000.0)  # pieces of a drifting clock differ by a tenth of its bound, within these


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Where all reports stand.

    Attributes:
        report_clocks: From the clock of each report to that of the trace.
        clocks: `CLOCKS`.
        clock_of: Of each report: its row of `clocks`.
        zero_ns: Start of the earliest session on the trace's clock.
        is_utc: The trace's clock is UTC.
        unplaced: Reports without UTC among reports with one.
    """

    report_clocks: list[Clock]
    clocks: pl.DataFrame
    clock_of: list[int]
    zero_ns: int
    is_utc: bool
    unplaced: list[int]


@dataclass(slots=True)
class _Solution:
    """Corrections of all domains: `offset_ns + drift * seconds since center_ns` (events' origin)."""

    offset_ns: Floats
    drift: Floats  # ns a second
    center_ns: float
    rows: list[dict[str, object]]


def align_clocks(
    sessions: Sequence[Session],
    anchors: Sequence[pl.DataFrame],
    *,
    mode: ClockMode = "collectives",
    given_ns: Mapping[str, int] | None = None,
) -> Alignment:
    """Put all reports on one clock.

    Args:
        sessions: Of each report; sessions of one machine have the same `machine`.
        anchors: `ANCHORS` of each report.
        mode: "collectives" refines UTC by operations that ranks share; "utc" believes what was
            recorded; "none" lets all sessions begin at one time.
        given_ns: By machine: what is added to its UTC, whatever else is known.

    Returns:
        The alignment; its `clocks` say how good it is.
    """
    guess = guess_clocks(sessions, use_utc=mode != "none")
    events = gather_events(anchors if mode == "collectives" else [], guess)
    machine = np.unique([domain.machine for domain in guess.domains], return_inverse=True)[1]
    matches = match_events(events, machine)
    solution = _solve(guess, events, matches, mode)
    for number, domain in enumerate(guess.domains):
        if given_ns and domain.machine in given_ns:
            _give(solution, number, given_ns[domain.machine])
    # only ever forward: the fastest clock is the trace's pace
    slowest = float(solution.drift.min())
    _stretch(solution, np.arange(len(guess.domains)), -slowest / (1 + slowest / NS_PER_S))
    solution.drift = np.maximum(solution.drift, 0.0)  # rounding
    report_clocks = [
        _cut(
            session.time_shift_ns,
            _find_end(session, anchors[row]),
            guess.base_ns[row] - events.origin_ns,
            guess.domain_of[row],
            solution,
            events.origin_ns,
        )
        for row, session in enumerate(sessions)
    ]
    knows_utc = [session.utc_epoch_ns is not None and mode != "none" for session in sessions]
    starts = [
        session.time_shift_ns + int(clock.offset_ns[0])
        for session, clock in zip(sessions, report_clocks, strict=True)
    ]
    return Alignment(
        report_clocks=report_clocks,
        clocks=conform(pl.DataFrame(solution.rows, schema_overrides=dict(CLOCKS)), CLOCKS),
        clock_of=guess.domain_of,
        zero_ns=min(starts),
        is_utc=any(knows_utc),
        unplaced=[row for row, known in enumerate(knows_utc) if not known and any(knows_utc)],
    )


def _solve(guess: Guess, events: Events, matches: Matches, mode: ClockMode) -> _Solution:
    count = len(guess.domains)
    shared = _shared(events, matches)
    center = float(np.median(events.end)) if len(events) else 0.0
    solution = _Solution(
        offset_ns=np.zeros(count),
        drift=np.zeros(count),
        center_ns=center,
        rows=[
            _describe(domain, mode, component)
            for domain, component in zip(guess.domains, matches.component, strict=True)
        ],
    )
    for component in np.unique(matches.component).tolist():
        members = np.flatnonzero(matches.component == component)
        if len(members) > 1:
            _solve_component(solution, guess, events, matches, members, shared)
        elif count == 1:
            solution.rows[members[0]] |= {"source": "alone", "bound_ns": 0}
    _follow_machine(solution, guess)
    return solution


def _follow_machine(solution: _Solution, guess: Guess) -> None:
    """Let a session that shares nothing stand as the others of its machine do: they have one clock."""
    known: dict[str, list[int]] = {}
    for number, domain in enumerate(guess.domains):
        if solution.rows[number]["bound_ns"] is not None:
            known.setdefault(domain.machine, []).append(number)
    for number, domain in enumerate(guess.domains):
        others = known.get(domain.machine, [])
        if solution.rows[number]["source"] != "UTC" or not others:
            continue
        middle = sorted(others, key=lambda one: float(solution.offset_ns[one]))[len(others) // 2]
        solution.offset_ns[number] = solution.offset_ns[middle]
        solution.drift[number] = solution.drift[middle]
        like = solution.rows[middle]
        bound = like["bound_ns"]
        assert isinstance(bound, int)
        solution.rows[number] |= {
            "source": "same machine",
            "component": like["component"],
            "offset_ns": like["offset_ns"],
            "drift_ppm": like["drift_ppm"],
            "bound_ns": bound + _SESSIONS_APART_NS,
        }


def _describe(domain: Domain, mode: ClockMode, component: int) -> dict[str, object]:
    return {
        "machine": domain.machine,
        "reports": list(domain.reports),
        "component": int(component),
        "source": "UTC" if domain.is_utc and mode != "none" else "nothing",
        "offset_ns": 0,
        "drift_ppm": 0.0,
        "residual_median_ns": None,
        "residual_p95_ns": None,
        "bound_ns": None,
        "collective_count": 0,
        "mpi_count": 0,
        "message_count": 0,
    }


def _shared(events: Events, matches: Matches) -> Int64s:
    """List the events of operations that more than one domain saw."""
    rows = np.flatnonzero(matches.instance >= 0)
    if not len(rows):
        return rows
    what = matches.instance[rows]
    low = np.full(int(what.max()) + 1, np.iinfo(np.int64).max)
    high = np.full(int(what.max()) + 1, -1)
    np.minimum.at(low, what, events.domain[rows])
    np.maximum.at(high, what, events.domain[rows])
    return rows[low[what] < high[what]]


def _solve_component(
    solution: _Solution, guess: Guess, events: Events, matches: Matches, members: Int64s, shared: Int64s
) -> None:
    """Fit the clocks of one component, and say how well each is known."""
    place = np.full(len(guess.domains), -1, dtype=np.int64)
    place[members] = np.arange(len(members))
    rows = shared[place[events.domain[shared]] >= 0]
    own = events.take(rows)
    clock = place[own.domain]
    what = np.unique(matches.instance[rows], return_inverse=True)[1]
    is_message = own.is_message
    machines = [guess.domains[member].machine for member in members.tolist()]
    start = np.empty(len(own))
    for number, member in enumerate(members.tolist()):
        start[clock == number] = matches.lines[member].at(own.end[clock == number])
    fit = fit_clocks(
        own.end,
        clock,
        what,
        np.where(is_message, _MESSAGE_NOISE, 1.0),
        np.unique(machines, return_inverse=True)[1],
        start,
    )
    at_center = fit.offset_ns + fit.drift * (solution.center_ns - fit.center_ns) / NS_PER_S
    is_utc = np.array([guess.domains[member].is_utc for member in members.tolist()])
    gauge = _median_of(at_center[is_utc] if is_utc.any() else at_center)
    solution.offset_ns[members] = at_center - gauge
    solution.drift[members] = fit.drift
    _stretch(solution, members, -float(np.median(fit.drift)))
    corrected = own.end + fit.offset_ns[clock] + fit.drift[clock] * (own.end - fit.center_ns) / NS_PER_S
    begun = own.start + corrected - own.end
    group = find_groups(clock[~is_message], what[~is_message], len(members))
    reach = _reach(clock, what, own.kind, begun, corrected, group)
    direct_rows = ~is_message if not is_message.all() else is_message
    pooled = float(np.quantile(np.abs(fit.residual_ns[direct_rows]), 0.95)) if direct_rows.any() else 0.0
    for number, member in enumerate(members.tolist()):
        mine = clock == number
        sources = {"collectives": own.kind == COLLECTIVE, "MPI": own.kind == MPI, "send/receive": is_message}
        counts = {name: len(np.unique(what[mine & kind])) for name, kind in sources.items()}
        direct = mine & ~is_message
        residual = np.abs(fit.residual_ns[direct if direct.any() else mine])
        ends = own.end[mine]
        spread = fit.sigma_ns(number, np.array([ends.min(), ends.max()])).max() if mine.any() else np.inf
        bound = _bound(
            residual,
            pooled,
            float(spread),
            int(counts["collectives"] + counts["MPI"]),
            float(reach[group[number]]),
        )
        solution.rows[member] |= {
            "source": next((name for name, n in counts.items() if n), "UTC"),
            "offset_ns": round(solution.offset_ns[member]),
            "drift_ppm": round(-solution.drift[member] / 1_000, 6) + 0.0,
            "residual_median_ns": round(float(np.median(residual))) if len(residual) else None,
            "residual_p95_ns": round(float(np.quantile(residual, 0.95))) if len(residual) else None,
            "bound_ns": round(bound) if np.isfinite(bound) else None,
            "collective_count": counts["collectives"],
            "mpi_count": counts["MPI"],
            "message_count": counts["send/receive"],
        }


def _stretch(solution: _Solution, members: Int64s, rate: float) -> None:
    """Let the common clock of some domains run faster by `rate` ns a second, about the center.

    Clocks that are far apart are at the center at different times of their own.
    """
    solution.offset_ns[members] *= 1 + rate / NS_PER_S
    solution.drift[members] += rate + rate * solution.drift[members] / NS_PER_S


def _median_of(values: Floats) -> float:
    """One of the middle values, so that one machine keeps its UTC."""
    return float(np.sort(values)[(len(values) - 1) // 2])


def _bound(residual: Floats, pooled: float, spread: float, count: int, reach: float) -> float:
    """How far a clock may be off: what its ends scatter, what the fit leaves open, and what messages leave open."""
    scatter = float(np.quantile(residual, 0.95)) if len(residual) else 0.0
    scatter = max(scatter, pooled)
    if count < 3:
        scatter = max(scatter, _ASSUMED_SKEW_NS)
    few = 1 + 3 / max(count, 1)  # ends that few operations fit hardly show their own scatter
    return 2 * scatter * min(few, 2.0) + 3 * spread + reach


def _reach(clock: Int64s, what: Int64s, kind: Int64s, begun: Floats, ended: Floats, group: Int64s) -> Floats:
    """How far each group of clocks may lie from the largest, by messages."""
    sends, receives = np.flatnonzero(kind == SEND), np.flatnonzero(kind == RECEIVE)
    order = sends[np.argsort(what[sends], kind="stable")]
    low = np.searchsorted(what[order], what[receives])
    high = np.searchsorted(what[order], what[receives], side="right")
    single = high - low == 1
    sender, receiver = order[low[single]], receives[single]
    return reach_of_messages(clock[sender], clock[receiver], ended[receiver] - begun[sender], group)


def _give(solution: _Solution, number: int, offset_ns: int) -> None:
    solution.offset_ns[number], solution.drift[number] = offset_ns, 0.0
    none = dict.fromkeys(("bound_ns", "residual_median_ns", "residual_p95_ns"))
    solution.rows[number] |= {"source": "given", "offset_ns": offset_ns, "drift_ppm": 0.0, **none}


def _find_end(session: Session, anchors: pl.DataFrame) -> int:
    """Return the last moment of a report that matters, on its clock."""
    last = anchors["end_ns"].max()
    if session.capture_end_ns is not None:
        return session.capture_end_ns
    return last if isinstance(last, int) else session.time_shift_ns


def _cut(
    first_ns: int, last_ns: int, base_ns: int, domain: int, solution: _Solution, origin_ns: int
) -> Clock:
    """Cut a report's time into pieces, inside each of which its clock's drift does not matter.

    Args:
        first_ns: Start of the session on the clock of its report.
        last_ns: The last moment that matters.
        base_ns: From this clock to the guessed one, less `origin_ns`.
        domain: Its clock.
        solution: All corrections.
        origin_ns: Where the solution's times count from.
    """
    drift, offset = float(solution.drift[domain]), float(solution.offset_ns[domain])
    first, last = first_ns, max(last_ns, first_ns)
    bound = solution.rows[domain]["bound_ns"]
    step = float(np.clip((bound if isinstance(bound, int) else 0) / 10, *_STEP_NS))
    count = 1 + int(drift / NS_PER_S * (last - first) / step)
    from_ns = first + np.arange(count, dtype=np.int64) * ((last - first) // count)
    middle = from_ns + (last - first) // count // 2 + base_ns
    moved = offset + drift * (middle - solution.center_ns) / NS_PER_S
    return Clock(from_ns=from_ns, offset_ns=np.round(moved).astype(np.int64) + base_ns + origin_ns)
