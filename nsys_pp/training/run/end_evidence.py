"""Evidence that sends and receives belong together: how closely they end, compared with chance.

The kernels of a message end together, but for a constant (the error of the clocks, or the transfer of a buffered
message) and some microseconds. Sends and receives of different messages end together by chance only, or nearly, if
lanes work in step. The evidence of a hypothesis is the logarithm of a ratio of likelihoods: messages whose ends are
scattered about a constant, a part of them anywhere, against messages whose ends are anywhere in a window. Two
hypotheses with nearly the same evidence explain the messages equally well.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

CLEAR = 10.0
"""A hypothesis is clear if its evidence exceeds that of all others by this much: chances of e^10 (20,000) to 1."""
SOON = 0.5
"""A transfer needs less than this share of the time of a job: after a whole job, the next stage sends its result."""
WINDOW_NS = 10_000_000
"""Ends that are not together are anywhere in this window: about the distance between messages of a lane."""
MOST = 0.5
"""Share of the messages of two routes that belong together at least, where a route has one partner."""
_SCALES_NS = 1_000.0 * 2.0 ** np.arange(7)  # mean scatter of the ends of a message: 1 to 64 us
_WIDE_SCALES_NS = _SCALES_NS[-1] * 2.0 ** np.arange(1, 6)  # of lanes that work in step: 128 us to 2 ms
_SHORT = 0.1  # quantile of the intervals between sends that stands for a short job
_WIDEST_NS = 1_000_000_000
_HALF_OF_INT64 = 1 << 62
_SHARES = (
    0.5,
    0.95,
)  # share of the messages that end together: kernels with several messages end with the last


class Evidence(Struct, frozen=True, kw_only=True):
    """Evidence of some hypotheses.

    Attributes:
        score: Logarithm of the ratio of likelihoods, in nats; 0 without messages, negative where chance explains
            them better.
        contrast: The same, compared with lanes that work in step: ends scattered more widely about a constant.
        center_ns: The constant by which receives end later.
        count: Messages of each hypothesis that were compared.
        together: Of these, the messages whose ends are apart by nearly this constant.
    """

    score: Floats
    contrast: Floats
    center_ns: Floats
    count: Int64s
    together: Int64s


class Times(Struct, frozen=True, kw_only=True):
    """Start and end of both kernels of each pair of a send and a receive."""

    send_start: Int64s
    send_end: Int64s
    receive_start: Int64s
    receive_end: Int64s


def score_pairs(
    hypothesis: Int64s,
    times: Times,
    *,
    waits: Bools,
    reach_ns: Floats,
    transfer_ns: Floats,
    share: float = MOST,
) -> Evidence:
    """Compute the evidence of hypotheses: from the ends of both kernels or, if better, from the start of the send.

    The kernel of a buffered send ends at once; together with a receive, in one kernel, it ends at any time. The receive
    ends a constant time after the start of the send, if it waited for it; later receives are not evidence.

    Args:
        hypothesis: Index of the hypothesis of each pair.
        times: Of each pair.
        waits: Whether sends of each hypothesis wait for their receives.
        reach_ns: Greatest distance of ends, for each hypothesis; infinite: any.
        transfer_ns: Longest transfer of a buffered message, for each hypothesis.
        share: Share of the pairs that belong together at least, if the hypothesis is true.
    """
    has_waited = times.receive_start < times.send_end
    together = waits[hypothesis] | has_waited
    by_end = score_ends(
        hypothesis[together],
        (times.receive_end - times.send_end)[together],
        -reach_ns,
        reach_ns + transfer_ns * ~waits,
        share=share,
    )
    before = times.receive_start < times.send_start
    by_start = score_ends(
        hypothesis[before],
        (times.receive_end - times.send_start)[before],
        -reach_ns,
        reach_ns + transfer_ns,
        share=share,
    )
    is_by_end = (by_end.score >= by_start.score) | (by_start.count == 0)
    chosen = {
        name: np.where(is_by_end, getattr(by_end, name), getattr(by_start, name))
        for name in Evidence.__struct_fields__
    }
    return Evidence(**chosen)


def describe_sends(group: Int64s, start: Int64s, end: Int64s, size: int) -> tuple[Bools, Floats]:
    """Describe groups of sends: whether they wait for their receives, and the longest transfer that is plausible.

    Args:
        group: Group of each send.
        start: Start of its kernel.
        end: End of its kernel.
        size: Number of groups.

    Returns:
        Mask of the groups with sends of different durations; `SOON` times a short interval between sends of each group,
        0 with one send.
    """
    longest, least = (_quantile(group, end - start, share, size) for share in (0.9, 0.0))
    order = np.lexsort((start, group))
    is_later = np.diff(group[order], prepend=-1) == 0
    interval = np.diff(start[order], prepend=0)[is_later]
    short = _quantile(group[order][is_later], interval, _SHORT, size).astype(np.float64)
    return longest > 2 * least + SKEW_NS, SOON * short


def _quantile(group: Int64s, values: Int64s, share: float, size: int) -> Int64s:
    """Return a quantile of the values of each group; 0 without values."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=size)
    at = np.cumsum(count) - count + (share * np.maximum(count - 1, 0)).astype(np.int64)
    return np.where(count > 0, np.append(values[order], 0)[np.minimum(at, len(values))], 0)


