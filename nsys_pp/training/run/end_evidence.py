"""Evidence that sends and receives belong together: how closely they end, compared with chance.

The kernels of a message end together, but for a constant (the error of the clocks, or the transfer of a buffered
message) and some microseconds. Sends and receives of different messages end together by chance only, or nearly, if
lanes work in step. The evidence of a hypothesis is the logarithm of a ratio of likelihoods: messages whose ends are
scattered about a constant, a part of them anywhere, against messages whose ends are anywhere in a window. Two
hypotheses with nearly the same evidence explain the messages equally well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.order import order_rows
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
_FACTORS = 32  # likelihoods whose product is a double: each is less than 10^5 times that of chance
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
    reaches_ns: Sequence[Floats],
    transfer_ns: Floats,
    share: float = MOST,
    with_contrast: bool = True,
) -> list[Evidence]:
    """Compute the evidence of hypotheses: from the ends of both kernels or, if better, from the start of the send.

    The kernel of a buffered send ends at once; together with a receive, in one kernel, it ends at any time. The receive
    ends a constant time after the start of the send, if it waited for it; later receives are not evidence.

    Args:
        hypothesis: Index of the hypothesis of each pair.
        times: Of each pair.
        waits: Whether sends of each hypothesis wait for their receives.
        reaches_ns: Greatest distance of ends, for each hypothesis; infinite: any. Each reach has its own evidence.
        transfer_ns: Longest transfer of a buffered message, for each hypothesis.
        share: Share of the pairs that belong together at least, if the hypothesis is true.
        with_contrast: As in `score_ends`.

    Returns:
        The evidence for each reach.
    """
    has_waited = times.receive_start < times.send_end
    together = waits[hypothesis] | has_waited
    by_end = score_ends(
        hypothesis[together],
        (times.receive_end - times.send_end)[together],
        [(-reach_ns, reach_ns + transfer_ns * ~waits) for reach_ns in reaches_ns],
        share=share,
        with_contrast=with_contrast,
    )
    before = times.receive_start < times.send_start
    by_start = score_ends(
        hypothesis[before],
        (times.receive_end - times.send_start)[before],
        [(-reach_ns, reach_ns + transfer_ns) for reach_ns in reaches_ns],
        share=share,
        with_contrast=with_contrast,
    )
    return [_choose_better(*both) for both in zip(by_end, by_start, strict=True)]


def _choose_better(by_end: Evidence, by_start: Evidence) -> Evidence:
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
    longest, least = _find_quantiles(group, end - start, (0.9, 0.0), size)
    order = order_rows(group, start)
    is_later = np.diff(group[order], prepend=-1) == 0
    interval = np.diff(start[order], prepend=0)[is_later]
    (short,) = _find_quantiles(group[order][is_later], interval, (_SHORT,), size)
    return longest > 2 * least + SKEW_NS, SOON * short.astype(np.float64)


def _find_quantiles(group: Int64s, values: Int64s, shares: Sequence[float], size: int) -> list[Int64s]:
    """Find quantiles of the values of each group; 0 without values."""
    count = np.bincount(group, minlength=size)
    first = np.cumsum(count) - count
    ordered = np.append(_sort_in_groups(group, values, count), 0)
    positions = [first + (share * np.maximum(count - 1, 0)).astype(np.int64) for share in shares]
    return [np.where(count > 0, ordered[np.minimum(at, len(values))], 0) for at in positions]


def score_ends(
    hypothesis: Int64s,
    apart_ns: Int64s,
    ranges_ns: Sequence[tuple[Floats, Floats]],
    *,
    share: float = MOST,
    with_contrast: bool = True,
) -> list[Evidence]:
    """Compute the evidence of hypotheses from one distance of each message, constant but for some scatter.

    Args:
        hypothesis: Index of the hypothesis of each distance.
        apart_ns: The distance.
        ranges_ns: Least and greatest constant of each hypothesis; one or more ranges.
        share: As in `score_pairs`.
        with_contrast: Compute `contrast` for the first range, which takes as long as the rest; for others it is 0.

    Returns:
        The evidence for each range.
    """
    size = len(ranges_ns[0][0])
    count = np.bincount(hypothesis, minlength=size)
    group = np.repeat(np.arange(size), count)
    apart = _sort_in_groups(hypothesis, apart_ns, count).astype(np.float64)
    best_ns = _find_centers(group, apart, count, share)
    fits: list[_Fit] = []
    for least_ns, most_ns in ranges_ns:
        center = np.clip(best_ns, least_ns, most_ns)
        if not fits:
            fits.append(_fit_constants(group, apart, center, with_contrast=with_contrast))
            continue
        # most constants are inside of all ranges
        changed = np.flatnonzero((center != fits[0].center_ns) & (count > 0))
        number = np.full(size, -1)
        number[changed] = np.arange(len(changed))
        of_group = number[group]
        own = of_group >= 0
        fit = _fit_constants(of_group[own], apart[own], center[changed], with_contrast=False)
        fits.append(fits[0].replace(changed, fit, center))
    return [
        _rate_fit(fit, count, most_ns - least_ns, with_contrast=with_contrast and fit is fits[0])
        for fit, (least_ns, most_ns) in zip(fits, ranges_ns, strict=True)
    ]


class _Fit(Struct, frozen=True, kw_only=True):
    """Likelihoods of constants, for each hypothesis.

    Attributes:
        center_ns: The constant.
        near: Likelihood of ends near the constant.
        wide: The same, scattered more widely; 0 where it was not computed.
        together: Messages whose ends are apart by nearly the constant.
    """

    center_ns: Floats
    near: Floats
    wide: Floats
    together: Int64s

    def replace(self, changed: Int64s, fit: _Fit, center_ns: Floats) -> _Fit:
        """Return the same with other constants, some of them equal."""
        near, wide, together = self.near.copy(), self.wide.copy(), self.together.copy()
        near[changed], wide[changed], together[changed] = fit.near, fit.wide, fit.together
        return _Fit(center_ns=center_ns, near=near, wide=wide, together=together)


def _fit_constants(group: Int64s, apart: Floats, center_ns: Floats, *, with_contrast: bool) -> _Fit:
    """Compute the likelihoods of the constant of each group."""
    size = len(center_ns)
    off = np.abs(apart - center_ns[group])
    return _Fit(
        center_ns=center_ns,
        near=_find_likeliest(group, off, size, _SCALES_NS.tolist()),
        wide=_find_likeliest(group, off, size, _WIDE_SCALES_NS.tolist()) if with_contrast else np.zeros(size),
        together=np.bincount(group, off <= SKEW_NS, size).astype(np.int64),
    )


def _rate_fit(fit: _Fit, count: Int64s, range_ns: Floats, *, with_contrast: bool) -> Evidence:
    """Compare the likelihoods of constants with the likelihoods of chance and of a wider scatter."""
    # the constant is fitted: of all constants in its range, one fits best by chance
    fitted = np.log1p(np.minimum(range_ns, _WIDEST_NS) / _SCALES_NS[0])
    contrast = np.where(count > 0, fit.near - np.maximum(fit.wide, 0.0), 0.0)
    return Evidence(
        score=np.where(count > 0, fit.near - fitted, 0.0),
        contrast=contrast if with_contrast else np.zeros(len(count)),
        center_ns=fit.center_ns,
        count=count,
        together=fit.together,
    )


def _sort_in_groups(group: Int64s, values: Int64s, count: Int64s) -> Int64s:
    """Sort the values of each group, groups ascending; `count` has the number of values of each group."""
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * len(count) >= _HALF_OF_INT64:
        return values[np.lexsort((values, group))]
    # one number instead of two keys: several times as fast; and rows are mostly by group, which a stable sort recognises
    keys = np.sort(group * span + (values - least), kind="stable")
    return keys - np.repeat(np.arange(len(count)) * span, count) + least


def _find_likeliest(group: Int64s, off_ns: Floats, size: int, scales_ns: Sequence[float]) -> Floats:
    """Sum the logarithms of likelihoods of each group, for the likeliest scale and share of messages that end together.

    Args:
        group: Ascending.
        off_ns: Distance of each message from the constant of its group.
        size: Number of groups.
        scales_ns: Each twice the one before it.
    """
    count = np.bincount(group, minlength=size)
    block_count = -(-count // _FACTORS)
    block = np.arange(block_count.sum()) - np.repeat(np.cumsum(block_count) - block_count, block_count)
    first = np.repeat(np.cumsum(count) - count, block_count) + _FACTORS * block
    group_of_block = np.repeat(np.arange(size), block_count)
    best = np.full(size, -np.inf)
    scale_ns = scales_ns[-1]
    density = np.exp(off_ns * (-1 / scale_ns))
    likelihood = np.empty_like(density)
    for _ in scales_ns:
        for share in _SHARES:
            # a logarithm takes longer than the multiplications that it replaces; the constant factor is taken out of each
            np.multiply(density, share / (1 - share) * WINDOW_NS / (2 * scale_ns), out=likelihood)
            likelihood += 1
            logs = np.log(np.multiply.reduceat(likelihood, first)) if len(first) else np.zeros(0)
            of_group = np.bincount(group_of_block, logs, size) + count * np.log(1 - share)
            np.maximum(best, of_group, out=best)
        scale_ns /= 2
        density *= density  # of half the scale
    return best


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
