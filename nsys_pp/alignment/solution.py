"""Clocks of all reports from the matched events: offsets, drifts, and how far each can be wrong.

A message ends on its receiver after it began on its sender.
That holds whether or not the two kernels overlap (a small message is sent from a buffer, and its
send may end before the receive begins: NVIDIA/nccl#1369). So a message from A to B only bounds how
far B's clock may be moved back relative to A's, and one from B to A how far forward. For clocks that
share no collective there is no tighter bound.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.choice import MAX_SESSION_DIFFERENCE_NS
from nsys_pp.alignment.collectives import Matches
from nsys_pp.alignment.events import COLLECTIVE, MPI, RECEIVE, SEND, Events, Guess, mark_shared
from nsys_pp.alignment.fit import Fit, find_groups, fit_clocks
from nsys_pp.alignment.near import NEAR_NS, TOGETHER_NS
from nsys_pp.arrays.columns import find_distinct, list_distinct
from nsys_pp.arrays.search import list_groups
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.units import NS_PER_S

_MIN_ENDS = 8  # messages between two groups whose ends agree


def _compare_ends(sender: Int64s, receiver: Int64s, apart_ns: Floats, group_count: int) -> Floats:
    """Bound the offset of each pair of groups by the ends of their messages.

    Infinite where few of them agree. An end apart of NaN does not count: the send did not wait.
    """
    width = np.full((group_count, group_count), np.inf)
    low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)
    pair = np.where(np.isnan(apart_ns) | (low == high), -1, low * group_count + high)
    for number in list_distinct(pair[pair >= 0]).tolist():
        distance = np.abs(apart_ns[pair == number])
        largest = float(np.quantile(distance, 0.95))
        if len(distance) >= _MIN_ENDS and largest <= TOGETHER_NS:
            one, other = divmod(number, group_count)
            width[one, other] = width[other, one] = 2 * largest
    return width


_MAX_SLEW = 100e-6  # change of a clock's rate in a capture, as by NTP
# what the ends of all collectives of a rank may be later than those of others: residuals do not show it
_COMMON_LAG_NS = 10_000


def bound_error(residual: Floats, pooled: float, spread: float, count: int, message_bound: float) -> float:
    """Bound the error of a clock: scatter and common lag of its ends, error of the fit, bound by messages."""
    scatter = max(float(np.quantile(residual, 0.95)) if len(residual) else 0.0, pooled)
    if count < 3:
        scatter = max(scatter, NEAR_NS / 2)
    small_sample = 1 + 3 / max(count, 1)  # residuals of few operations underestimate their scatter
    return 2 * scatter * min(small_sample, 2.0) + 3 * spread + message_bound + _COMMON_LAG_NS


def bound_slew(ends: Floats, all_ends: Floats) -> float:
    """Bound the distance of a clock from a straight line, by the longest times between shared operations.

    Before and after them.

    Args:
        ends: Ends of the shared operations of a clock, one or more.
        all_ends: Ends of all its operations.

    >>> shared = np.array([0.0, 20e6, 30e6])
    >>> bound_slew(shared, shared), bound_slew(shared, np.array([0.0, 20e6, 30e6, 50e6]))
    (1000.0, 2000.0)
    """
    ordered = np.sort(ends)
    between = float(np.diff(ordered).max(initial=0.0)) / 2
    return _MAX_SLEW * max(between, float(ordered[0] - all_ends.min()), float(all_ends.max() - ordered[-1]))


def bound_groups(
    clock: Int64s,
    instance: Int64s,
    kind: Int64s,
    start_times: Floats,
    ended: Floats,
    is_buffered: Bools,
    group: Int64s,
) -> Floats:
    """Bound the offset of each group of clocks from group 0, the largest, by the messages between groups.

    Where the ends of many messages agree to microseconds, their kernels waited for each other, and ended
    together.

    Args:
        clock: Clock of each event.
        instance: Operation of each event.
        kind: Kind of each event.
        start_times: Start of each event, by the current corrections.
        ended: End of each event, likewise.
        is_buffered: Whether a send did not wait for its receive.
        group: Group of each clock.

    Returns:
        Bound of each group in ns: 0 for group 0, infinite where messages do not go both ways, and their ends
            do not agree.
    """
    sends, receives = np.flatnonzero(kind == SEND), np.flatnonzero(kind == RECEIVE)
    order = sends[np.argsort(instance[sends], kind="stable")]
    low = np.searchsorted(instance[order], instance[receives])
    single = np.searchsorted(instance[order], instance[receives], side="right") - low == 1
    send, receive = order[low[single]], receives[single]
    sender, receiver = group[clock[send]], group[clock[receive]]
    count = int(group.max(initial=0)) + 1
    slack = np.full((count, count), np.inf)
    np.minimum.at(slack, (sender, receiver), np.maximum(ended[receive] - start_times[send], 0.0))
    apart_ns = np.where(is_buffered[send], np.nan, ended[receive] - ended[send])
    width = np.minimum(np.maximum(slack, slack.T), _compare_ends(sender, receiver, apart_ns, count))
    bound = np.full(count, np.inf)
    bound[0] = 0.0
    while True:
        through = np.minimum(bound, (bound[:, np.newaxis] + width).min(axis=0))
        if (through == bound).all():
            return bound
        bound = through


_MESSAGE_NOISE = 10.0  # noise of the ends of a send and its receive, relative to those of a collective
_BUFFERED_NOISE = 100.0  # the same, of a send that left from a buffer: the transfer is between the ends


class Solution(Struct):
    """Corrections of all domains: `offset_ns + drift * seconds since center_ns`.

    Times are since the origin of `Events`.
    """

    offset_ns: Floats
    drift: Floats  # ns per second
    center_ns: float
    bound_ns: Floats  # infinite where unknown
    group: Int64s
    rows: list[dict[str, object]]  # of `CLOCKS`


def solve_clocks(guess: Guess, events: Events, matches: Matches, mode: str) -> Solution:
    """Solve the corrections of all domains, group by group.

    Args:
        guess: First guess of all clocks.
        events: Events of all domains.
        matches: Events matched to operations.
        mode: Clock mode of `nsys_pp.alignment.clocks.align_clocks`.

    Returns:
        The corrections and rows of `CLOCKS`; domains that share no operation keep a correction of 0.
    """
    count = len(guess.domains)
    rows = np.flatnonzero(matches.instance >= 0)
    shared = rows[mark_shared(matches.instance[rows], events.domain[rows])]
    solution = Solution(
        offset_ns=np.zeros(count),
        drift=np.zeros(count),
        center_ns=float(np.median(events.end)) if len(events) else 0.0,
        bound_ns=np.full(count, np.inf),
        group=matches.group.copy(),
        rows=[
            {
                "machine": domain.machine,
                "reports": list(domain.reports),
                "source": "UTC" if domain.is_utc and mode != "none" else "nothing",
                "residual_median_ns": None,
                "residual_p95_ns": None,
                **dict.fromkeys(("collective_count", "mpi_count", "message_count"), 0),
            }
            for domain in guess.domains
        ],
    )
    for group in list_distinct(matches.group).tolist():
        members = np.flatnonzero(matches.group == group)
        if len(members) > 1:
            _solve_group(solution, guess, events, matches, members, shared)
        elif count == 1:
            solution.rows[members[0]]["source"], solution.bound_ns[members] = "alone", 0.0
    solution.bound_ns += np.round([distances.any_ns for distances in matches.rival_distances])
    if mode == "collectives":
        _join_by_machine(solution, guess)
        _limit_by_machine(solution, guess, events, matches)
    for number, (row, bound) in enumerate(zip(solution.rows, solution.bound_ns.tolist(), strict=True)):
        row |= {
            "group": int(solution.group[number]),
            "offset_ns": round(solution.offset_ns[number]),
            "drift_ppm": round(-solution.drift[number] / 1_000, 6) + 0.0,
            "bound_ns": round(bound) if np.isfinite(bound) else None,
        }
    return solution


def _join_by_machine(solution: Solution, guess: Guess) -> None:
    """Join groups of clocks that have a machine in common: its sessions have one physical clock.

    They differ by no more than the error of their recorded UTC, so the smaller group is moved to the sessions
    of the larger one, and its bounds are wider by this error.
    """
    groups = solution.group
    machines = np.array([domain.machine for domain in guess.domains])
    sizes = np.bincount(groups)
    for group in np.argsort(sizes[list_distinct(groups)], kind="stable").tolist():
        members = np.flatnonzero(groups == group)
        related = np.flatnonzero(np.isin(machines, machines[members]) & (groups != group))
        if not len(members) or not len(related):
            continue
        larger = max(set(groups[related].tolist()), key=lambda other: (sizes[other], -other))
        pairs = [
            (member, other)
            for member in members.tolist()
            for other in np.flatnonzero((groups == larger) & (machines == machines[member])).tolist()
        ]
        _move_to_sessions(solution, members, pairs)
        if len(members) == 1:
            solution.rows[members[0]]["source"], solution.bound_ns[members] = "same machine", 0.0
        least = min(float(solution.bound_ns[other]) for _, other in pairs)
        solution.bound_ns[members] += least + MAX_SESSION_DIFFERENCE_NS
        groups[members] = larger
        sizes[larger] += len(members)
        sizes[group] = 0


def _move_to_sessions(solution: Solution, members: Int64s, pairs: list[tuple[int, int]]) -> None:
    """Move a group of clocks to the sessions of their machines in another group.

    The clocks of a group keep their relation, except where a machine would then have two sessions that are
    farther apart than the error of UTC: sessions of one machine are more certain than operations that may be
    wrong by a micro-batch.

    Args:
        solution: The corrections, changed in place.
        members: The clocks that move.
        pairs: Clocks that move, each with a session of its machine in the other group.
    """
    own, others = np.array(pairs).T
    apart_ns = solution.offset_ns[others] - solution.offset_ns[own]
    apart_drift = solution.drift[others] - solution.drift[own]
    solution.offset_ns[members] += np.median(apart_ns)
    solution.drift[members] += np.median(apart_drift)
    left_ns = apart_ns - np.median(apart_ns)
    for member in list_distinct(own).tolist():
        is_member = own == member
        if np.abs(left_ns[is_member]).min() > MAX_SESSION_DIFFERENCE_NS:
            solution.offset_ns[member] += np.median(left_ns[is_member])
            solution.drift[member] += np.median(apart_drift[is_member] - np.median(apart_drift))


def _limit_by_machine(solution: Solution, guess: Guess, events: Events, matches: Matches) -> None:
    """Limit the bounds of the sessions of a machine by the best known of them.

    They have one physical clock, and their recorded UTC differs by no more than its error: the true
    correction of each is within this error of the true correction of the others, except where operations
    speak for a step of UTC between them.
    """
    times = np.array([events.start.min(), events.end.max()] if len(events) else [0.0, 0.0])
    seconds = (times - solution.center_ns) / NS_PER_S
    machines = np.array([domain.machine for domain in guess.domains])
    groups, bounds = solution.group, solution.bound_ns.copy()
    is_utc = np.array([domain.is_utc for domain in guess.domains])
    for member in np.flatnonzero(is_utc).tolist():
        is_other = (machines == machines[member]) & (groups == groups[member]) & is_utc & np.isfinite(bounds)
        is_other[member] = False
        others = np.flatnonzero(is_other)
        if not len(others):
            continue
        offset_ns = solution.offset_ns[others] - solution.offset_ns[member]
        drift = solution.drift[others] - solution.drift[member]
        distance_ns = np.abs(offset_ns[:, None] + drift[:, None] * seconds).max(axis=1)
        limit = float((bounds[others] + distance_ns).min()) + MAX_SESSION_DIFFERENCE_NS
        limit = max(limit, matches.rival_distances[member].stepped_ns)
        solution.bound_ns[member] = min(bounds[member], np.round(limit))


def _solve_group(
    solution: Solution, guess: Guess, events: Events, matches: Matches, members: Int64s, shared: Int64s
) -> None:
    number_of = np.full(len(guess.domains), -1, dtype=np.int64)
    number_of[members] = np.arange(len(members))
    rows = shared[number_of[events.domain[shared]] >= 0]
    shared_events = events.select(rows)
    clock = number_of[shared_events.domain]
    instance = find_distinct(matches.instance[rows])[1]
    machines = [guess.domains[member].machine for member in members.tolist()]
    start = np.empty(len(shared_events))
    for member, own in zip(members.tolist(), list_groups(clock, len(members)), strict=True):
        start[own] = matches.lines[member].at(shared_events.end[own])
    is_buffered = np.bincount(instance, shared_events.is_buffered) > 0  # by operation
    noise = np.where(shared_events.is_message, _MESSAGE_NOISE, 1.0)
    fit = fit_clocks(
        shared_events.end,
        clock,
        instance,
        np.where(is_buffered[instance], _BUFFERED_NOISE, noise),
        np.unique(machines, return_inverse=True)[1],
        start,
    )
    at_center = fit.offset_ns + fit.drift * (solution.center_ns - fit.center_ns) / NS_PER_S
    is_utc = np.array([guess.domains[member].is_utc for member in members.tolist()])
    # Only differences of offsets are observable: the median machine keeps its UTC.
    gauge = float(np.quantile(at_center[is_utc] if is_utc.any() else at_center, 0.5, method="lower"))
    solution.offset_ns[members] = at_center - gauge
    solution.drift[members] = fit.drift
    change_rate(solution, members, -float(np.median(fit.drift)))
    _describe_group(solution, fit, events, shared_events, clock, instance, members)


def _describe_group(
    solution: Solution,
    fit: Fit,
    events: Events,
    shared_events: Events,
    clock: Int64s,
    instance: Int64s,
    members: Int64s,
) -> None:
    is_message = shared_events.is_message
    corrected = (
        shared_events.end
        + fit.offset_ns[clock]
        + fit.drift[clock] * (shared_events.end - fit.center_ns) / NS_PER_S
    )
    start_times = shared_events.start + corrected - shared_events.end
    tied = find_groups(clock[~is_message], instance[~is_message], len(members))
    message_bounds = bound_groups(
        clock, instance, shared_events.kind, start_times, corrected, shared_events.is_buffered, tied
    )
    direct_rows = ~is_message if not is_message.all() else is_message
    pooled = float(np.quantile(np.abs(fit.residual_ns[direct_rows]), 0.95)) if direct_rows.any() else 0.0
    sources = {
        "collectives": shared_events.kind == COLLECTIVE,
        "MPI": shared_events.kind == MPI,
        "send/receive": is_message,
    }
    width = int(instance.max(initial=0)) + 1
    operations = {
        name: np.bincount(list_distinct((clock * width + instance)[kind]) // width, minlength=len(members))
        for name, kind in sources.items()
    }
    all_ends = list_groups(events.domain, len(solution.rows))
    for number, (member, rows) in enumerate(
        zip(members.tolist(), list_groups(clock, len(members)), strict=True)
    ):
        counts = {name: int(count[number]) for name, count in operations.items()}
        direct = rows[~is_message[rows]]
        residual = np.abs(fit.residual_ns[direct if len(direct) else rows])
        ends = shared_events.end[rows]
        limits = np.array([ends.min(), ends.max()]) if len(rows) else np.zeros(0)
        spread = fit.sigma_ns(number, limits).max(initial=0.0) if len(rows) else np.inf
        change = fit.change_ns(number, limits).max(initial=0.0)
        slew = bound_slew(ends, events.end[all_ends[member]]) if len(rows) else 0.0
        solution.bound_ns[member] = np.round(
            bound_error(
                residual,
                pooled,
                float(spread),
                counts["collectives"] + counts["MPI"],
                float(message_bounds[tied[number]] + change) + slew,
            )
        )
        solution.rows[member] |= {
            "source": next((name for name, n in counts.items() if n), "UTC"),
            "residual_median_ns": round(float(np.median(residual))) if len(residual) else None,
            "residual_p95_ns": round(float(np.quantile(residual, 0.95))) if len(residual) else None,
            "collective_count": counts["collectives"],
            "mpi_count": counts["MPI"],
            "message_count": counts["send/receive"],
        }


def change_rate(solution: Solution, members: Int64s, rate: float) -> None:
    """Speed up the common clock of the members by `rate` ns per second, about the center.

    Offsets scale as well: clocks with different offsets reach the center at different readings.
    """
    solution.offset_ns[members] *= 1 + rate / NS_PER_S
    solution.drift[members] += rate + rate * solution.drift[members] / NS_PER_S


def override_offset(solution: Solution, number: int, offset_ns: int) -> None:
    """Replace the correction of a domain by an offset that the user specified."""
    solution.offset_ns[number], solution.drift[number] = offset_ns, 0.0
    unknown = dict.fromkeys(("bound_ns", "residual_median_ns", "residual_p95_ns"))
    solution.rows[number] |= {"source": "given", "offset_ns": offset_ns, "drift_ppm": 0.0, **unknown}
