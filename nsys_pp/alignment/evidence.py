"""Evidence of lines between a domain and a timeline: compiled, or by `find_near` and `pair_events`, which define it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.lines import Line, list_lines
from nsys_pp.alignment.near import WEIGHING, Comparison, Near, find_near
from nsys_pp.alignment.pairs import MAX_CONTRADICTION, Pairs, contradict, pair_events
from nsys_pp.arrays import near_lines
from nsys_pp.arrays.members import list_members, mark_members
from nsys_pp.arrays.near_finder import NearFinder
from nsys_pp.arrays.near_lines import ContradictingPoints, LineStarts, LineWeights
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

NEAR_NS = 150_000.0
"""Tolerance of pairs by a first line, if it is not known better."""

_MAX_STARTS = 3  # pairs of channels that a fit begins with


class Start(Struct, frozen=True, kw_only=True):
    """A first line, and the operations that a fit begins with.

    Attributes:
        line: The line.
        evidence: Its evidence, of operations within `NEAR_NS`.
        sharpest: Rows of the events and residuals (ns) of pairs of channels with many operations in common and little scatter, the best
            pair of channels first.
    """

    line: Line
    evidence: float
    sharpest: Sequence[tuple[Int64s, Floats]]


def pair_by_line(comparison: Comparison, line: Line, scatters_ns: Sequence[float]) -> Pairs:
    """Pair the events within `SKEW_NS` of operations by a line, with the scatter that explains them best."""
    finder = comparison.finder
    if isinstance(finder, NearFinder):
        found = [_pair_compiled(comparison, finder, line, scatter) for scatter in scatters_ns]
    else:
        near = find_near(comparison, line, SKEW_NS)
        found = [pair_events(comparison, near, scatter) for scatter in scatters_ns]
    return max(found, key=lambda pairs: pairs.evidence)


def _pair_compiled(comparison: Comparison, finder: NearFinder, line: Line, scatter_ns: float) -> Pairs:
    found = finder.weigh((line.offset_ns, line.rate, line.center_ns), SKEW_NS, SKEW_NS, scatter_ns, starts=0)
    return Pairs(
        event_row=found.point,
        reference_row=found.other,
        scatter_ns=found.scatter,
        evidence=found.evidence + contradict(comparison, found.predicted, found.channels),
        exchange_evidence=found.exchange_evidence,
        sharpest_ns=found.sharpest,
    )


def weigh_start(comparison: Comparison, line: Line, *, within_ns: float = NEAR_NS) -> Start:
    """Weigh a line roughly, by operations within some distance, and list the pairs a fit begins with."""
    finder = comparison.finder
    if not isinstance(finder, NearFinder):
        near = find_near(comparison, line, within_ns)
        rows = [np.flatnonzero(near.link == link) for link in _list_sharpest(near)]
        return Start(
            line=line,
            evidence=pair_events(comparison, near, within_ns / 3).evidence,
            sharpest=[(near.event_row[of_link], near.residual_ns[of_link]) for of_link in rows],
        )
    found = finder.weigh(
        (line.offset_ns, line.rate, line.center_ns), within_ns, SKEW_NS, within_ns / 3, starts=_MAX_STARTS
    )
    return Start(
        line=line,
        evidence=found.evidence + contradict(comparison, found.predicted, found.channels),
        sharpest=found.starts,
    )


def weigh_lines(comparison: Comparison, lines: Floats, scatters_ns: Sequence[float]) -> LineWeights:
    """Weigh lines by the events within `SKEW_NS` of operations, with each of the scatters: as `pair_by_line`.

    Args:
        comparison: Events and operations.
        lines: Offset, rate and center of each, in columns.
        scatters_ns: Expected scatters of the ends of one operation.
    """
    finder = comparison.finder
    if isinstance(finder, NearFinder):
        tested = list_tested(comparison)
        return near_lines.weigh_lines(finder, lines, SKEW_NS, SKEW_NS, np.array(scatters_ns), tested=tested)
    pairs = [
        pair_by_line(comparison, line, (scatter,)) for line in list_lines(lines) for scatter in scatters_ns
    ]
    columns = (
        [getattr(one, name) for one in pairs] for name in ("evidence", "exchange_evidence", "sharpest_ns")
    )
    evidence, exchange, sharpest = (np.array(values).reshape(len(lines), -1) for values in columns)
    return LineWeights(evidence=evidence, exchange_evidence=exchange, sharpest=sharpest)


def list_starts(comparison: Comparison, lines: Floats, *, within_ns: float = NEAR_NS) -> LineStarts:
    """Weigh lines roughly, and list the pairs that a fit of each begins with: as `weigh_start`.

    Args:
        comparison: Events and operations.
        lines: Offset, rate and center of each, in columns.
        within_ns: Largest distance of pairs.

    Returns:
        The starts; `point` has rows of the events.
    """
    finder = comparison.finder
    if isinstance(finder, NearFinder):
        tested = list_tested(comparison)
        return near_lines.list_starts(
            finder, lines, within_ns, SKEW_NS, within_ns / 3, _MAX_STARTS, tested=tested
        )
    starts = [weigh_start(comparison, line, within_ns=within_ns) for line in list_lines(lines)]
    lists = [
        (*start.sharpest, *[(np.zeros(0, dtype=np.int64), np.zeros(0))] * (_MAX_STARTS - len(start.sharpest)))
        for start in starts
    ]
    pairs = [pair for of_line in lists for pair in of_line]
    bounds = np.append(0, np.cumsum([len(rows) for rows, _ in pairs], dtype=np.int64))
    return LineStarts(
        lines=lines,
        evidence=np.array([start.evidence for start in starts]),
        bounds=bounds[np.arange(len(lines))[:, None] * _MAX_STARTS + np.arange(_MAX_STARTS + 1)],
        point=np.concatenate([np.zeros(0, dtype=np.int64), *(rows for rows, _ in pairs)]),
        residual=np.concatenate([np.zeros(0), *(residual_ns for _, residual_ns in pairs)]),
    )


def list_tested(comparison: Comparison) -> ContradictingPoints | None:
    """List the events that `contradict` tests, by key; None without any."""
    if not comparison.has_communicator:
        return None
    events, keys = comparison.events, list_members(comparison.reference.key)
    rows = np.flatnonzero((events.has_communicator > 0) & ~events.is_message & mark_members(events.key, keys))
    section = np.searchsorted(keys, events.key[rows])
    order = np.argsort(section, kind="stable")
    return ContradictingPoints(
        point=rows[order],
        bounds=np.searchsorted(section[order], np.arange(len(keys) + 1)),
        most=MAX_CONTRADICTION,
    )


def _list_sharpest(near: Near) -> list[int]:
    """List the pairs of channels with many operations in common and little scatter, the best first."""
    count = near.count.astype(np.float64)
    mean = np.bincount(near.link, near.residual_ns, len(count)) / count
    spread = np.sqrt(np.maximum(near.squares / count - mean**2, 0.0))
    spread[count < WEIGHING.min_sharp] = WEIGHING.wide
    merit = np.bincount(near.link, near.weight[near.link], len(count)) / (spread + WEIGHING.first_scatter)
    best: list[int] = np.argsort(-merit, kind="stable")[:_MAX_STARTS].tolist()
    return best
