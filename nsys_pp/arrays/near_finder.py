"""Search of points near others, compiled (`core.c`), for arrays that stay the same from one search to the next."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.types import Bools, Floats, Int64s

_COUNT, _POINTER, _NUMBER = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
_MOST_STARTS = 8  # pairs of channels that are listed with their pairs
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
        ("section_count", _COUNT),
        ("sections", _POINTER),
        *((name, _COUNT) for name in ("channel_count", "other_channel_count")),
        ("other_total", _POINTER),
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


class _Evidence(ctypes.Structure):
    """`Evidence` of `core.c`."""

    _fields_ = (
        ("is_message", _POINTER),
        ("is_exchange", _POINTER),
        *((name, _NUMBER) for name in ("scatter", "prior_count", "lockstep", "missing", "missing_message")),
        *((name, _COUNT) for name in ("measurable", "measurable_whole")),
        *((name, _NUMBER) for name in ("evidence", "exchange", "sharpest")),
        ("kept", _COUNT),
        *((name, _POINTER) for name in ("point", "other", "of_pair")),
        ("chosen_count", _COUNT),
        *((name, _POINTER) for name in ("chosen", "sums", "product", "of_link", "weight")),
        *((name, _COUNT) for name in ("start_count", "min_sharp")),
        *((name, _NUMBER) for name in ("wide", "first_scatter")),
        ("start_bounds", _COUNT * (_MOST_STARTS + 1)),
        ("start_point", _POINTER),
        ("start_residual", _POINTER),
    )


_FLOATS_OF_PAIRS = ("residual", "squares", "shares")
_FLOATS_OF_EVIDENCE = ("of_pair", "start_residual")
_FLOATS = {"predicted", *_FLOATS_OF_PAIRS, *_FLOATS_OF_EVIDENCE}
_WORD_BYTES = 8


def _reserve(to: ctypes.Structure, held: dict[str, Any], read: dict[str, int], used: dict[str, int]) -> None:
    """Reserve room for arrays of words of 64 bits as one, and set their addresses.

    Args:
        to: Receives the addresses.
        held: Receives the arrays that are read; they keep the room.
        read: Lengths of these, one or more.
        used: Lengths of the others.
    """
    room = np.empty(sum(read.values()) + sum(used.values()), dtype=np.int64)
    address, at = room.ctypes.data, 0
    for lengths in (read, used):
        for name, length in lengths.items():
            setattr(to, name, address + _WORD_BYTES * at)
            if lengths is read:
                words = room[at : at + length]
                held[name] = words.view(np.float64) if name in _FLOATS else words
            at += length


class Weighing(Struct, frozen=True, kw_only=True):
    """Parameters of evidence: `nsys_pp.alignment.pairs` has the meaning of each value."""

    prior_count: float
    lockstep: float
    missing: float
    missing_message: float
    measurable: int
    measurable_whole: int
    min_sharp: int
    wide: float
    first_scatter: float


class Weighed(Struct, frozen=True, kw_only=True):
    """Evidence of the pairs that are near each other by a line; rows as `nsys_pp.alignment.pairs.Pairs`.

    Attributes:
        evidence: Of the chosen pairs of channels.
        exchange_evidence: The same, of exchanges.
        sharpest: Least scatter.
        point: Point of each pair of these, ascending; empty with starts.
        other: The other of each.
        scatter: Scatter of its pair of channels.
        channels: Channels of the points that are paired.
        predicted: Predicted times of all points, until the next search.
        starts: Points and residuals of the pairs of channels with most merit, the best first, as many as were asked for.
    """

    evidence: float
    exchange_evidence: float
    sharpest: float
    point: Int64s
    other: Int64s
    scatter: Floats
    channels: Int64s
    predicted: Floats
    starts: list[tuple[Int64s, Floats]]


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
        is_message: Whether each channel of the points has messages.
        is_exchange: Whether each of them has messages of unknown direction.
        times: Time of each of the others, ascending.
        other_time: The same without what is added; ascends in each section.
        sections: First row of each section of the others, and their number.
        other_channel: Channel of each of the others.
        other_kind: Kind of each of the others.
        limits: First and last of `other_time`.
        beyond: Times beyond the limits by more than this are replaced by the nearest one that is not.
        weighing: How pairs of channels are weighed.

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
        is_message: Bools,
        is_exchange: Bools,
        times: Floats,
        other_time: Floats,
        sections: Int64s,
        other_channel: Int64s,
        other_kind: Int64s,
        limits: tuple[float, float],
        beyond: float,
        weighing: Weighing,
    ) -> None:
        self._compare, self._weigh = core.compare, core.weigh
        lengths = [
            {len(column) for column in (channel, kind, end, base, share)},
            {len(column) for column in (times, other_time, other_channel, other_kind)},
        ]
        if any(len(length) > 1 for length in lengths):
            raise ValueError("columns of different lengths")
        if min(channel.min(initial=0), other_channel.min(initial=0)) < 0 or not (np.diff(times) >= 0).all():
            raise ValueError("channels are numbers from 0, and times ascend")
        if sections[0] != 0 or sections[-1] != len(times) or not (np.diff(sections) >= 0).all():
            raise ValueError("sections do not have all rows")
        count, other_count = len(channel), len(times)
        channels, self.other_channel_count = (
            int(column.max(initial=-1)) + 1 for column in (channel, other_channel)
        )
        if min(len(is_message), len(is_exchange)) < channels:
            raise ValueError("columns of different lengths")
        self._held: dict[str, Any] = {}  # as long as the library has their addresses
        self._arguments = _Arguments(
            count=count,
            other_count=other_count,
            channel_count=channels,
            section_count=len(sections) - 1,
            other_channel_count=self.other_channel_count,
            first=limits[0],
            last=limits[1],
            beyond=beyond,
        )
        self._hold(
            channel=channel,
            kind=kind,
            other_channel=other_channel,
            other_kind=other_kind,
            sections=sections,
            other_total=np.bincount(other_channel, minlength=self.other_channel_count),
            of=np.int64,
        )
        self._hold(end=end, base=base, share=share, times=times, other_time=other_time, of=np.float64)
        self._hold(sweep=np.argsort(end + base), of=np.int64)
        _reserve(
            self._arguments,
            self._held,
            {"predicted": count, "others_within": self.other_channel_count, "own_within": channels + 2},
            {
                "low": count,
                "bounds": channels + 2,
                **dict.fromkeys(("best", "stamp", "touched"), self.other_channel_count),
                **dict.fromkeys(("nearest", "owner"), other_count),
            },
        )
        self._evidence = _Evidence(**{name: getattr(weighing, name) for name in weighing.__struct_fields__})
        for name, marks in (("is_message", is_message), ("is_exchange", is_exchange)):
            self._held[name] = np.ascontiguousarray(marks, dtype=np.uint8)
            setattr(self._evidence, name, self._held[name].ctypes.data)
        self._room: dict[str, Any] = {}  # the same
        self._last_search: tuple[Any, ...] = ()  # of the last search
        self._reserve_pairs(2 * count + _ROOM)

    def find(self, line: tuple[float, float, float], tolerance: float, margin: float) -> NearPairs:
        """Find the pairs that are the nearest of each other, within a tolerance, in each pair of channels.

        Args:
            line: Offset, rate and center: the predicted time of a point is `end + offset + rate * (end - center)`.
            tolerance: Largest distance.
            margin: Added at both ends of the time that both have.
        """
        self._search(line, tolerance, margin)
        arguments, held = self._arguments, self._held
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

    def weigh(
        self,
        line: tuple[float, float, float],
        tolerance: float,
        margin: float,
        scatter: float,
        *,
        starts: int = 0,
    ) -> Weighed:
        """Weigh the pairs that `find` finds.

        Args:
            line: As for `find`.
            tolerance: As for `find`.
            margin: As for `find`.
            scatter: Expected of the distances of pairs.
            starts: Number of pairs of channels whose pairs are listed, in place of those of the chosen ones; at most 8.
        """
        self._search(line, tolerance, margin)
        room, to = self._room, self._evidence
        to.scatter, to.start_count = scatter, starts
        if self._weigh(ctypes.byref(self._arguments), ctypes.byref(to)):
            raise ValueError("too many pairs of channels are to be listed")
        listed = []
        if starts:
            for first, stop in pairwise(to.start_bounds[: starts + 1]):
                if stop > first:
                    points, residuals = room["start_point"][first:stop], room["start_residual"][first:stop]
                    listed.append((points.copy(), residuals.copy()))
        kept = to.kept
        return Weighed(
            evidence=to.evidence,
            exchange_evidence=to.exchange,
            sharpest=to.sharpest,
            point=room["point"][:kept].copy(),
            other=room["other"][:kept].copy(),
            scatter=room["of_pair"][:kept].copy(),
            channels=room["chosen"][: to.chosen_count].copy(),
            predicted=self._held["predicted"],
            starts=listed,
        )

    def _search(self, line: tuple[float, float, float], tolerance: float, margin: float) -> None:
        """Search, if the last search was another one."""
        arguments = self._arguments
        if self._last_search == (line, tolerance, margin):
            return
        arguments.offset, arguments.rate, arguments.center = line
        arguments.tolerance, arguments.margin = tolerance, margin
        while self._compare(ctypes.byref(arguments)):
            self._reserve_pairs(arguments.pairs)
        self._last_search = line, tolerance, margin

    def _reserve_pairs(self, capacity: int) -> None:
        self._arguments.capacity = capacity
        read = dict.fromkeys(("point", "other", "link", "numbers", "pair_count", *_FLOATS_OF_PAIRS), capacity)
        _reserve(self._arguments, self._held, read, {"order": capacity})
        read = dict.fromkeys(("point", "other", "chosen", "start_point", *_FLOATS_OF_EVIDENCE), capacity)
        _reserve(
            self._evidence,
            self._room,
            read,
            dict.fromkeys(("sums", "product", "of_link", "weight"), capacity),
        )

    def _hold(self, *, of: type, **columns: Any) -> None:
        for name, values in columns.items():
            self._held[name] = np.ascontiguousarray(values, dtype=of)
            setattr(self._arguments, name, self._held[name].ctypes.data)
