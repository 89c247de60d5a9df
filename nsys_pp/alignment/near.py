"""Straight lines between two clocks, and the operations near them: how much these speak for a line."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.events import RECEIVE, SEND, SEND_RECEIVE, Events
from nsys_pp.arrays.columns import find_distinct, list_distinct, mark_rows, select_rows
from nsys_pp.arrays.search import expand_windows
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.compiled import load_library
from nsys_pp.frames.clock import SKEW_NS

# Maximal relative drift between the clocks of two machines: twice 100 ppm.
MAX_DRIFT = 200e-6

# Of real oscillators.
DRIFT_SIGMA = 60e-6

# Of the scatter in a fit of operations.
FLOOR_NS = 2_000.0

_ROUNDS = 6  # of a fit, each weighed by the residuals of the one before
_MOST_RATES = 401  # to try; odd


class Line(Struct, frozen=True, kw_only=True):
    """A correction, added to times: `offset_ns + rate * (time - center_ns)`."""

    offset_ns: float = 0.0
    rate: float = 0.0
    center_ns: float = 0.0

    def at(self, times: Floats) -> Floats:
        """Return the correction at each time."""
        return self.offset_ns + self.rate * (times - self.center_ns)

    def distance_ns(self, other: Line) -> float:
        """Return the distance of another line from this one, at the center of this one."""
        return abs(other.offset_ns + other.rate * (self.center_ns - other.center_ns) - self.offset_ns)

    def compose(self, other: Line) -> Line:
        """Return the correction by this line followed by another one.

        >>> Line(offset_ns=5.0).compose(Line(offset_ns=1.0, rate=0.5, center_ns=3.0))
        Line(offset_ns=7.0, rate=0.5, center_ns=0.0)
        """
        corrected = self.center_ns + self.offset_ns
        return Line(
            offset_ns=self.offset_ns + other.offset_ns + other.rate * (corrected - other.center_ns),
            rate=self.rate + other.rate + self.rate * other.rate,
            center_ns=self.center_ns,
        )


def mad_sigma(residuals: Floats) -> float:
    """Estimate the standard deviation of residuals from their median absolute value.

    >>> mad_sigma(np.array([-1.0, 0.0, 1.0, 100.0]))
    1.4826
    """
    return 1.4826 * float(np.median(np.abs(residuals))) if len(residuals) else 0.0


def find_line(times: Floats, values: Floats, *, width: float) -> Line:
    """Find the line with most points within `width / 2`, by trying slopes.

    Args:
        times: ns, one or more.
        values: ns.
        width: ns.
    """
    center = float(np.median(times))
    span = float(np.max(np.abs(times - center)))
    count = 1 if len(times) < 3 else int(min(_MOST_RATES, 1 + 2 * np.ceil(MAX_DRIFT * span / (width / 4))))
    best, most = Line(center_ns=center), 0
    for rate in _list_rates(count).tolist():
        level = np.sort(values - rate * (times - center))
        inside = np.searchsorted(level, level + width, side="right") - np.arange(len(level))
        first = int(np.argmax(inside))
        if inside[first] > most:
            most = int(inside[first])
            best = Line(offset_ns=float(np.median(level[first : first + most])), rate=rate, center_ns=center)
    return best


def stack_lines(lines: Sequence[Line]) -> Floats:
    """Return offset, rate and center of each line, in columns."""
    return np.array([(line.offset_ns, line.rate, line.center_ns) for line in lines]).reshape(-1, 3)


def measure_distances(lines: Floats, other: Floats) -> Floats:
    """Return the distance of another line from each, as `Line.distance_ns`.

    Args:
        lines: Offset, rate and center of each, in columns.
        other: The same of one.
    """
    return np.asarray(np.abs(other[0] + other[1] * (lines[:, 2] - other[2]) - lines[:, 0]))


@cache
def _list_rates(count: int) -> Floats:
    """List rates to try, the smallest first; 0 is one of them, as their number is odd."""
    rates = np.array(sorted(np.linspace(-MAX_DRIFT, MAX_DRIFT, count) if count > 1 else [0.0], key=abs))
    rates.flags.writeable = False
    return rates


def fit_line(
    times: Floats, values: Floats, start: Line, *, floor_ns: float, noise: Floats | None = None
) -> Line:
    """Fit a line to points near `start` with few outliers, by least squares with Cauchy weights.

    A prior of 60 ppm (the drift of real oscillators) holds the slope near 0 where points are few or
    close in time.

    Args:
        times: ns.
        values: ns.
        start: Initial line.
        floor_ns: Lower limit of the residual scale.
        noise: Relative noise of each point; None: all are equal.
    """
    if len(times) < 2:
        return start if not len(times) else Line(offset_ns=float(values[0]), center_ns=float(times[0]))
    relative = np.ones(len(times)) if noise is None else noise / float(np.median(noise))
    columns = [np.ascontiguousarray(column, dtype=np.float64) for column in (times, values, relative)]
    room, line = np.empty(len(times)), (ctypes.c_double * 3)(start.offset_ns, start.rate, start.center_ns)
    addresses = [column.ctypes.data for column in columns]
    if LIBRARY.near_fit_line(len(times), *addresses, floor_ns, DRIFT_SIGMA, _ROUNDS, line, room.ctypes.data):
        raise ValueError("a line through points that are not finite")
    return Line(offset_ns=line[0], rate=line[1], center_ns=line[2])


class Reference(Struct, frozen=True, kw_only=True):
    """Operations of a timeline, in order of key and time; arrays as in `Events`."""

    key: Int64s
    times: Floats  # ends, on the timeline's clock, ns since the events' origin
    gap_before: Floats
    kind: Int64s
    channels: Int64s  # of the timeline
    instances: Int64s

    def __len__(self) -> int:
        return len(self.times)

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Reference:
        """Return the operations of these rows."""
        return select_rows(self, rows)

    def keep_keys(self, keys: Int64s) -> Reference:
        """Return the operations with these keys."""
        kept = list_distinct(keys)
        first, stop = self.key.searchsorted(kept), self.key.searchsorted(kept, side="right")
        return self if (stop - first).sum() == len(self) else self.select(expand_windows(first, stop))

    def of_key(self, key: int) -> tuple[int, int]:
        """Return the half-open rows of a key."""
        first, stop = np.searchsorted(self.key, (key, key + 1))
        return int(first), int(stop)

    def insert(self, other: Reference) -> Reference:
        """Return the operations of both, in order."""
        if not len(other):
            return self
        at = np.empty(len(other), dtype=np.int64)
        for key in list_distinct(other.key).tolist():
            (first, stop), (low, high) = self.of_key(key), other.of_key(key)
            at[low:high] = first + np.searchsorted(self.times[first:stop], other.times[low:high])
        names = self.__struct_fields__
        own, added = ([getattr(one, name) for name in names] for one in (self, other))
        columns = [np.insert(*column) for column in zip(own, [at] * len(own), added, strict=True)]
        return Reference(**dict(zip(names, columns, strict=True)))


def build_reference(
    events: Events, times: Floats, channels: Int64s, instances: Int64s, *, is_kept: Bools | None = None
) -> Reference:
    """Build a reference from events.

    Args:
        events: The events.
        times: Their ends on the timeline's clock.
        channels: Their channels of the timeline.
        instances: Their operations.
        is_kept: Mask of the events that are operations; None: all are.
    """
    rows = np.arange(len(events)) if is_kept is None else np.flatnonzero(is_kept)
    order = rows[np.lexsort((times[rows], events.key[rows]))]
    return Reference(
        key=events.key[order],
        times=times[order],
        gap_before=events.gap_before[order],
        kind=events.kind[order],
        channels=channels[order],
        instances=instances[order],
    )


# Tolerance of pairs by a first line, if it is not known better.
NEAR_NS = 150_000.0

# Scatters of the ends of one operation that are expected, where it is not known better.
SCATTERS_NS = (1_500.0, 4_000.0, 12_000.0, 30_000.0)

# Ends of one operation are mostly closer than this, and those of unrelated ones in lockstep seldom.
TOGETHER_NS = 20_000.0

# Scatter that is expected before any is known.
FIRST_SCATTER_NS = 5_000.0

# Evidence against two channels, for each operation that only one of them has.
MISSING = 2.0

_MAX_CONTRADICTION = 30.0  # most evidence against a line by the collectives of one communicator
_MAX_STARTS = 3  # pairs of channels that a fit begins with

_MIN_SHARP = 3  # operations that the scatter of a first line is measured by: of fewer it is assumed
_BEYOND_NS = 1_000.0  # before and after the operations of each key

_WEIGHING = {
    "prior_count": 2.0,  # number of operations that the expected scatter counts as
    "lockstep": 9.2,  # logarithm of the range of scatters of unrelated operations: 1 us to 10 ms
    "missing": MISSING,
    "missing_message": 0.2,  # the same for messages: a stream can have messages with several peers
    "measurable": 6,  # pairs that a channel's scatter is measured by
    "measurable_whole": 3,  # the same, where each has all operations of the other
}


_INT64, _DOUBLE, _ADDRESS = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def _list_fields(text: str) -> list[tuple[str, Any]]:
    """List the fields of a structure: names with `*` are addresses, with `.` doubles, others integers."""
    kinds = {"*": _ADDRESS, ".": _DOUBLE}
    return [(name.strip("*."), kinds.get(name[-1], _INT64)) for name in text.split()]


class _Points(ctypes.Structure):
    _fields_ = _list_fields(
        "count end* share* channel* kind* channel_count is_message* comparable_count comparable* base*"
        " other_count time* own_time* other_channel* other_kind* other_channel_count send receive"
        " first. last. beyond."
    )


class _Search(ctypes.Structure):
    _fields_ = _list_fields(
        "offset. rate. center. tolerance. margin. capacity pairs links point* other* link* residual*"
        " link_channel* link_other* pair_count* residuals* squares* shares* evidence* scatter* missing*"
        " weight* own_within* others_within* within_ns. stamp* owner_stamp* stamps best* touched* owner*"
    )


class _Evidence(ctypes.Structure):
    _fields_ = _list_fields(
        "usual. prior_count. lockstep. missing. missing_message. measurable measurable_whole sharpest."
        " is_chosen*"
    )


class VotesArgument(ctypes.Structure):
    """`Votes` of `near.c`."""

    _fields_ = _list_fields(
        "count end* expected* low* high* other_count times* half_width. least. most. first. last."
        " votes inside*"
    )


LIBRARY = load_library(
    Path(__file__).with_name("near.c"),
    {
        "near_points_size": ctypes.sizeof(_Points),
        "near_search_size": ctypes.sizeof(_Search),
        "near_evidence_size": ctypes.sizeof(_Evidence),
        "near_votes_size": ctypes.sizeof(VotesArgument),
    },
)
for _name in ("near_check", "near_search", "near_weigh", "near_count_votes"):
    getattr(LIBRARY, _name).restype = _INT64
LIBRARY.near_fit_line.argtypes = [
    _INT64,
    *[_ADDRESS] * 3,
    _DOUBLE,
    _DOUBLE,
    _INT64,
    _ADDRESS,
    _ADDRESS,
]


def point_to(structure: ctypes.Structure, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Set the addresses of columns in a structure; the caller holds the columns as long as it."""
    for name, column in columns.items():
        setattr(structure, name, column.ctypes.data)


