"""Error bounds of clocks, from the scatter of operations, the standard error of the fit, and messages."""

from __future__ import annotations

import numpy as np

from nsys_pp.alignment.causality import bound_groups_by_messages
from nsys_pp.alignment.events import RECEIVE, SEND
from nsys_pp.alignment.lines import find_quantile
from nsys_pp.arrays.types import Bools, Floats, Int64s

_MAX_SLEW = 100e-6  # change of a clock's rate in a capture, as by NTP
_ASSUMED_SKEW_NS = 75_000.0  # scatter of the ends of one operation, where too few operations were seen


def bound_error(residual: Floats, pooled: float, spread: float, count: int, message_bound: float) -> float:
    """Bound the error of a clock: scatter of its ends, standard error of the fit, and bound by messages."""
    scatter = find_quantile(residual, 0.95) if len(residual) else 0.0
    scatter = max(scatter, pooled)
    if count < 3:
        scatter = max(scatter, _ASSUMED_SKEW_NS)
    small_sample = 1 + 3 / max(count, 1)  # residuals of few operations underestimate their scatter
    return 2 * scatter * min(small_sample, 2.0) + 3 * spread + message_bound


def bound_slew(ends: Floats, all_ends: Floats) -> float:
    """Bound the distance of a clock from a straight line, by the longest times between shared operations, before and after them.

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
    """Bound the offset of each group of clocks from the largest group, by messages."""
    sends, receives = np.flatnonzero(kind == SEND), np.flatnonzero(kind == RECEIVE)
    order = sends[np.argsort(instance[sends], kind="stable")]
    low = np.searchsorted(instance[order], instance[receives])
    high = np.searchsorted(instance[order], instance[receives], side="right")
    single = high - low == 1
    sender, receiver = order[low[single]], receives[single]
    return bound_groups_by_messages(
        clock[sender],
        clock[receiver],
        ended[receiver] - start_times[sender],
        np.where(is_buffered[sender], np.nan, ended[receiver] - ended[sender]),
        group,
    )
