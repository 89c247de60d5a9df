"""Iterations of a device from the order of its launches, where nothing names them.

An iteration runs the same kernels as often as the one before. So a launch that occurs once per iteration, the anchor,
cuts the launches into segments in which (nearly) every name occurs equally often:

launches   [ embed layer layer loss layer' layer' update embed layer layer loss layer' layer' update ...
embed      |--------------------------------------------|----------------------------------------    constant: all
layer            |-----|-------------------------------------|-----|-----------------------------    constant: none
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.order import order_by_number
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.training.report.name_counts import NameCounts

_LEAST_COUNT = 3  # of the launches of an anchor
_MOST_NAMES = 3  # names per launch of a segment: most names of an iteration occur in it
_MOST_CANDIDATES = 48
_SAME = 0.75  # share of segments with the median count, from which a name is constant
_NEARLY = 0.02  # difference of counts, as a share of them, that is none
_UNSTEADY = (
    0.05  # difference of the counts of a segment from the median, as a share of its launches, that is none
)
_MOST_EMPTY = 8  # codes per launch
_KEPT = 0.7  # share of the usual launches, below which a segment is of another kind


class Launches(Struct, frozen=True, kw_only=True, dict=True):
    """Launches of a device, in order of time."""

    name: Int64s  # index of the name
    launch: Int64s  # start of the call
    launched: Int64s  # end of the call
    start: Int64s  # of the first operation on the GPU
    end: Int64s
    thread: Int64s  # index of the launching thread; -1: unknown
    is_update: Bools  # by index of the name: an optimizer runs it, at most a few times in an iteration
    is_backward: Bools  # by index of the name: a backward runs it
    is_gradient: Bools  # by index of the name: nothing but a backward runs it
    is_communication: Bools  # by index of the name
    is_message: Bools  # by index of the name: a send or a receive
    is_copy: Bools  # by index of the name: a copy or a set
    to_host: Bools  # by index of the name: a copy to the host
    is_input: Bools  # by index of the name: a copy to the device
    is_graph: Bools  # by index of the name: a CUDA graph

    @cached_property
    def counts(self) -> NameCounts:
        """Counts of names between positions."""
        return NameCounts(self.name, len(self.is_update))

    def head(self, count: int) -> Launches:
        """Return the first launches."""
        columns = ("name", "launch", "launched", "start", "end", "thread")
        return replace(self, **{column: getattr(self, column)[:count] for column in columns})


class Cut(Struct, frozen=True, kw_only=True):
    """Launches cut at the occurrences of an anchor."""

    begin: Int64s  # positions of the anchor
    median: Floats  # by index of the name: launches per segment
    is_constant: Bools  # by index of the name: nearly all segments have the median count
    steady: int  # segments with nearly the median counts
    is_usual: Bools  # by segment; others replace launches, as the prefills of an inference do
    score: float  # share of names that are constant, 0 to 1
    covered: float  # share of launches from the first to the last anchor that are of constant names
    size: int  # launches of the median segment
    after: float  # share of the launches since the first anchor that follow the last segment, 0 to 1


def list_candidates(name: Int64s, *, most: int | None = None) -> Iterator[Int64s]:
    """List the positions of names and pairs of names that may occur once per iteration, the most promising first.

    Args:
        name: Index of the name of each launch.
        most: Occurrences of a candidate, at most. Default: any.
    """
    names = int(name.max(initial=-1)) + 1
    first, size, at = group_grams(name)
    is_possible = (size >= _LEAST_COUNT) & (size * names <= _MOST_NAMES * len(name)) & (2 * size <= len(name))
    if most is not None:
        is_possible &= size <= most
    rows = np.flatnonzero(is_possible)
    if not len(rows):
        return
    spread = _measure_spread(at, first, size)
    # of the candidates with one count, the most regular first; counts with many candidates first
    rows = rows[np.lexsort((rows, spread[rows], size[rows]))]
    _, begin, members = np.unique(size[rows], return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(begin, members)
    promise = rank + spread[rows] - 0.3 * np.log(np.repeat(members, members))
    for row in rows[np.argsort(promise, kind="stable")][:_MOST_CANDIDATES]:
        yield at[first[row] : first[row] + size[row]]


def group_grams(name: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Group launches by name, then by pair of adjacent names; a pair is at its second name.

    Returns:
        First index and size of each group, by name, then by pair; positions, by group.
    """
    names = int(name.max(initial=-1)) + 1
    pair = np.append(0, name[:-1] * names + name[1:] + 1)[
        : len(name)
    ]  # 0: the first launch has no launch before it
    first, size, at = _group(name, names)
    first_of_pair, size_of_pair, at_of_pair = _group(pair, names * names + 1)
    return (
        np.concatenate([first, first_of_pair + len(name)]),
        np.concatenate([size, size_of_pair]),
        np.concatenate([at, at_of_pair]),
    )


