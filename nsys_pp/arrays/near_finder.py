"""Search of points near others, compiled (`core.c`), for arrays that stay the same from one search to the next."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import MOST_ROWS, find_address
from nsys_pp.arrays.near_arguments import EvidenceArgument, PointsArgument, Room, SearchArgument
from nsys_pp.arrays.types import Bools, Floats, Int64s

_ROOM = 1024  # pairs beyond two of each point, before there is more

# Columns with room for each pair, and their types.
_OF_PAIRS = (
    dict.fromkeys(("point", "other", "link"), "h")
    | dict.fromkeys(("nearest",), "p")
    | dict.fromkeys(("numbers", "pair_count"), "i")
    | dict.fromkeys(("residual", "squares", "shares"), "f")
)
_OF_EVIDENCE = dict.fromkeys(("point", "other", "chosen", "start_point"), "i") | dict.fromkeys(
    ("of_pair", "start_residual", "sums", "product", "of_link", "weight"), "f"
)


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
        key: Key of each point: it is near no other of another key.
        channel: Channel of each point, any integer without large gaps to the others.
        kind: Kind of each point; messages are those from `send` to `exchange`.
        end: Time of each point, from which others are predicted.
        other_key: Key of each of the others, ascending.
        other_channel: Channel of each of the others, like those of the points.
        other_kind: Kind of each of the others.
        other_time: Time of each of the others, ascending for each key.
        send: Kind that is near no other of this kind.
        receive: The same.
        exchange: Kind of messages without direction.
        beyond: Times beyond those of the others by more than this are replaced by the nearest one that is not.
        together: Points of a key this close in time are at one time.
        weighing: How pairs of channels are weighed.

    Attributes:
        core: The library.
        channel: Number of each point's channel, from 0.
        share: 1 by the number of points of this key at the time of each point: its share in the sums of pairs of channels.
        is_message: Whether each channel of the points has messages.
        is_exchange: Whether each of them has messages without direction.
        other_channel_count: Number of channels of the others.
        section_count: Number of their keys.

    Raises:
        ValueError: Columns have different lengths, or the others are not in order.
        MemoryError: Memory is short.
    """

    def __init__(
        self,
        core: Core,
        *,
        key: Int64s,
        channel: Int64s,
        kind: Int64s,
        end: Floats,
        other_key: Int64s,
        other_channel: Int64s,
        other_kind: Int64s,
        other_time: Floats,
        send: int,
        receive: int,
        exchange: int,
        beyond: float,
        together: float,
        weighing: Weighing,
    ) -> None:
        self.core, count, other_count = core, len(end), len(other_time)
        own, others = (key, channel, kind), (other_key, other_channel, other_kind)
        if any(len(column) != count for column in own) or any(
            len(column) != other_count for column in others
        ):
            raise ValueError("columns of different lengths")
        if max(count, other_count) >= MOST_ROWS:
            raise ValueError("too many rows")
        self._points = points = PointsArgument(
            count=count,
            other_count=other_count,
            send=send,
            receive=receive,
            exchange=exchange,
            beyond=beyond,
            together=together,
        )
        given: dict[str, tuple[npt.NDArray[Any], type]] = {
            "key": (key, np.int64),
            "channel_given": (channel, np.int64),
            "kind": (kind, np.int64),
            "end": (end, np.float64),
            "other_key": (other_key, np.int64),
            "other_channel": (other_channel, np.int64),
            "other_kind": (other_kind, np.int64),
            "other_time": (other_time, np.float64),
        }
        columns: list[npt.NDArray[Any]] = [
            np.ascontiguousarray(column, dtype=of) for column, of in given.values()
        ]
        self._columns = columns  # as long as the library has their addresses
        for name, column in zip(given, columns, strict=True):
            setattr(points, name, find_address(column))
        prepared = self._prepared = Room(
            points,
            {
                "channel": ("i", count),
                "share": ("f", count),
                "is_message": ("b", count),
                "is_exchange": ("b", count),
                "own_total": ("i", count),
                "other_total": ("i", other_count),
                "by_channel": ("h", count),
                "channel_bounds": ("i", count + 2),
                "sections": ("i", other_count + 1),
                "comparable": ("s", 2 * count),
                "others": ("s", 3 * (other_count + 1)),
            },
        )
        if result := core.prepare_points(ctypes.addressof(points)):
            raise MemoryError if result < 0 else ValueError("the others are not in order of key and time")
        channels: int = points.channel_count
        self.other_channel_count, self.section_count = points.other_channel_count, points.section_count
        self.channel: Int64s = prepared["channel"]
        self.share: Floats = prepared["share"]
        self.is_message: Bools = prepared["is_message"][:channels]
        self.is_exchange: Bools = prepared["is_exchange"][:channels]
        self._weighing = weighing
        self._last_search: tuple[Any, ...] = ()
        self._reserve_search()

    def twin(self) -> NearFinder:
        """Return a search of the same points and others for another thread: each has room of its own."""
        other = copy(self)
        other._reserve_search()
        return other

    def find(self, line: tuple[float, float, float], tolerance: float, margin: float) -> NearPairs:
        """Find the pairs that are the nearest of each other, within a tolerance, in each pair of channels.

        Args:
            line: Offset, rate and center: the predicted time of a point is `end + offset + rate * (end - center)`.
            tolerance: Largest distance.
            margin: Added at both ends of the time that both have.
        """
        self._find(line, tolerance, margin)
        search, held, pairs = self._search, self._held, self._pairs
        links = search.links
        order = np.argsort(pairs["point"][: search.pairs], kind="stable")
        return NearPairs(
            point=pairs["point"][order].astype(np.int64),
            other=pairs["other"][order].astype(np.int64),
            residual=pairs["residual"][order],
            link=pairs["link"][order].astype(np.int64),
            numbers=pairs["numbers"][:links].copy(),
            count=pairs["pair_count"][:links].copy(),
            squares=pairs["squares"][:links].copy(),
            share=pairs["shares"][:links].copy(),
            predicted=held["predicted"].copy(),
            within=search.within_ns,
            own_within=held["own_within"].copy(),
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
        self._find(line, tolerance, margin)
        room, to = self._room, self._evidence
        to.scatter, to.start_count = scatter, starts
        addresses = (ctypes.addressof(one) for one in (self._points, self._search, to))
        if self.core.weigh(*addresses):
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

    def run(
        self,
        function: Callable[..., int],
        argument: ctypes.Structure,
        tolerance: float,
        margin: float,
        *,
        starts: int = 0,
    ) -> int:
        """Call a compiled function that searches by many lines, until there is room for the pairs of each.

        Args:
            function: Receives points, search, evidence and the argument; returns 1 without room, and goes on with the next call.
            argument: Of the function.
            tolerance: As for `find`.
            margin: As for `find`.
            starts: As for `weigh`.

        Returns:
            The function's result.
        """
        search, to = self._search, self._evidence
        search.tolerance, search.margin, to.start_count = tolerance, margin, starts
        self._last_search = ()
        addresses = [ctypes.addressof(one) for one in (self._points, search, to, argument)]
        while (result := function(*addresses)) == 1:
            self._reserve_pairs(search.pairs)
        return result

    def _find(self, line: tuple[float, float, float], tolerance: float, margin: float) -> None:
        """Search, if the last search was another one."""
        search = self._search
        if self._last_search == (line, tolerance, margin):
            return
        search.offset, search.rate, search.center = line
        search.tolerance, search.margin = tolerance, margin
        while self.core.search_points(ctypes.addressof(self._points), ctypes.addressof(search)):
            self._reserve_pairs(search.pairs)
        self._last_search = line, tolerance, margin

    def _reserve_search(self) -> None:
        """Reserve room for a search."""
        count, other_count = self._points.count, self._points.other_count
        self._search = SearchArgument()
        self._held = Room(
            self._search,
            {
                "predicted": ("f", count),
                "first_pair": ("h", count),
                "pairs_of": ("h", count),
                "own_within": ("i", self._points.channel_count),
                "others_within": ("i", self.other_channel_count),
                "best": ("h", self.other_channel_count),
                "touched": ("h", self.other_channel_count),
                "sums": ("s", self.other_channel_count),
            },
        )
        marks = {"stamp": ("h", self.other_channel_count), "owners": ("i", other_count)}
        self._marks = Room(self._search, marks, is_zero=True)
        self._evidence = EvidenceArgument(
            **{name: getattr(self._weighing, name) for name in self._weighing.__struct_fields__}
        )
        self._last_search = ()
        self._reserve_pairs(2 * count + _ROOM)

    def _reserve_pairs(self, capacity: int) -> None:
        """Reserve room for pairs, and as many pairs of channels."""
        if capacity >= MOST_ROWS:
            raise MemoryError("too many pairs")
        self._search.capacity = capacity
        self._pairs, self._room = (
            Room(to, {name: (letter, capacity) for name, letter in columns.items()})
            for to, columns in ((self._search, _OF_PAIRS), (self._evidence, _OF_EVIDENCE))
        )
