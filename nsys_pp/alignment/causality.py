"""Bounds by causality: a message ends on its receiver after it began on its sender.

That holds whether or not the two kernels overlap (a small message is sent from a buffer, and its
send may end before the receive begins: NVIDIA/nccl#1369). So a message from A to B only bounds how
far B's clock may be moved back relative to A's, and one from B to A how far forward. For clocks that
share no collective there is no tighter bound.
"""

from __future__ import annotations

import heapq

import numpy as np

from nsys_pp.alignment.lines import find_quantile
from nsys_pp.alignment.pairs import TOGETHER_NS
from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.types import Floats, Int64s

_MIN_ENDS = 8  # messages between two groups whose ends agree


def find_groups(clock: Int64s, instance: Int64s, clock_count: int) -> Int64s:
    """Number the groups of clocks connected by shared operations, directly or through other clocks.

    Args:
        clock: Clock of each observation.
        instance: Operation of each observation.
        clock_count: Number of clocks.

    Returns:
        The group of each clock; the largest is 0.

    >>> find_groups(np.array([0, 2, 1]), np.array([5, 5, 6]), 3)
    array([0, 1, 0])
    """
    group = np.arange(clock_count)
    operation = np.unique(instance, return_inverse=True)[1]
    while len(operation):
        lowest = np.full(int(operation.max()) + 1, clock_count)
        np.minimum.at(lowest, operation, group[clock])
        joined = group.copy()
        np.minimum.at(joined, clock, lowest[operation])
        joined = np.minimum(joined, joined[joined])
        if (joined == group).all():
            break
        group = joined
    numbers, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    rank = np.empty(len(numbers), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(numbers))
    return rank[group]


def bound_groups_by_messages(
    sender: Int64s, receiver: Int64s, slack_ns: Floats, apart_ns: Floats, group: Int64s
) -> Floats:
    """Bound the offset of each group from group 0, by the messages between groups.

    Where the ends of many messages agree to microseconds, their kernels waited for each other, and ended together.

    Args:
        sender: Sending clock of each message.
        receiver: Receiving clock of each message.
        slack_ns: End of the receive minus start of the send, by the current corrections.
        apart_ns: End of the receive minus end of the send, likewise; NaN where the send did not wait for the receive.
        group: Group of each clock.

    Returns:
        Bound of each group in ns: 0 for group 0, infinite where messages do not go both ways, and their ends do not agree.
    """
    count = int(group.max(initial=0)) + 1
    slack = np.full((count, count), np.inf)
    np.minimum.at(slack, (group[sender], group[receiver]), np.maximum(slack_ns, 0.0))
    width = np.minimum(
        np.maximum(slack, slack.T), _compare_ends(group[sender], group[receiver], apart_ns, count)
    )
    bound = np.full(count, np.inf)
    bound[0] = 0.0
    queue = [(0.0, 0)]
    while queue:
        distance, current = heapq.heappop(queue)
        if distance > bound[current]:
            continue
        for other in np.flatnonzero(distance + width[current] < bound).tolist():
            bound[other] = distance + width[current, other]
            heapq.heappush(queue, (float(bound[other]), other))
    return bound


def _compare_ends(sender: Int64s, receiver: Int64s, apart_ns: Floats, group_count: int) -> Floats:
    """Bound the offset of each pair of groups by the ends of their messages; infinite where few of them agree."""
    width = np.full((group_count, group_count), np.inf)
    low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)
    pair = np.where(np.isnan(apart_ns) | (low == high), -1, low * group_count + high)
    for number in list_distinct(pair[pair >= 0]).tolist():
        distance = np.abs(apart_ns[pair == number])
        largest = find_quantile(distance, 0.95)
        if len(distance) >= _MIN_ENDS and largest <= TOGETHER_NS:
            one, other = divmod(number, group_count)
            width[one, other] = width[other, one] = 2 * largest
    return width