def score_ends(
    hypothesis: Int64s, apart_ns: Int64s, least_ns: Floats, most_ns: Floats, *, share: float = MOST
) -> Evidence:
    """Compute the evidence of hypotheses from one distance of each message, constant but for some scatter.

    Args:
        hypothesis: Index of the hypothesis of each distance.
        apart_ns: The distance.
        least_ns: Least constant of each hypothesis.
        most_ns: Greatest constant of each hypothesis.
        share: As in `score_pairs`.
    """
    size = len(least_ns)
    count = np.bincount(hypothesis, minlength=size)
    group = np.repeat(np.arange(size), count)
    apart = _sort_in_groups(hypothesis, apart_ns, count).astype(np.float64)
    center = np.clip(_find_centers(group, apart, count, share), least_ns, most_ns)
    off = np.abs(apart - center[group])
    near, wide = (
        np.max([_sum_likelihoods(group, off, size, scale) for scale in scales], axis=0)
        for scales in (_SCALES_NS, _WIDE_SCALES_NS)
    )
    # the constant is fitted: of all constants in its range, one fits best by chance
    fitted = np.log1p(np.minimum(most_ns - least_ns, _WIDEST_NS) / _SCALES_NS[0])
    return Evidence(
        score=np.where(count > 0, near - fitted, 0.0),
        contrast=np.where(count > 0, near - np.maximum(wide, 0.0), 0.0),
        center_ns=center,
        count=count,
        together=np.bincount(group, off <= SKEW_NS, size).astype(np.int64),
    )


def _sort_in_groups(group: Int64s, values: Int64s, count: Int64s) -> Int64s:
    """Sort the values of each group, groups ascending; `count` has the number of values of each group."""
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * len(count) >= _HALF_OF_INT64:
        return values[np.lexsort((values, group))]
    # one number instead of two keys: several times as fast
    keys = np.sort(group * span + (values - least))
    return keys - np.repeat(np.arange(len(count)) * span, count) + least


def _sum_likelihoods(group: Int64s, off_ns: Floats, size: int, scale_ns: float) -> Floats:
    """Sum the logarithms of likelihoods of each group, for the better share of messages that end together."""
    ratio = WINDOW_NS / (2 * scale_ns) * np.exp(-off_ns / scale_ns)
    sums = [np.bincount(group, np.log(share * ratio + (1 - share)), size) for share in _SHARES]
    return np.maximum(*sums)


def _find_centers(group: Int64s, values: Floats, count: Int64s, share: float) -> Floats:
    """Find the center of the shortest interval with more than a share of the values of each group; 0 for empty groups.

    Args:
        group: Ascending.
        values: Ascending in each group.
        count: Values of each group.
        share: Of the values.
    """
    centers = np.zeros(len(count))
    if not len(values):
        return centers
    last = np.cumsum(count) - 1
    until = np.arange(len(values)) + (count * share).astype(np.int64)[group]
    is_inside = until <= last[group]
    until = np.minimum(until, len(values) - 1)
    width = np.where(is_inside, values[until] - values, np.inf)
    least = np.minimum.reduceat(width, (np.cumsum(count) - count)[count > 0])
    shortest = np.flatnonzero(width == np.repeat(least, count[count > 0]))
    shortest = shortest[np.diff(group[shortest], prepend=-1) != 0]  # the first one of each group
    centers[count > 0] = (values[shortest] + values[until[shortest]]) / 2
    return centers
