"""How long at least one operation of a range was running, for all ranges at once.

The union of many intervals is their sum less what is counted twice. Cut time at every start
and end of an operation; where k operations of a range cover the same piece of time, k - 1 of
them are counted too often. The operations that cover one piece, in order of their calls, form
a chain of k - 1 links between neighbours, and of the calls inside a range exactly the links
with both ends inside are too many. So with L(range) = length of the links inside,

    busy(range) = sum of its operations - L(range)

holds for every range, and neither sum needs to look at the range's operations one by one: both
are differences of prefix sums, however many calls a range encloses and however deep ranges nest.

Where calls of several threads overlap, a call is inside a range when it starts late enough and
ends early enough. An operation whose call is looser on both counts than another's that covers
the same piece adds nothing when it is inside (the tighter one is, too): it is a link of its own.
The others form the chain.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.types import Int64s

# Small windows are summed directly, which is cheaper than asking all links, as long as they
# together hold so many operations for each there is.
_DIRECT_READS = 8
# Operations read directly at a time: bounds memory, and stays in the processor's cache.
_READ_CHUNK = 1 << 18
# Pieces of time times the operations that cover them, at a time: bounds memory.
_COVER_CHUNK = 1 << 22


def measure_busy(
    *,
    op_start: Int64s,
    op_end: Int64s,
    op_first_call: Int64s,
    op_last_call: Int64s,
    op_owner: Int64s,
    call_count: int,
    piece_row: Int64s,
    piece_first: Int64s,
    piece_last: Int64s,
    first_call: Int64s,
    last_call: Int64s,
) -> Int64s:
    """Measure the union of the operations of each row.

    Args:
        op_start: ns on the GPU; operations are in order of their calls' positions.
        op_end: ns on the GPU.
        op_first_call: Position of each operation's call by start.
        op_last_call: Position of each operation's call by end.
        op_owner: Owner (0, 1, ...) of each operation's call; a row's operations have one owner.
        call_count: Number of positions.
        piece_row: Row of each piece, ascending; every row has at least one.
        piece_first: First operation of each piece.
        piece_last: Operation after the last of each piece.
        first_call: Per row: a call is inside when its position by start is not below this
        last_call: and its position by end is below this.

    Returns:
        ns per row.
    """
    row_count = len(first_call)
    total = np.concatenate([[0], np.cumsum(op_end - op_start)])
    busy = _sum_by_row(piece_row, total[piece_last] - total[piece_first], row_count)
    op_start, op_end = _put_side_by_side(op_start, op_end, op_owner)
    overlapping = _find_overlapping(op_start, op_end)
    if not overlapping.any():
        return busy

    crossings = np.concatenate([[0], np.cumsum(overlapping)])
    crossing_count = _sum_by_row(piece_row, crossings[piece_last] - crossings[piece_first], row_count)
    op_count = _sum_by_row(piece_row, piece_last - piece_first, row_count)
    # One overlapping operation alone in a range overlaps nothing inside it.
    crowded = np.flatnonzero(crossing_count > 1)
    crowded = crowded[np.argsort(op_count[crowded], kind="stable")]
    small_count = np.searchsorted(np.cumsum(op_count[crowded]), _DIRECT_READS * len(op_start), side="right")
    is_small, is_large = np.zeros(row_count, dtype=bool), np.zeros(row_count, dtype=bool)
    is_small[crowded[:small_count]] = True
    is_large[crowded[small_count:]] = True
    if is_small.any():
        chosen = is_small[piece_row]
        busy[is_small] = _union_directly(
            op_start, op_end, piece_row[chosen], piece_first[chosen], piece_last[chosen]
        )
    if is_large.any():
        which = np.flatnonzero(overlapping)
        links = _find_links(op_start[which], op_end[which], op_first_call[which], op_last_call[which])
        busy[is_large] -= _sum_links(*links, call_count, first_call[is_large], last_call[is_large])
    return busy


def _sum_by_row(row: Int64s, values: Int64s, row_count: int) -> Int64s:
    """Sum per row; float64 would lose nanoseconds only past 2**53 of them, 104 days."""
    return np.bincount(row, weights=values, minlength=row_count).astype(np.int64)


def _put_side_by_side(start: Int64s, end: Int64s, owner: Int64s) -> tuple[Int64s, Int64s]:
    """Move the operations of each owner to a time of their own: no range needs their overlap.

    Without the move results are the same, only slower; so where times would not fit, none is made.
    """
    earliest = int(start.min())
    span = int(end.max()) - earliest + 1
    if span * (int(owner.max()) + 1) > np.iinfo(np.int64).max // 2:
        return start, end
    shift = owner * span - earliest
    return start + shift, end + shift


def _find_overlapping(start: Int64s, end: Int64s) -> npt.NDArray[np.bool_]:
    """Say of each interval whether it may share time with another one."""
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    joins_previous = np.zeros(len(start), dtype=bool)
    joins_previous[1:] = start[order][1:] < reach[:-1]
    joins = joins_previous.copy()
    joins[:-1] |= joins_previous[1:]
    result = np.empty(len(start), dtype=bool)
    result[order] = joins
    return result


def _union_directly(op_start: Int64s, op_end: Int64s, row: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Union per row by sorting its operations; returns one value per distinct row, by row."""
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
    """Union per distinct row of intervals in order of (row, start)."""
    is_first = np.append(True, row[1:] != row[:-1])
    reach = running_maximum(np.cumsum(is_first), end)
    previous_end = np.where(is_first, start, np.roll(reach, 1))
    added = np.maximum(end - np.maximum(start, previous_end), 0)
    return np.add.reduceat(added, np.flatnonzero(is_first))


