"""Busy time of ranges: the union of their operations' intervals, for all ranges at once.

The union of intervals is their sum minus the time that is counted more than once. Cut time into slots at
every start and end of an operation; a slot that k operations of a range cover is counted k - 1 times too
often. The operations that cover one slot, in order of their calls, form a chain of k - 1 links between
neighbours. A range counts a slot once too often for each link whose two calls are inside the range. So with
L(range) = total length of the links inside,

    busy(range) = sum of its operations - L(range)

holds for every range, and both sums are differences of prefix sums: their cost depends neither on the
number of calls that a range encloses nor on the depth of nesting.

Where calls of several threads overlap, a call is inside a range if it starts late enough and ends early
enough. A call is loose if it starts earlier and ends later than the call of another operation in the same
slot. A loose call adds nothing to the union when it is inside a range, since the other call is inside as well:
its operation is a link by itself. The other operations form the chain.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.types import Int64s

# Small windows are summed directly, as long as they hold at most this many operations in total for
# each operation of the report; that is cheaper than summing all links.
_DIRECT_READS = 8
# Operations read directly at a time: bounds memory and fits the processor cache.
_READ_CHUNK = 1 << 18
# Slots times the operations that cover them, processed at a time: bounds memory.
_COVER_CHUNK = 1 << 22


def measure_busy(
    *,
    op_start: Int64s,
    op_end: Int64s,
    op_call_by_start: Int64s,
    op_call_by_end: Int64s,
    op_owner: Int64s,
    call_count: int,
    segment_row: Int64s,
    segment_first: Int64s,
    segment_last: Int64s,
    first_by_start: Int64s,
    last_by_end: Int64s,
) -> Int64s:
    """Measure the union of the operations of each row.

    Args:
        op_start: ns on the GPU; operations are in order of the start of their calls.
        op_end: ns on the GPU.
        op_call_by_start: Position of each operation's call in order of (owner, start).
        op_call_by_end: Position of each operation's call in order of (owner, end).
        op_owner: Owner (0, 1, ...) of each operation's call; a row's operations have one owner.
        call_count: Number of calls.
        segment_row: Row of each segment, ascending; every row has at least one.
        segment_first: First operation of each segment.
        segment_last: Operation after the last of each segment.
        first_by_start: Lowest position by start of the calls inside each row.
        last_by_end: Position by end after the last call inside each row. A call is inside if neither limit
            excludes it.

    Returns:
        ns per row.
    """
    row_count = len(first_by_start)
    total = np.concatenate([[0], np.cumsum(op_end - op_start)])
    busy = _sum_by_row(segment_row, total[segment_last] - total[segment_first], row_count)
    op_start, op_end = _separate_owners(op_start, op_end, op_owner)
    overlapping = _find_overlapping(op_start, op_end)
    if not overlapping.any():
        return busy

    crossings = np.concatenate([[0], np.cumsum(overlapping)])
    crossing_count = _sum_by_row(segment_row, crossings[segment_last] - crossings[segment_first], row_count)
    op_count = _sum_by_row(segment_row, segment_last - segment_first, row_count)
    # A range with a single overlapping operation has no overlap inside.
    crowded = np.flatnonzero(crossing_count > 1)
    crowded = crowded[np.argsort(op_count[crowded], kind="stable")]
    small_count = np.searchsorted(np.cumsum(op_count[crowded]), _DIRECT_READS * len(op_start), side="right")
    is_small, is_large = np.zeros(row_count, dtype=bool), np.zeros(row_count, dtype=bool)
    is_small[crowded[:small_count]] = True
    is_large[crowded[small_count:]] = True
    if is_small.any():
        chosen = is_small[segment_row]
        busy[is_small] = _union_by_sorting(
            op_start, op_end, segment_row[chosen], segment_first[chosen], segment_last[chosen]
        )
    if is_large.any():
        rows = np.flatnonzero(overlapping)
        links = _find_links(op_start[rows], op_end[rows], op_call_by_start[rows], op_call_by_end[rows])
        busy[is_large] -= _sum_links(*links, call_count, first_by_start[is_large], last_by_end[is_large])
    return busy


def _sum_by_row(row: Int64s, values: Int64s, row_count: int) -> Int64s:
    """Sum values per row; float64 is exact up to 2**53 ns, 104 days."""
    return np.bincount(row, weights=values, minlength=row_count).astype(np.int64)


def _separate_owners(start: Int64s, end: Int64s, owner: Int64s) -> tuple[Int64s, Int64s]:
    """Shift the operations of each owner to a disjoint interval: no range needs overlaps between owners.

    The shift only saves time, so it is skipped where the shifted times would overflow.
    """
    earliest = int(start.min())
    span = int(end.max()) - earliest + 1
    if span * (int(owner.max()) + 1) > np.iinfo(np.int64).max // 2:
        return start, end
    shift = owner * span - earliest
    return start + shift, end + shift


def _find_overlapping(start: Int64s, end: Int64s) -> npt.NDArray[np.bool_]:
    """Return the mask of intervals that may overlap another one."""
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    joins_previous = np.zeros(len(start), dtype=bool)
    joins_previous[1:] = start[order][1:] < reach[:-1]
    joins = joins_previous.copy()
    joins[:-1] |= joins_previous[1:]
    result = np.empty(len(start), dtype=bool)
    result[order] = joins
    return result


def _union_by_sorting(op_start: Int64s, op_end: Int64s, row: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Compute the union per distinct row by sorting its operations."""
    by_start = np.argsort(op_start, kind="stable")
    rank = np.empty(len(op_start), dtype=np.int64)
    rank[by_start] = np.arange(len(op_start))
    begins = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    size = last - first
    chunk = (np.cumsum(size) - size)[begins] // _READ_CHUNK
    bounds = [*begins[np.append(True, chunk[1:] != chunk[:-1])].tolist(), len(row)]
    unions = []
    for low, high in pairwise(bounds):
        reads = expand_windows(first[low:high], last[low:high])
        key = np.sort((np.repeat(row[low:high], size[low:high]) << 32) | rank[reads])
        op = by_start[key & 0xFFFFFFFF]
        unions.append(_union_sorted(key >> 32, op_start[op], op_end[op]))
    return np.concatenate(unions)


