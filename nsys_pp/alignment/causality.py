"""What no clock can contradict: a message ends on its receiver after it began on its sender.

That holds whether or not the two kernels overlap (a small message is sent from a buffer, and its
send may end before the receive begins: NVIDIA/nccl#1369), so a message from A to B only says how
far B's clock may be moved back against A's, and one from B to A how far forward. Clocks that
share no collective are known no better than that.
"""

from __future__ import annotations

import heapq

import numpy as np

from nsys_pp.arrays.types import Floats, Int64s


def find_groups(clock: Int64s, instance: Int64s, clock_count: int) -> Int64s:
    """Number the groups of clocks that operations tie together, directly or through others.

    Args:
        clock: Of each observation.
        instance: Of each observation.
        clock_count: How many clocks there are.

    Returns:
        The group of each clock; the largest is 0.

    >>> find_groups(np.array([0, 2, 1]), np.array([5, 5, 6]), 3)
    array([0, 1, 0])
    """
    group = np.arange(clock_count)
    what = np.unique(instance, return_inverse=True)[1]
    while len(what):
        lowest = np.full(int(what.max()) + 1, clock_count)
        np.minimum.at(lowest, what, group[clock])
        joined = group.copy()
        np.minimum.at(joined, clock, lowest[what])
        joined = np.minimum(joined, joined[joined])
        if (joined == group).all():
            break
        group = joined
    numbers, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    place = np.empty(len(numbers), dtype=np.int64)
    place[np.argsort(-sizes, kind="stable")] = np.arange(len(numbers))
    return place[group]


def reach_of_messages(sender: Int64s, receiver: Int64s, slack_ns: Floats, group: Int64s) -> Floats:
    """Say how far each group may lie from group 0, by the messages between groups.

    Args:
        sender: Clock of each message's send.
        receiver: Clock of its receive.
        slack_ns: End of the receive less start of the send, as the clocks now stand.
        group: Of each clock.

    Returns:
        ns for each group: 0 for group 0, infinite where messages do not go both ways.
    """
    count = int(group.max(initial=0)) + 1
    slack = np.full((count, count), np.inf)
    np.minimum.at(slack, (group[sender], group[receiver]), np.maximum(slack_ns, 0.0))
    width = np.maximum(slack, slack.T)
    reach = np.full(count, np.inf)
    reach[0] = 0.0
    queue = [(0.0, 0)]
    while queue:
        far, here = heapq.heappop(queue)
        if far > reach[here]:
            continue
        for there in np.flatnonzero(far + width[here] < reach).tolist():
            reach[there] = far + width[here, there]
            heapq.heappush(queue, (float(reach[there]), there))
    return reach
