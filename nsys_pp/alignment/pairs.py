"""Which channels of a domain are which on the timeline, once a line lays the one onto the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import MOST_DRIFT, Line, spread_of
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s

SKEW_NS = 60_000.0
"""Ends of one collective differ by less, but for exceptions (2 to 26 us on two H100s of one machine)."""

_SHARE = 0.75  # of the operations that two channels could share must be shared
_EQUAL_NS = 6_000.0  # channels that scatter, or lie apart, by no more are equally good
_FEWEST = 3  # operations, where the channels have as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The operations of a timeline, in order of key and time; `Events` says what the arrays are."""

    key: Int64s
    times: Floats  # ends, on the timeline's clock, ns since the events' origin
    gap_before: Floats
    gap_after: Floats
    gap_place: Int64s
    channels: Int64s  # of the timeline
    instances: Int64s

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Reference:
        """Return some of the operations."""
        return Reference(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    def of_key(self, key: int) -> tuple[int, int]:
        """Return the first row of a key, and the one after its last."""
        first, stop = np.searchsorted(self.key, (key, key + 1))
        return int(first), int(stop)

    def insert(self, other: Reference) -> Reference:
        """Return the operations of both."""
        at = np.empty(len(other), dtype=np.int64)
        for key in np.unique(other.key).tolist():
            (first, stop), (low, high) = self.of_key(key), other.of_key(key)
            at[low:high] = first + np.searchsorted(self.times[first:stop], other.times[low:high])
        return Reference(
            **{
                name: np.insert(getattr(self, name), at, getattr(other, name))
                for name in self.__dataclass_fields__
            }
        )


def refer(own: Events, times: Floats, channels: Int64s, instances: Int64s) -> Reference:
    """Make operations something to be compared with.

    Args:
        own: The operations.
        times: When they ended on the timeline's clock.
        channels: Of the timeline.
        instances: Which operation each is.
    """
    order = np.lexsort((times, own.key))
    return Reference(
        key=own.key[order],
        times=times[order],
        gap_before=own.gap_before[order],
        gap_after=own.gap_after[order],
        gap_place=own.gap_place[order],
        channels=channels[order],
        instances=instances[order],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Rows of the domain and of the reference that are one operation, by row of the domain."""

    own: Int64s
    reference: Int64s

    def count(self, reference: Reference) -> int:
        """Count the different operations."""
        return len(np.unique(reference.instances[self.reference]))


def pair_events(own: Events, reference: Reference, line: Line, *, tolerance_ns: float = SKEW_NS) -> Pairs:
    """Pair operations that a line lays near to each other, of channels that share most of theirs.

    That two operations lie near each other means little where there are many; that those before or
    after them do as well, and that this goes on all along two channels, means that they are one.

    Args:
        own: Operations of one domain.
        reference: What they are compared with.
        line: Lays the domain onto the timeline.
        tolerance_ns: What is near.
    """
    predicted = own.end + line.at(own.end)
    x, ref = _near(own, predicted, reference, tolerance_ns)
    agrees = _gaps_agree(own, reference, x, ref)
    x, ref = x[agrees], ref[agrees]
    joined = _join_channels(own, predicted, reference, x, ref)
    chosen = joined[own.channel[x] - own.channel.min(initial=0)] == reference.channels[ref] if len(x) else []
    x, ref = x[chosen], ref[chosen]
    order = np.lexsort((np.abs(reference.times[ref] - predicted[x]), x))
    x, ref = x[order], ref[order]
    nearest = np.diff(x, prepend=-1) > 0
    return Pairs(own=x[nearest], reference=ref[nearest])


def keep_consensus(pairs: Pairs, own: Events, reference: Reference, line: Line) -> Pairs:
    """Leave out channels that scatter more than the best of them, or lie elsewhere.

    Ranks that do the same at nearly the same time without being one collective (replicas of a stage,
    each with its own tensor-parallel group) scatter by tens of microseconds.
    """
    residual = reference.times[pairs.reference] - own.end[pairs.own] - line.at(own.end[pairs.own])
    channels, place = np.unique(own.channel[pairs.own], return_inverse=True)
    middle = np.array([np.median(residual[place == at]) for at in range(len(channels))])
    spread = np.array([spread_of(residual[place == at] - middle[at]) for at in range(len(channels))])
    sure = np.bincount(place, minlength=len(channels)) >= _FEWEST
    if not sure.any():
        return pairs
    best = int(np.argmin(np.where(sure, spread, np.inf)))
    near = (spread <= 3 * spread[best] + _EQUAL_NS) & (
        np.abs(middle - middle[best]) <= 2 * _EQUAL_NS + spread[best]
    )
    return Pairs(own=pairs.own[near[place]], reference=pairs.reference[near[place]])


def _near(own: Events, predicted: Floats, reference: Reference, tolerance_ns: float) -> tuple[Int64s, Int64s]:
    """List all pairs of one key that lie near each other."""
    low, high = np.zeros(len(own), dtype=np.int64), np.zeros(len(own), dtype=np.int64)
    for key in np.unique(own.key).tolist():
        first, stop = reference.of_key(key)
        chosen = own.key == key
        times = reference.times[first:stop]
        low[chosen] = first + np.searchsorted(times, predicted[chosen] - tolerance_ns)
        high[chosen] = first + np.searchsorted(times, predicted[chosen] + tolerance_ns, side="right")
    return np.repeat(np.arange(len(own)), high - low), expand_windows(low, high)


def _gaps_agree(own: Events, known: Reference, x: Int64s, ref: Int64s) -> npt.NDArray[np.bool_]:
    """Say whether the gap before or the gap after agrees; single operations have none to compare."""
    agrees, single = np.zeros(len(x), dtype=bool), np.ones(len(x), dtype=bool)
    for mine, theirs in (
        (own.gap_before[x], known.gap_before[ref]),
        (own.gap_after[x], known.gap_after[ref]),
    ):
        with np.errstate(invalid="ignore"):
            agrees |= np.abs(mine - theirs) <= 2 * SKEW_NS + MOST_DRIFT * mine
        single &= np.isnan(mine) | np.isnan(theirs)
    return agrees | single


def _join_channels(own: Events, predicted: Floats, reference: Reference, x: Int64s, ref: Int64s) -> Int64s:
    """Find for each channel of the domain the channel of the timeline that it is, or -1.

    Returns:
        By number of the domain's channel, less the lowest of them.
    """
    lowest = int(own.channel.min(initial=0))
    joined = np.full(int(own.channel.max(initial=0)) - lowest + 1, -1, dtype=np.int64)
    if not len(x):
        return joined
    width = int(reference.channels.max()) + 1
    once = np.unique(own.channel[x] * width * len(own) + reference.channels[ref] * len(own) + x) // len(own)
    pairs, counts = np.unique(once, return_counts=True)
    mine, theirs = pairs // width, pairs % width
    order = np.lexsort((theirs, -counts, mine))
    best = order[np.diff(mine[order], prepend=-1) > 0]
    for channel, number, count in zip(mine[best], theirs[best], counts[best], strict=True):
        times = np.sort(predicted[own.channel == channel])
        known = np.sort(reference.times[reference.channels == number])
        shared = min(_count_within(times, known), _count_within(known, times))
        if count >= max(_SHARE * shared, min(_FEWEST, len(times), len(known))):
            joined[channel - lowest] = number
    return joined


def _count_within(times: Floats, others: Floats) -> int:
    """Count the times (in order) between the first and the last of others."""
    low, high = np.searchsorted(times, (others[0] - SKEW_NS, others[-1] + SKEW_NS))
    return int(high - low)
