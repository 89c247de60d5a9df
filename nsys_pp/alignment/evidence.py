"""Evidence of lines between a domain and a timeline: compiled, or by `find_near` and `pair_events`, which define it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.near import WEIGHING, Comparison, Near, find_near
from nsys_pp.alignment.pairs import Pairs, contradict, pair_events
from nsys_pp.arrays.near_finder import NearFinder
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


def _list_sharpest(near: Near) -> list[int]:
    """List the pairs of channels with many operations in common and little scatter, the best first."""
    count = near.count.astype(np.float64)
    mean = np.bincount(near.link, near.residual_ns, len(count)) / count
    spread = np.sqrt(np.maximum(near.squares / count - mean**2, 0.0))
    spread[count < WEIGHING.min_sharp] = WEIGHING.wide
    merit = np.bincount(near.link, near.weight[near.link], len(count)) / (spread + WEIGHING.first_scatter)
    best: list[int] = np.argsort(-merit, kind="stable")[:_MAX_STARTS].tolist()
    return best