def _find_links(
    start: Int64s, end: Int64s, first_call: Int64s, last_call: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Find all links: position of the looser start, of the looser end, and length in ns."""
    times = np.sort(np.concatenate([start, end]))
    times = times[np.append(True, times[1:] > times[:-1])]
    length = np.diff(times)
    from_piece = np.searchsorted(times, start)
    to_piece = np.searchsorted(times, end)
    cover = np.cumsum(
        np.bincount(from_piece, minlength=len(times)) - np.bincount(to_piece, minlength=len(times))
    )
    chunk = np.cumsum(cover) // _COVER_CHUNK
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(chunk)) + 1, [len(times)]])
    parts = [
        _link_chunk(from_piece, to_piece, first_call, last_call, length, low, high)
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    low_call, high_call, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    return low_call, high_call, weight


def _link_chunk(
    from_piece: Int64s,
    to_piece: Int64s,
    first_call: Int64s,
    last_call: Int64s,
    length: Int64s,
    low: int,
    high: int,
) -> tuple[Int64s, Int64s, Int64s]:
    """Links of the pieces of time `[low, high)`."""
    which = np.flatnonzero((from_piece < high) & (to_piece > low))
    begin, stop = np.maximum(from_piece[which], low), np.minimum(to_piece[which], high)
    covered = np.sort((expand_windows(begin, stop) << 32) | np.repeat(which, stop - begin))
    piece, op = covered >> 32, covered & 0xFFFFFFFF
    begins, ends = first_call[op], last_call[op]

    # Running minimum of ends from the back, within a piece: later pieces have larger keys.
    key = (piece << 32) | ends
    tightest_after = np.minimum.accumulate(key[::-1])[::-1]
    is_loose = np.zeros(len(op), dtype=bool)
    is_loose[:-1] = (piece[1:] == piece[:-1]) & (tightest_after[1:] <= key[:-1])

    chain = np.flatnonzero(~is_loose)
    linked = piece[chain[1:]] == piece[chain[:-1]]
    left, right = chain[:-1][linked], chain[1:][linked]
    return (
        np.concatenate([begins[is_loose], begins[left]]),
        np.concatenate([ends[is_loose], ends[right]]),
        np.concatenate([length[piece[is_loose]], length[piece[left]]]),
    )


def _sum_links(
    low_call: Int64s, high_call: Int64s, weight: Int64s, call_count: int, first: Int64s, last: Int64s
) -> Int64s:
    """Sum the links with `low >= first` and `high < last`.

    Those are the links that end before `last`, less those that begin before `first`, plus
    those that do both wrong (they begin before and end after the whole window), which the
    subtraction has taken away without their having been there.
    """
    ending = np.zeros(call_count + 1, dtype=np.int64)
    ending[1:] = np.cumsum(np.bincount(high_call, weights=weight, minlength=call_count)).astype(np.int64)
    beginning = np.zeros(call_count + 1, dtype=np.int64)
    beginning[1:] = np.cumsum(np.bincount(low_call, weights=weight, minlength=call_count)).astype(np.int64)
    return ending[last] - beginning[first] + sum_around(low_call, high_call, weight, first, last)


def sum_around(low: Int64s, high: Int64s, weight: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Sum per window the weights of the links around it: `low < first` and `high >= last`.

    Links in order of `low` are a prefix for every window; a prefix is taken apart into blocks
    of sizes 2**k, each sorted by `high`, where the sum is a difference of prefix sums:
    O((links + windows) log**2), in as many passes as the number of links has bits.

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
        asks = np.flatnonzero((prefix >> level) & 1)
        if not len(asks):
            continue
        key = ((position >> level) << 32) | high
        by_key = np.argsort(key, kind="stable")
        sums = np.concatenate([[0], np.cumsum(weight[by_key])])
        block = (prefix[asks] >> level) - 1
        below = np.searchsorted(key[by_key], (block << 32) | last[asks], side="left")
        total[asks] += sums[(block + 1) << level] - sums[below]
    result[windows] = total
    return result


def _keep_around(
    low: Int64s, high: Int64s, weight: Int64s, first: Int64s, last: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Drop the links that are around no window and the windows that are inside no link."""
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
