"""Search of points near others, compiled (`core.c`), for arrays that stay the same from one search to the next."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.types import Floats, Int64s

_COUNT, _POINTER, _NUMBER = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
_ROOM = 1024  # pairs beyond two of each point, before there is more


class _Arguments(ctypes.Structure):
    """`Comparison` of `core.c`."""

    _fields_ = (
        ("count", _COUNT),
        *(
            (name, _POINTER)
            for name in ("channel", "kind", "end", "base", "share", "sweep", "predicted", "low")
        ),
        ("other_count", _COUNT),
        *((name, _POINTER) for name in ("times", "other_time", "other_channel", "other_kind")),
        *((name, _COUNT) for name in ("channel_count", "other_channel_count")),
        *((name, _NUMBER) for name in ("first", "last", "beyond")),
        *((name, _NUMBER) for name in ("offset", "rate", "center", "tolerance", "margin")),
        ("capacity", _COUNT),
        *((name, _POINTER) for name in ("point", "other", "link", "order", "residual")),
        *((name, _POINTER) for name in ("numbers", "pair_count", "squares", "shares")),
        *((name, _POINTER) for name in ("bounds", "best", "stamp", "touched", "nearest", "owner")),
        *((name, _POINTER) for name in ("own_within", "others_within")),
        ("within_ns", _NUMBER),
        *((name, _COUNT) for name in ("pairs", "links")),
    )


class NearPairs(Struct, frozen=True, kw_only=True):
    """Pairs of a point and one of the others, by point and other, and sums of them by pair of channels.

    Attributes:
        point: Number of the point.
        other: Number of the other.
        residual: Time of the other minus predicted time of the point.
        link: Number of the pair of channels.
        numbers: Channel of the points times `other_channel_count` plus that of the others, of each pair of channels, ascending.
        count: Number of pairs, of each pair of channels.
        squares: Sum of the squared residuals, of each pair of channels.
        share: Sum of the shares of the points, of each pair of channels.
        predicted: Predicted times of all points.
        within: Duration that both have, with the margin.
        own_within: Points within it, of each channel.
        others_within: Others within it, of each channel.
    """

    point: Int64s
    other: Int64s
    residual: Floats
    link: Int64s
    numbers: Int64s
    count: Int64s
    squares: Floats
    share: Floats
    predicted: Floats
    within: float
    own_within: Int64s
    others_within: Int64s


class NearFinder:
    """Points that are compared with others again and again, by different predictions of their times. Both are in channels.

    Args:
        core: The library.
        channel: Channel of each point.
        kind: Kind of each point that is near no other of the same kind; -1 for any.
        end: Time of each point, from which others are predicted.
        base: Added to the times of each point before they are compared with `times`; NaN for a point that is near no other.
        share: Share of each point in the sums of pairs of channels.
        times: Time of each of the others, ascending.
        other_time: The same without what is added.
        other_channel: Channel of each of the others.
        other_kind: Kind of each of the others.
        limits: First and last of `other_time`.
        beyond: Times beyond the limits by more than this are replaced by the nearest one that is not.

    Raises:
        ValueError: Columns have different lengths, `times` descends, or a channel is negative.
    """

    def __init__(
        self,
        core: Core,
        *,
        channel: Int64s,
        kind: Int64s,
        end: Floats,
        base: Floats,
        share: Floats,
        times: Floats,
        other_time: Floats,
        other_channel: Int64s,
        other_kind: Int64s,
        limits: tuple[float, float],
        beyond: float,
    ) -> None:
        self._compare = core.compare
        lengths = [
            {len(column) for column in (channel, kind, end, base, share)},
            {len(column) for column in (times, other_time, other_channel, other_kind)},
        ]
        if any(len(length) > 1 for length in lengths):
            raise ValueError("columns of different lengths")
        if min(channel.min(initial=0), other_channel.min(initial=0)) < 0 or not (np.diff(times) >= 0).all():
            raise ValueError("channels are numbers from 0, and times ascend")
        count, other_count = len(channel), len(times)
        channels, self.other_channel_count = (
            int(column.max(initial=-1)) + 1 for column in (channel, other_channel)
        )
        self._held: dict[str, Any] = {}  # as long as the library has their addresses
        self._arguments = _Arguments(
            count=count,
            other_count=other_count,
            channel_count=channels,
            other_channel_count=self.other_channel_count,
            first=limits[0],
            last=limits[1],
            beyond=beyond,
        )
        self._hold(
            channel=channel, kind=kind, other_channel=other_channel, other_kind=other_kind, of=np.int64
        )
        self._hold(end=end, base=base, share=share, times=times, other_time=other_time, of=np.float64)
        self._hold(sweep=np.argsort(end + base), of=np.int64)
        self._reserve(count, "predicted", of=np.float64)
        self._reserve(count, "low")
        self._reserve(channels + 2, "bounds", "own_within")
        self._reserve(self.other_channel_count, "best", "stamp", "touched", "others_within")
        self._reserve(other_count, "nearest", "owner")
        self._reserve_pairs(2 * count + _ROOM)

    def find(self, line: tuple[float, float, float], tolerance: float, margin: float) -> NearPairs:
        """Find the pairs that are the nearest of each other, within a tolerance, in each pair of channels.

        Args:
            line: Offset, rate and center: the predicted time of a point is `end + offset + rate * (end - center)`.
            tolerance: Largest distance.
            margin: Added at both ends of the time that both have.
        """
        arguments, held = self._arguments, self._held
        arguments.offset, arguments.rate, arguments.center = line
        arguments.tolerance, arguments.margin = tolerance, margin
        while self._compare(ctypes.byref(arguments)):
            self._reserve_pairs(arguments.pairs)
        pairs, links = arguments.pairs, arguments.links
        own = held["own_within"][: arguments.channel_count]
        return NearPairs(
            point=held["point"][:pairs].copy(),
            other=held["other"][:pairs].copy(),
            residual=held["residual"][:pairs].copy(),
            link=held["link"][:pairs].copy(),
            numbers=held["numbers"][:links].copy(),
            count=held["pair_count"][:links].copy(),
            squares=held["squares"][:links].copy(),
            share=held["shares"][:links].copy(),
            predicted=held["predicted"].copy(),
            within=arguments.within_ns,
            own_within=own.copy(),
            others_within=held["others_within"].copy(),
        )

    def _reserve_pairs(self, capacity: int) -> None:
        self._arguments.capacity = capacity
        self._reserve(capacity, "point", "other", "link", "order", "numbers", "pair_count")
        self._reserve(capacity, "residual", "squares", "shares", of=np.float64)

    def _reserve(self, count: int, *names: str, of: type = np.int64) -> None:
        for name in names:
            self._hold(**{name: np.empty(count, dtype=of)}, of=of)

    def _hold(self, *, of: type, **columns: Any) -> None:
        for name, values in columns.items():
            self._held[name] = np.ascontiguousarray(values, dtype=of)
            setattr(self._arguments, name, self._held[name].ctypes.data)