class Pairs(Struct, frozen=True, kw_only=True):
    """Pairs of an event of a domain and a row of the reference for the same operation.

    Each event and, in each channel, each operation occurs at most once.

    Attributes:
        event_row: Row of the event, ascending.
        reference_row: Row of the reference.
        scatter_ns: Scatter of the pairs of the event's channel.
        evidence: Logarithm of the likelihood ratio of all channels together.
    """

    event_row: Int64s
    reference_row: Int64s
    scatter_ns: Floats
    evidence: float


class Start(Struct, frozen=True, kw_only=True):
    """A first line, and the operations that a fit begins with.

    Attributes:
        line: The line.
        evidence: Its evidence, of operations within a distance.
        sharpest: Rows of the events and residuals (ns) of pairs of channels with many operations in common
            and little scatter, the best pair of channels first.
    """

    line: Line
    evidence: float
    sharpest: Sequence[tuple[Int64s, Floats]]


class Comparison:
    """Events of one domain and operations of a timeline, compared by many lines; for one thread at a time.

    Args:
        events: Events of one domain, or of several with their corrections applied.
        reference: Operations of the timeline.
    """

    def __init__(self, events: Events, reference: Reference) -> None:
        self.events, self.reference = events, reference
        first, channel = find_distinct(events.channel)
        other_channel = find_distinct(reference.channels)[1]
        is_message = np.bincount(channel[events.is_message], minlength=len(first)) > 0
        self._channel = channel
        self._is_exchange: Bools = np.bincount(channel[events.kind == SEND_RECEIVE], minlength=len(first)) > 0
        keys = list_distinct(reference.key)
        limits = (
            (float(reference.times.min()), float(reference.times.max())) if len(reference) else (0.0, 0.0)
        )
        stride = limits[1] - limits[0] + 4 * _BEYOND_NS
        rows = np.flatnonzero(np.isin(events.key, keys))
        base = np.searchsorted(keys, events.key[rows]) * stride - limits[0]
        order = np.lexsort((events.end[rows] + base, channel[rows]))
        section = np.searchsorted(keys, reference.key)
        self._columns: dict[str, npt.NDArray[Any]] = {
            "end": np.ascontiguousarray(events.end),
            "share": 1 / _count_repeats(events),
            "channel": channel.astype(np.int32),
            "kind": events.kind.astype(np.int32),
            "is_message": is_message,
            "comparable": rows[order].astype(np.int32),
            "base": base[order].astype(np.float64),
            "time": reference.times - limits[0] + section * stride,
            "own_time": np.ascontiguousarray(reference.times),
            "other_channel": other_channel.astype(np.int32),
            "other_kind": reference.kind.astype(np.int32),
        }
        self._points = _Points(
            count=len(events),
            channel_count=len(first),
            comparable_count=len(rows),
            other_count=len(reference),
            other_channel_count=int(other_channel.max(initial=-1)) + 1,
            send=SEND,
            receive=RECEIVE,
            first=limits[0],
            last=limits[1],
            beyond=_BEYOND_NS,
        )
        point_to(self._points, self._columns)
        if LIBRARY.near_check(ctypes.byref(self._points)):
            raise ValueError("the operations are not in order of key and time")
        self._tested = self._list_tested(keys)
        # fits from several starts often end in one line, or in one that they passed
        self._known: dict[tuple[Line, float], tuple[float, float, float]] = {}
        # room for a search
        points, channels, others = self._points, self._points.channel_count, self._points.other_channel_count
        self._search, self._evidence = _Search(margin=SKEW_NS), _Evidence(**_WEIGHING)
        self._held = {
            "own_within": np.empty(channels, np.int32),
            "others_within": np.empty(others, np.int32),
            "stamp": np.zeros(others, np.int64),
            "owner_stamp": np.zeros(points.other_count, np.int64),
            **{name: np.empty(others, np.int32) for name in ("best", "touched")},
            "owner": np.empty(points.other_count, np.int32),
        }
        point_to(self._search, self._held)
        self._grow(2 * points.count + 1)  # mostly enough

    def _grow(self, capacity: int) -> None:
        """Reserve room for pairs, and as many pairs of channels."""
        floats = ("residual", "residuals", "squares", "shares", "evidence", "scatter", "missing", "weight")
        self._pairs: dict[str, npt.NDArray[Any]] = {
            **{name: np.empty(capacity, np.int32) for name in ("point", "other", "link")},
            **{name: np.empty(capacity, np.int32) for name in ("link_channel", "link_other")},
            **{name: np.empty(capacity) for name in floats},
            "pair_count": np.empty(capacity, np.int64),
        }
        self._is_chosen = np.empty(capacity, np.bool_)
        self._search.capacity = capacity
        point_to(self._search, self._pairs)
        point_to(self._evidence, {"is_chosen": self._is_chosen})

    def _weigh(self, line: Line, tolerance_ns: float, scatter_ns: float) -> tuple[float, Int64s]:
        """Find and weigh the pairs by a line; return their evidence, and the chosen pairs of channels."""
        search, evidence = self._search, self._evidence
        search.offset, search.rate, search.center = line.offset_ns, line.rate, line.center_ns
        search.tolerance, evidence.usual = tolerance_ns, scatter_ns
        while LIBRARY.near_search(ctypes.byref(self._points), ctypes.byref(search)):
            self._grow(2 * search.capacity)
        LIBRARY.near_weigh(ctypes.byref(self._points), ctypes.byref(search), ctypes.byref(evidence))
        chosen = np.flatnonzero(self._is_chosen[: search.links])
        against = self._contradict(line, self._pairs["link_channel"][chosen]) if self._tested else 0.0
        return float(self._pairs["evidence"][chosen].sum()) + against, chosen

    def weigh(self, line: Line, scatter_ns: float) -> tuple[float, float, float]:
        """Return the evidence of a line within `SKEW_NS`, that of exchanges, and the least scatter.

        Exchanges are the channels of messages that are not known to be sends or receives. The scatter is that
        of channels with enough pairs to measure it; infinite without any.
        """
        known = self._known.get((line, scatter_ns))
        if known is None:
            evidence, chosen = self._weigh(line, SKEW_NS, scatter_ns)
            exchanges = chosen[self._is_exchange[self._pairs["link_channel"][chosen]]]
            known = evidence, float(self._pairs["evidence"][exchanges].sum()), self._evidence.sharpest
            self._known[line, scatter_ns] = known
        return known

    def pair(self, line: Line, scatters_ns: Sequence[float]) -> Pairs:
        """Pair the events within `SKEW_NS` of operations by a line, with the scatter that explains them best.

        Each channel of the domain is paired with one channel of the timeline, the one with most evidence; a
        channel without evidence is not paired. Channels of one communicator that overlap in time but have no
        operation at the same time are evidence against the line.
        """
        return max((self._pair(line, scatter) for scatter in scatters_ns), key=lambda pairs: pairs.evidence)

    def _pair(self, line: Line, scatter_ns: float) -> Pairs:
        self._known.pop((line, scatter_ns), None)  # its pairs are not kept
        evidence = self.weigh(line, scatter_ns)[0]
        link = self._pairs["link"][: self._search.pairs]
        rows = np.flatnonzero(self._is_chosen[link])
        rows = rows[np.argsort(self._pairs["point"][rows], kind="stable")]
        return Pairs(
            event_row=self._pairs["point"][rows].astype(np.int64),
            reference_row=self._pairs["other"][rows].astype(np.int64),
            scatter_ns=self._pairs["scatter"][link[rows]],
            evidence=evidence,
        )

    def start(self, line: Line, *, within_ns: float = NEAR_NS) -> Start:
        """Weigh a line roughly, by operations within some distance, and list the pairs a fit begins with."""
        evidence, _ = self._weigh(line, within_ns, within_ns / 3)
        links, pairs = self._search.links, self._search.pairs
        count, squares, sums, weight = (
            self._pairs[name][:links] for name in ("pair_count", "squares", "residuals", "weight")
        )
        spread = np.sqrt(np.maximum(squares / count - (sums / count) ** 2, 0.0))
        spread[count < _MIN_SHARP] = NEAR_NS / 2
        merit = count * weight / (spread + FIRST_SCATTER_NS)
        point, residual, link = (self._pairs[name][:pairs] for name in ("point", "residual", "link"))
        # pairs of a pair of channels follow each other only within their channel
        rows = [np.flatnonzero(link == one) for one in np.argsort(-merit, kind="stable")[:_MAX_STARTS]]
        sharpest = [(point[own].astype(np.int64), residual[own]) for own in rows]
        return Start(line=line, evidence=evidence, sharpest=sharpest)

    def _list_tested(self, keys: npt.NDArray[np.integer[Any]]) -> list[tuple[Int64s, Floats]]:
        """List the collectives with a communicator that the timeline has as well, by key.

        Also those of the timeline.
        """
        events = self.events
        is_tested = (events.has_communicator > 0) & ~events.is_message
        return [
            (
                np.flatnonzero(is_tested & (events.key == key)),
                self.reference.times[slice(*self.reference.of_key(key))],
            )
            for key in list_distinct(events.key[is_tested & np.isin(events.key, keys)]).tolist()
        ]

    def _contradict(self, line: Line, paired: npt.NDArray[np.int32]) -> float:
        """Return the evidence against a line by collectives of a communicator that are at other times."""
        is_paired = mark_rows(paired, self._points.channel_count)
        against = 0.0
        for rows, times in self._tested:
            own = self.events.end[rows[~is_paired[self._channel[rows]]]]
            if not len(own):
                continue
            own = own + line.at(own)
            since, until = max(own.min(), times[0]), min(own.max(), times[-1])
            low, high = np.searchsorted(times, since), np.searchsorted(times, until, side="right")
            own_count = int(np.count_nonzero((own >= since) & (own <= until)))
            both = min(own_count, max(int(high) - int(low), 0))
            against -= min(MISSING * both, _MAX_CONTRADICTION)
        return against


def _count_repeats(events: Events) -> Int64s:
    """Count the channels that have an event of this key at the same time.

    Tensor slices do the same together.
    """
    apart = 2 * SKEW_NS + float(np.ptp(events.end)) if len(events) else 1.0
    times = events.end - events.end.min(initial=0.0) + find_distinct(events.key)[1] * apart
    order = np.argsort(times)  # of equal times in any order
    times = times[order]
    low = np.searchsorted(times, times - SKEW_NS)
    high = np.searchsorted(times, times + SKEW_NS, side="right")
    repeats = np.empty(len(events), dtype=np.int64)
    repeats[order] = high - low
    return repeats