def _group(code: Int64s, limit: int) -> tuple[Int64s, Int64s, Int64s]:
    """Group rows by code, from 0 to `limit`: first index and size of each group that has rows, and rows by group."""
    if limit > _MOST_EMPTY * len(code):  # a table by code would be mostly empty
        code = find_distinct(code)[1]
        limit = int(code.max(initial=-1)) + 1
    at, before = order_by_number(code, limit)
    size = np.diff(before)
    used = np.flatnonzero(size)
    return before[used], size[used], at


def _measure_spread(at: Int64s, first: Int64s, size: Int64s) -> Floats:
    """Measure the standard deviation of the logarithms of the gaps between positions, by group."""
    gap = np.log(np.maximum(np.diff(at, append=0), 1))
    gap[first + size - 1] = 0
    count = np.maximum(size - 1, 1)
    mean = np.add.reduceat(gap, first) / count
    spread: Floats = np.sqrt(np.maximum(np.add.reduceat(gap * gap, first) / count - mean * mean, 0))
    return spread


def count_names(launches: Launches, begin: Int64s) -> Int64s:
    """Count the launches of each segment (rows) by name (columns)."""
    return launches.counts.count(begin)


def cut_at(launches: Launches, begin: Int64s, *, with_kinds: bool = False) -> Cut:
    """Cut launches at some positions, at least three, and compare the segments.

    Args:
        launches: Launches of a device.
        begin: Positions.
        with_kinds: Some segments may be of another kind: they have other launches instead of the usual ones.
    """
    counts = count_names(launches, begin)
    length = np.diff(begin)
    median = np.floor(np.median(counts, axis=0))
    is_usual = np.ones(len(length), dtype=np.bool_)
    if with_kinds:
        kept = np.minimum(counts, median).sum(axis=1)
        is_replaced = ((median * launches.is_graph > 0) & (counts == 0)).any(axis=1)
        is_usual = (kept >= _KEPT * median.sum()) & ~is_replaced
        counts = counts[is_usual]
        median = np.floor(np.median(counts, axis=0)) if len(counts) else median
    size = int(np.median(length[is_usual] if is_usual.any() else length))
    exists: Bools = counts.sum(axis=0) > 0
    if not with_kinds:
        # names around, too: an iteration that the capture cuts is at most as long as a whole one
        exists[launches.name[max(begin[0] - size, 0) : begin[0]]] = True
        exists[launches.name[begin[-1] : begin[-1] + size]] = True
    same = (np.abs(counts - median) <= _NEARLY * median).mean(axis=0) if len(counts) else 0 * median
    is_constant = (median >= 1) & (same >= _SAME)
    weight = np.where(launches.is_copy, 0.5, 1.0) * exists
    last = min(begin[-1] + size, len(launches.name))
    return Cut(
        begin=begin,
        median=median,
        is_constant=is_constant,
        steady=int((np.abs(counts - median).sum(axis=1) <= _UNSTEADY * size).sum()),
        is_usual=is_usual,
        score=float((weight * is_constant * same).sum() / max(weight.sum(), 1e-9)),
        covered=float(counts[:, is_constant].sum() / max(counts.sum(), 1)),
        size=size,
        after=float((len(launches.name) - last) / max(len(launches.name) - begin[0], 1)),
    )