def _union_sorted(row: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Compute the union per distinct row of intervals in order of (row, start)."""
    is_first = np.append(True, row[1:] != row[:-1])
    reach = running_maximum(np.cumsum(is_first), end)
    previous_end = np.where(is_first, start, np.roll(reach, 1))
    added = np.maximum(end - np.maximum(start, previous_end), 0)
    return np.add.reduceat(added, np.flatnonzero(is_first))


def _find_links(
    start: Int64s, end: Int64s, call_by_start: Int64s, call_by_end: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Find all links: lower position by start and higher position by end of their calls, and length in ns."""
    times = np.sort(np.concatenate([start, end]))
    times = times[np.append(True, times[1:] > times[:-1])]
    length = np.diff(times)
    first_slot = np.searchsorted(times, start)
    last_slot = np.searchsorted(times, end)
    cover = np.cumsum(
        np.bincount(first_slot, minlength=len(times)) - np.bincount(last_slot, minlength=len(times))
    )
    chunk = np.cumsum(cover) // _COVER_CHUNK
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(chunk)) + 1, [len(times)]])
    parts = [
        _link_chunk(first_slot, last_slot, call_by_start, call_by_end, length, low, high)
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    low_call, high_call, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    return low_call, high_call, weight


def _link_chunk(
    first_slot: Int64s,
    last_slot: Int64s,
    call_by_start: Int64s,
    call_by_end: Int64s,
    length: Int64s,
    low: int,
    high: int,
) -> tuple[Int64s, Int64s, Int64s]:
    """Find the links of the slots `[low, high)`."""
    covering = np.flatnonzero((first_slot < high) & (last_slot > low))
    begin, stop = np.maximum(first_slot[covering], low), np.minimum(last_slot[covering], high)
    covered = np.sort((expand_windows(begin, stop) << 32) | np.repeat(covering, stop - begin))
    slot, op = covered >> 32, covered & 0xFFFFFFFF
    begins, ends = call_by_start[op], call_by_end[op]

    # Running minimum of ends from the back, within a slot: later slots have larger keys.
    key = (slot << 32) | ends
    tightest_after = np.minimum.accumulate(key[::-1])[::-1]
    is_loose = np.zeros(len(op), dtype=bool)
    is_loose[:-1] = (slot[1:] == slot[:-1]) & (tightest_after[1:] <= key[:-1])

    chain = np.flatnonzero(~is_loose)
    linked = slot[chain[1:]] == slot[chain[:-1]]
    left, right = chain[:-1][linked], chain[1:][linked]
    return (
        np.concatenate([begins[is_loose], begins[left]]),
        np.concatenate([ends[is_loose], ends[right]]),
        np.concatenate([length[slot[is_loose]], length[slot[left]]]),
    )


def _sum_links(
    low_call: Int64s, high_call: Int64s, weight: Int64s, call_count: int, first: Int64s, last: Int64s
) -> Int64s:
    """Sum the links with `low >= first` and `high < last`.

    That is the sum of links that end before `last`, minus links that begin before `first`, plus links
    that begin before and end after the window, which were subtracted without having been added.
    """
    ending = np.zeros(call_count + 1, dtype=np.int64)
    ending[1:] = np.cumsum(np.bincount(high_call, weights=weight, minlength=call_count)).astype(np.int64)
    beginning = np.zeros(call_count + 1, dtype=np.int64)
    beginning[1:] = np.cumsum(np.bincount(low_call, weights=weight, minlength=call_count)).astype(np.int64)
    return ending[last] - beginning[first] + sum_around(low_call, high_call, weight, first, last)


def sum_around(low: Int64s, high: Int64s, weight: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Sum per window the weights of the links around it: `low < first` and `high >= last`.

    In order of `low`, the links of every window are a prefix. A prefix is split into blocks of sizes
    2**k, each sorted by `high`, in which the sum is a difference of prefix sums: O((links + windows)
    log**2), in one pass per bit of the number of links.

    >>> link = np.array([0, 2, 5]), np.array([9, 3, 8]), np.array([100, 10, 1])
    >>> sum_around(*link, first=np.array([6, 3, 0]), last=np.array([8, 4, 1]))
    array([101, 100,   0])
    """
    result = np.zeros(len(first), dtype=np.int64)
    low, high, weight, windows = _keep_around(low, high, weight, first, last)
    if not len(low) or not len(windows):
        return result
    order = np.argsort(low, kind="stable")
    high, weight = high[order], weight[order]
    prefix = np.searchsorted(low[order], first[windows], side="left")
    last = last[windows]
    total = np.zeros(len(windows), dtype=np.int64)
    position = np.arange(len(high))
    for level in range(len(high).bit_length()):
        selected = np.flatnonzero((prefix >> level) & 1)
        if not len(selected):
            continue
        key = ((position >> level) << 32) | high
        by_key = np.argsort(key, kind="stable")
        sums = np.concatenate([[0], np.cumsum(weight[by_key])])
        block = (prefix[selected] >> level) - 1
        below = np.searchsorted(key[by_key], (block << 32) | last[selected], side="left")
        total[selected] += sums[(block + 1) << level] - sums[below]
    result[windows] = total
    return result


def _keep_around(
    low: Int64s, high: Int64s, weight: Int64s, first: Int64s, last: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Drop links that enclose no window and windows without an enclosing link."""
    by_first = np.argsort(first, kind="stable")
    earliest_last = np.minimum.accumulate(last[by_first][::-1])[::-1]
    later = np.searchsorted(first[by_first], low, side="right")
    keep = later < len(first)
    keep[keep] = high[keep] >= earliest_last[later[keep]]
    low, high, weight = low[keep], high[keep], weight[keep]
    if not len(low):
        return low, high, weight, np.zeros(0, dtype=np.int64)
    by_low = np.argsort(low, kind="stable")
    latest_high = np.maximum.accumulate(high[by_low])
    before = np.searchsorted(low[by_low], first, side="left")
    windows = np.flatnonzero(before > 0)
    return low, high, weight, windows[latest_high[before[windows] - 1] >= last[windows]]
