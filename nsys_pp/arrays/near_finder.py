"""Search of points near others, compiled (`core.c`), for arrays that stay the same from one search to the next."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.types import Floats, Int64s


class NearFinder:
    """Points that are compared with others again and again, by different predictions of their times. Both are in channels.

    Args:
        core: The library.
        channel: Channel of each point.
        kind: Kind of each point that is near no other of the same kind; -1 for any.
        base: Added to the times of each point before they are compared with `times`.
        times: Time of each of the others, ascending.
        other_time: The same without what is added.
        other_channel: Channel of each of the others.
        other_kind: Kind of each of the others.

    Raises:
        ValueError: Columns have different lengths, `times` descends, or a channel is negative.
    """

    def __init__(
        self,
        core: Core,
        *,
        channel: Int64s,
        kind: Int64s,
        base: Floats,
        times: Floats,
        other_time: Floats,
        other_channel: Int64s,
        other_kind: Int64s,
    ) -> None:
        self._core = core
        lengths = [
            {len(channel), len(kind), len(base)},
            {len(column) for column in (times, other_time, other_channel, other_kind)},
        ]
        if any(len(length) > 1 for length in lengths):
            raise ValueError("columns of different lengths")
        self._count, self._other_count = len(channel), len(times)
        if min(channel.min(initial=0), other_channel.min(initial=0)) < 0 or not (np.diff(times) >= 0).all():
            raise ValueError("channels are numbers from 0, and times ascend")
        self._channel_count = int(channel.max(initial=-1)) + 1
        self.other_channel_count = int(other_channel.max(initial=-1)) + 1
        own = [_integers(channel), _integers(kind), _floats(base)]
        others = [*(_floats(column) for column in (times, other_time))]
        self._columns = (*own, *others, _integers(other_channel), _integers(other_kind))
        self._addresses = [column.ctypes.data for column in self._columns]
        self._results = np.empty((4, 4 * self._count + 1024), dtype=np.int64)

    def find(
        self, predicted: Floats, tolerance: float, limits: tuple[float, float]
    ) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Find the pairs that are the nearest of each other, within a tolerance, in each pair of channels.

        Args:
            predicted: Time of each point.
            tolerance: Largest distance.
            limits: Times before and after these are replaced by them.

        Returns:
            Point, other and number of the pair of channels, of each pair, by point and other; of each pair of channels, the channel
            of the points times `other_channel_count` plus that of the others, ascending.
        """
        if len(predicted) != self._count:
            raise ValueError("columns of different lengths")
        predicted = _floats(predicted)
        channel, kind, base, times, other_time, other_channel, other_kind = self._addresses
        found = np.zeros(2, dtype=np.int64)
        while True:
            results = self._results
            capacity = results.shape[1]
            first, width = results.ctypes.data, 8 * capacity
            result = self._core.find_near(
                *(self._count, channel, kind, base, predicted.ctypes.data),
                *(self._other_count, times, other_time, other_channel, other_kind),
                *(self._channel_count, self.other_channel_count, tolerance, *limits, capacity),
                *(first, first + width, first + 2 * width, first + 3 * width, found.ctypes.data),
            )
            if result < 0:
                raise MemoryError("not enough memory")
            pairs, links = found.tolist()
            if pairs <= capacity:
                point, other, link = results[:3, :pairs].copy()
                return point, other, link, results[3, :links].copy()
            self._results = np.empty((4, pairs), dtype=np.int64)

    def count_others(self, since: float, until: float) -> Int64s:
        """Count the others within `[since, until]`, of each channel."""
        counts = np.zeros(self.other_channel_count, dtype=np.int64)
        other_time, other_channel = self._addresses[4:6]
        self._core.count_within(
            self._other_count, other_time, other_channel, since, until, counts.ctypes.data
        )
        return counts


def _integers(values: Int64s) -> Int64s:
    return np.ascontiguousarray(values, dtype=np.int64)


def _floats(values: Floats) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)
