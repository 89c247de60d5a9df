"""Iterations of a device: their first and last launches, and the confidence in them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.iteration_begins import LIKE, REGULAR, find_begins, measure_difference
from nsys_pp.training.report.repetition import Launches, count_names
from nsys_pp.training.report.repetition_period import Period, find_period

_LEAST_ITERATIONS = 3
_LEAST_CONFIDENCE = 0.6
_RIGHT_OF_MANY = 0.7
"""Share of right results on communicating devices with a confidence near 1: 31 of 44 in 25 unseen simulated clusters."""
_MOST_BEFORE = 3  # iterations without the launch that begins the others


class Iterations(Struct, frozen=True, kw_only=True):
    """Iterations of a device, in order, as positions of launches."""

    begin: Int64s
    end: Int64s  # after its last launch; launches until the next iteration belong to none
    is_whole: Bools  # the capture begins or ends inside others
    score: float  # share of the names that occur equally often in each, 0 to 1
    confidence: float = 0.0  # 0 to 1

    @property
    def whole_count(self) -> int:
        """Number of whole iterations."""
        return int(self.is_whole.sum())


def find_iterations(launches: Launches, *, is_one_of_many: bool = False) -> Iterations | str:
    """Find the iterations of a device; the reason where there are none that are certain.

    Args:
        launches: Launches of the device.
        is_one_of_many: It communicates with others. Ranks of a pipeline, and evaluations, have been read wrongly more
            often than single devices, so the confidence is lower.
    """
    period = find_period(launches)
    if isinstance(period, str):
        return period
    iterations = _bound(launches, find_begins(launches, period), period)
    if iterations.whole_count < _LEAST_ITERATIONS:
        return f"launches repeat, but fewer than {_LEAST_ITERATIONS} iterations are whole"
    confidence = estimate_confidence(period, iterations.whole_count)
    if is_one_of_many:
        confidence *= _RIGHT_OF_MANY
    if confidence < _LEAST_CONFIDENCE:
        return f"launches repeat, but with a confidence of {confidence:.2f} only"
    return replace(iterations, confidence=confidence)


def estimate_confidence(period: Period, whole_count: int) -> float:
    """Estimate the probability that iterations are right, 0 to 1.

    The weights are those of a logistic regression over 4,000 random programs (tests/training/report/repeating_programs.py),
    with less confidence where a backward has no optimizer: it may be that of a micro-batch.
    """
    cut = period.cut
    is_loop = period.has_copy or period.has_graph
    if period.has_update and (is_loop or period.has_layers):
        evidence = 1.8
    elif period.has_update or (is_loop and (period.has_layers or period.has_input)):
        evidence = -1.5
    else:  # layers may have copies to the host, as those of a mixture of experts, or optimizers of their own
        evidence = -2.4 if is_loop else -3.3
    if not period.has_update:
        evidence -= 1.4 * period.is_doubtful + 1.0 * period.has_backward
    steady = cut.steady / max(int(cut.is_usual.sum()), 1)
    logit = evidence - 1.2 + 3.0 * cut.score + min(whole_count / 12, 1) + 2.1 * steady - 3.1 * cut.after
    return float(1 / (1 + np.exp(-logit)))


def _bound(launches: Launches, begin: Int64s, period: Period) -> Iterations:
    """Find the ends of iterations, and the iterations at both ends of the capture.

    Other launches after an iteration, such as those of an evaluation, belong to none. A segment with fewer launches is
    none, except a last one that begins as the others.
    """
    size, total = period.cut.size, len(launches.name)
    begin = _extend_back(launches, begin, period)
    end = np.append(begin[1:], total)
    is_last = np.arange(len(begin)) == len(begin) - 1
    is_odd = is_last | (np.abs(end - begin - size) > REGULAR * size)
    if period.has_kinds:
        is_odd = is_last
    usual_end = np.minimum(begin + size, end)
    bounds = np.stack([begin, usual_end], axis=1).reshape(-1)
    counts = count_names(launches, np.append(bounds, total))[::2]
    is_like = measure_difference(counts, period.cut.median[np.newaxis]) <= LIKE * size
    is_short = is_odd & (end - begin < (1 - LIKE) * size)
    is_whole = ~is_short & (is_like | ~is_last)
    end = np.where(is_odd & is_like & ~is_short, usual_end, end)
    is_begun = is_last & is_short
    is_begun[-1] &= _is_beginning(launches.name, begin)
    kept = is_whole | is_begun
    return Iterations(begin=begin[kept], end=end[kept], is_whole=is_whole[kept], score=period.cut.score)


def _extend_back(launches: Launches, begin: Int64s, period: Period) -> Int64s:
    """Add the iterations before the first launch that begins one, if the launches there are the usual ones."""
    size = period.cut.size
    for _ in range(_MOST_BEFORE):
        if begin[0] < size:
            break
        counts = count_names(launches, np.array([begin[0] - size, begin[0]]))
        if measure_difference(counts, period.cut.median[np.newaxis])[0] > LIKE * size:
            break
        begin = np.append(begin[0] - size, begin)
    return begin


def _is_beginning(name: Int64s, begin: Int64s) -> bool:
    """Return whether the launches since the last begin are the first ones of the iteration before."""
    own = name[begin[-1] :]
    before = name[begin[-2] : begin[-2] + len(own)] if len(begin) > 1 else own[:0]
    return len(before) == len(own) > 0 and bool((before == own).mean() >= 1 - LIKE)
