"""Measures of ranges on each target (a device, or one of its streams).

They are the first and last operation, sums, and busy time.

Busy time of ranges: the union of their operations' intervals, for all ranges at once.

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
slot. A loose call adds nothing to the union when it is inside a range, since the other call is inside as
well: its operation is a link by itself. The other operations form the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import gather, index_rows, mark_rows
from nsys_pp.arrays.search import expand_windows, order_by_number, running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_frame
from nsys_pp.frames.report import PROJECTIONS
from nsys_pp.projection.windows import CallsInside


def find_minimum(values: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Find the minimum of `values[first:last]` per window.

    Each window is covered by two windows of the largest power of two that fits, whose minima are computed by
    doubling (a sparse table), so that work is O((positions + windows) log positions) for any windows.

    Args:
        values: One value per position.
        first: First position of each window.
        last: Position after the last; every window holds at least one.

    >>> find_minimum(np.array([5, 3, 8, 1]), np.array([0, 2, 0]), np.array([2, 3, 4]))
    array([3, 8, 1])
    """
    level_of = np.frexp(last - first)[1] - 1  # floor(log2(size)): sizes are far below 2**53
    result = np.empty(len(first), dtype=np.int64)
    minima = values
    for level in range(int(level_of.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level_of == level)
        result[chosen] = np.minimum(minima[first[chosen]], minima[last[chosen] - (1 << level)])
        step = 1 << level
        if len(minima) > step:
            minima = np.minimum(minima[:-step], minima[step:])
    return result


# Small windows are summed directly, as long as they hold at most this many operations in total for
# each operation of the report. By links alone, `project` of a million ranges takes 2.2 times the CPU (7.5 s).
_SUMMED_READS = 8
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
    small_count = np.searchsorted(np.cumsum(op_count[crowded]), _SUMMED_READS * len(op_start), side="right")
    is_small, is_large = (
        mark_rows(rows, row_count) for rows in (crowded[:small_count], crowded[small_count:])
    )
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
    joins_previous = start[order][1:] < reach[:-1]
    joins = np.append(False, joins_previous) | np.append(joins_previous, False)
    result = np.empty(len(start), dtype=bool)
    result[order] = joins
    return result


def _union_by_sorting(op_start: Int64s, op_end: Int64s, row: Int64s, first: Int64s, last: Int64s) -> Int64s:
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
    # of the slots `[low, high)`
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
    ending, beginning = (
        np.append(0, np.cumsum(np.bincount(call, weights=weight, minlength=call_count)).astype(np.int64))
        for call in (high_call, low_call)
    )
    around = sum_around(low_call, high_call, weight, first, last)
    return np.asarray(ending[last] - beginning[first] + around)


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
    by_low = np.argsort(low, kind="stable")
    latest_high = np.maximum.accumulate(high[by_low])
    before = np.searchsorted(low[by_low], first, side="left")
    windows = np.flatnonzero(before > 0)
    return low, high, weight, windows[latest_high[before[windows] - 1] >= last[windows]]


_MEASURED = (
    *("gpu_start_ns", "gpu_end_ns", "busy_ns", "total_ns", "call_count", "op_count"),
    *("first_op", "last_op"),
)
PROJECTED = pl.Schema(  # columns that projection adds to a range: one row per range and target
    {
        "row": pl.Int64(),  # of RANGES
        **{column: PROJECTIONS[column] for column in ("scope", "device_id", "stream_id", *_MEASURED)},
    }
)


class Launched(Struct, frozen=True, kw_only=True):
    """Launched operations: one row per launch, grouped by target."""

    call_row: Int64s
    start: Int64s
    end: Int64s
    op_row: npt.NDArray[np.uint32]  # of GPU_OPS
    target: Int64s  # number of the target, ascending
    targets: list[tuple[int, int | None]]  # device_id and stream_id of each number, ascending


def add_launches(launched: Launched, call_row: Int64s, *, first_row: int) -> Launched:
    """Add copies of launches, in which other calls launched the operations.

    Args:
        launched: Launches.
        call_row: Calls to copy the launches of; call i is replaced by call `first_row + i`.
        first_row: First row of the calls that replace them.
    """
    copy, before = order_by_number(call_row, first_row)
    first, last = before[launched.call_row], before[launched.call_row + 1]
    row = np.repeat(np.arange(len(first)), last - first)
    calls = np.append(launched.call_row, first_row + copy[expand_windows(first, last)])
    of_row = np.append(np.arange(len(first)), row)
    target = launched.target[of_row]
    if len(launched.targets) > 1:
        order = np.argsort(target, kind="stable")
        calls, of_row, target = calls[order], of_row[order], target[order]
    return Launched(
        call_row=calls,
        start=launched.start[of_row],
        end=launched.end[of_row],
        op_row=launched.op_row[of_row],
        target=target,
        targets=launched.targets,
    )


def gather_launched(gpu_ops: pl.DataFrame, launches: pl.DataFrame, *, per_stream: bool) -> Launched:
    """Gather the columns of launched operations that projection needs.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        launches: `LAUNCHES`, at least one row.
        per_stream: The targets are streams, not devices.
    """
    keys = ["process_key", "device_id", *(["stream_id"] if per_stream else [])]
    op_row, call_row = launches["op_id"].to_numpy(), launches["call_row"].to_numpy().astype(np.int64)
    start, end = (gpu_ops[name].to_numpy()[op_row] for name in ("start_ns", "end_ns"))
    ops = index_rows(gpu_ops[[*keys]], op_row)
    targets = ops.unique().sort(*keys[1:], keys[0])
    if len(targets) == 1:
        target = np.zeros(len(ops), dtype=np.int64)
    else:
        numbered = targets.with_columns(target=pl.int_range(pl.len(), dtype=pl.Int64))
        target = ops.join(numbered, on=keys, how="left", maintain_order="left")["target"].to_numpy()
        order = np.argsort(target.astype(np.uint16) if len(targets) < 1 << 16 else target, kind="stable")
        columns = (target, op_row, call_row, start, end)
        target, op_row, call_row, start, end = (column[order] for column in columns)
    return Launched(
        call_row=call_row,
        start=start,
        end=end,
        op_row=op_row,
        target=target,
        targets=[(row[1], row[2] if per_stream else None) for row in targets.iter_rows()],
    )


class _Windows(Struct, frozen=True, kw_only=True):
    """Operations of one target inside ranges: segments of operations in order of their calls' positions."""

    inside: CallsInside
    launch: Int64s  # of each operation: row of `Launched`
    start: Int64s  # of each operation
    end: Int64s
    row: Int64s  # of the ranges with operations: index into the rows of `CallsInside`, ascending
    segment_row: Int64s  # index into `row`, ascending
    first: Int64s  # operations of each segment
    last: Int64s
    calls: Int64s  # calls with operations in each segment

    @property
    def position(self) -> Int64s:
        """Return the position of each operation's call."""
        return self.inside.position[self.launch]

    @property
    def first_segments(self) -> Int64s:
        """Return the first segment of each range."""
        return np.flatnonzero(np.diff(self.segment_row, prepend=-1))

    def sum_by_row(self, values: Int64s) -> Int64s:
        """Sum values of segments by range."""
        return np.add.reduceat(values, self.first_segments)


def project_onto_targets(
    calls_inside: CallsInside, launched: Launched, names: pl.Series | None
) -> Iterator[pl.DataFrame]:
    """Project ranges onto the operations of every target.

    Args:
        calls_inside: Calls inside the ranges.
        launched: Operations that the calls launched.
        names: Of all operations, by row of GPU_OPS; None: without first_op and last_op.

    Yields:
        `PROJECTED` of each target that a range reached, by row.
    """
    if not len(calls_inside.segment_row):
        return
    bounds = np.searchsorted(launched.target, np.arange(len(launched.targets) + 1)).tolist()
    for (device_id, stream_id), first, last in zip(launched.targets, bounds[:-1], bounds[1:], strict=True):
        windows = _find_op_windows(calls_inside, launched, first, last)
        if not len(windows.row):
            continue
        columns = [
            *(pl.Series(name, values, PROJECTED[name]) for name, values in _measure(windows).items()),
            *_describe_ends(windows, launched, names),
            _name_scopes(windows),
        ]
        target = {"device_id": device_id, "stream_id": stream_id}
        projected = build_frame(columns).with_columns(
            pl.lit(value, PROJECTED[name]).alias(name) for name, value in target.items()
        )
        yield projected[[name for name in PROJECTED if name in projected.columns]]


def _find_op_windows(calls_inside: CallsInside, launched: Launched, begin: int, stop: int) -> _Windows:
    # among the launches `[begin, stop)`
    order, ops_before = order_by_number(calls_inside.position[begin:stop], calls_inside.call_count)
    launch = order + begin
    first, last = ops_before[calls_inside.segment_first], ops_before[calls_inside.segment_last]
    segment = np.flatnonzero(last > first)
    row = calls_inside.segment_row[segment]
    is_first = np.diff(row, prepend=-1) > 0
    calls_before = np.concatenate([[0], np.cumsum(np.diff(ops_before) > 0)])
    of_calls = calls_inside.segment_first[segment], calls_inside.segment_last[segment]
    return _Windows(
        inside=calls_inside,
        launch=launch,
        start=launched.start[launch],
        end=launched.end[launch],
        row=row[is_first],
        segment_row=np.cumsum(is_first) - 1,
        first=first[segment],
        last=last[segment],
        calls=calls_before[of_calls[1]] - calls_before[of_calls[0]],
    )


def _describe_ends(windows: _Windows, launched: Launched, names: pl.Series | None) -> list[pl.Series]:
    """Describe the first and the last operation of each range.

    The result has their start and end, and their names if there are names.
    """
    first_op = _find_extreme_op(windows.start, windows)
    last_op = _find_extreme_op(-windows.end, windows)
    columns = [
        pl.Series("gpu_start_ns", windows.start[first_op]),
        pl.Series("gpu_end_ns", windows.end[last_op]),
    ]
    if names is not None:
        of_names = zip(("first_op", "last_op"), (first_op, last_op), strict=True)
        columns += [gather(names, launched.op_row[windows.launch[op]]).alias(name) for name, op in of_names]
    return columns


def _measure(windows: _Windows) -> dict[str, Int64s]:
    inside, position = windows.inside, windows.position
    busy = measure_busy(
        op_start=windows.start,
        op_end=windows.end,
        op_call_by_start=position,
        op_call_by_end=inside.windows.end_position[position],
        op_owner=inside.owner[position],
        call_count=inside.call_count,
        segment_row=windows.segment_row,
        segment_first=windows.first,
        segment_last=windows.last,
        first_by_start=inside.windows.first[windows.row],
        last_by_end=inside.windows.last_by_end[windows.row],
    )
    total = np.concatenate([[0], np.cumsum(windows.end - windows.start)])
    return {
        "row": inside.rows[windows.row],
        "busy_ns": busy,
        "total_ns": windows.sum_by_row(total[windows.last] - total[windows.first]),
        "call_count": windows.sum_by_row(windows.calls),
        "op_count": windows.sum_by_row(windows.last - windows.first),
    }


def _name_scopes(windows: _Windows) -> pl.Series:
    """Name the scope of each row: "process" for rows with calls of other threads."""
    inside = windows.inside
    names = pl.Series("scope", [inside.scope, "process"], dtype=PROJECTED["scope"])
    if not inside.is_waited.any():
        return names.new_from_index(0, len(windows.row))
    before = np.concatenate([[0], np.cumsum(inside.is_waited[windows.position])])
    is_waited = windows.sum_by_row(before[windows.last] - before[windows.first]) > 0
    return gather(names, is_waited.astype(np.uint32))


def _find_extreme_op(key: Int64s, windows: _Windows) -> Int64s:
    """Find the operation with the smallest key per range; the first one of equals.

    Key and index of an operation are packed into one number, so that a minimum yields both.
    """
    bits = len(key).bit_length()
    least = int(key.min())
    is_wide = (int(key.max()) - least) >> (62 - bits) > 0
    rank = np.unique(key, return_inverse=True)[1] if is_wide else key - least
    minimum = find_minimum(rank << bits | np.arange(len(key)), windows.first, windows.last)
    return np.minimum.reduceat(minimum, windows.first_segments) & ((1 << bits) - 1)
