"""Alignment of the clocks of all reports: a mapping onto the trace's clock for each, and its error bound.

The trace's clock is the median UTC of the machines that shared operations relate
(`nsys_pp.alignment.collectives`, `nsys_pp.alignment.fit`). It runs at the rate of the fastest clock, so that
offsets never decrease: a report's times are mapped piecewise, and a step back between two pieces could swap
the order of its events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.alignment.collectives import match_events
from nsys_pp.alignment.events import gather_events, guess_clocks
from nsys_pp.alignment.solution import Solution, change_rate, override_offset, solve_clocks
from nsys_pp.frames.clock import CLOCKS, Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import Session
from nsys_pp.options import ClockMode
from nsys_pp.units import NS_PER_S

# Offsets of neighbouring pieces differ by a tenth of the bound, within these limits.
_STEP_NS = (100.0, 1_000.0)


class Alignment(Struct, frozen=True, kw_only=True):
    """The common clock of all reports.

    Attributes:
        report_clocks: Mapping of each report's clock onto the trace's clock.
        clocks: `CLOCKS`.
        clock_of: Row of `clocks` of each report.
        zero_ns: Start of the earliest session on the trace's clock.
        is_utc: The trace's clock is UTC.
        without_utc: Reports without UTC, where others have one.
    """

    report_clocks: list[Clock]
    clocks: pl.DataFrame
    clock_of: list[int]
    zero_ns: int
    is_utc: bool
    without_utc: list[int]


def align_clocks(
    sessions: Sequence[Session],
    anchors: Sequence[pl.DataFrame],
    *,
    mode: ClockMode = "collectives",
    overrides_ns: Mapping[str, int] | None = None,
) -> Alignment:
    """Align the clocks of all reports.

    Args:
        sessions: Session of each report; sessions of one machine have the same `machine`.
        anchors: `ANCHORS` of each report.
        mode: "collectives" refines UTC by operations that ranks share; "utc" uses the recorded UTC;
            "none" assumes that all sessions start at the same time.
        overrides_ns: Machine -> offset to add to its UTC, instead of the computed one.

    Returns:
        The alignment; `clocks` has the error bound of each clock.
    """
    guess = guess_clocks(sessions, use_utc=mode != "none")
    events = gather_events(anchors if mode == "collectives" else [], guess)
    machine = np.unique([domain.machine for domain in guess.domains], return_inverse=True)[1]
    matches = match_events(events, machine, [domain.is_utc for domain in guess.domains])
    solution = solve_clocks(guess, events, matches, mode)
    for number, domain in enumerate(guess.domains):
        if overrides_ns and domain.machine in overrides_ns:
            override_offset(solution, number, overrides_ns[domain.machine])
    # The trace's clock runs at the rate of the fastest clock, so that no drift is negative.
    slowest = float(solution.drift.min())
    change_rate(solution, np.arange(len(guess.domains)), -slowest / (1 + slowest / NS_PER_S))
    solution.drift = np.maximum(solution.drift, 0.0)  # remove rounding errors
    report_clocks = [
        _build_clock(
            session.time_shift_ns,
            _find_end(session, anchors[row]),
            guess.base_ns[row] - events.origin_ns,
            guess.domain_of[row],
            solution,
            events.origin_ns,
        )
        for row, session in enumerate(sessions)
    ]
    has_utc = [session.utc_epoch_ns is not None and mode != "none" for session in sessions]
    starts = [
        session.time_shift_ns + int(clock.offset_ns[0])
        for session, clock in zip(sessions, report_clocks, strict=True)
    ]
    return Alignment(
        report_clocks=report_clocks,
        clocks=conform(pl.DataFrame(solution.rows, schema_overrides=dict(CLOCKS)), CLOCKS),
        clock_of=guess.domain_of,
        zero_ns=min(starts),
        is_utc=any(has_utc),
        without_utc=[row for row, has in enumerate(has_utc) if not has and any(has_utc)],
    )


def _find_end(session: Session, anchors: pl.DataFrame) -> int:
    """Return the end of a session on its clock, not before its last shared operation.

    The recorded end of some captures is.
    """
    ends = [end for end in (session.capture_end_ns, anchors["end_ns"].max()) if isinstance(end, int)]
    return max(ends, default=session.time_shift_ns)


def _build_clock(
    first_ns: int, last_ns: int, base_ns: int, domain: int, solution: Solution, origin_ns: int
) -> Clock:
    """Build the piecewise mapping of a report's clock; drift inside a piece is negligible.

    Args:
        first_ns: Start of the session on the clock of its report.
        last_ns: End of the session.
        base_ns: Offset from this clock to the guessed one, minus `origin_ns`.
        domain: Domain of the report.
        solution: Corrections of all domains.
        origin_ns: Origin of the solution's times.
    """
    drift, offset = float(solution.drift[domain]), float(solution.offset_ns[domain])
    first, last = first_ns, max(last_ns, first_ns)
    bound = solution.rows[domain]["bound_ns"]
    step = float(np.clip((bound if isinstance(bound, int) else 0) / 10, *_STEP_NS))
    count = 1 + int(drift / NS_PER_S * (last - first) / step)
    from_ns = first + np.arange(count, dtype=np.int64) * ((last - first) // count)
    middle = from_ns + (last - first) // count // 2 + base_ns
    shifted = offset + drift * (middle - solution.center_ns) / NS_PER_S
    return Clock(from_ns=from_ns, offset_ns=np.round(shifted).astype(np.int64) + base_ns + origin_ns)
