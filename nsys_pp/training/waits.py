"""Waits of each device: what held the gaps between compute segments, link by link.

The chain of a gap begins with the holder of the kernel after it, and continues with the holder of this
operation, until one had ended before the gap. An operation is held by the last of

    its stream    the operation before it on its stream
    an event      an operation of another stream, if a recorded wait for an event names it
    the device    else, if the launch does not explain the start: the operation that ended right before it
    some event    else, if its stream waited for an event that is not recorded: the last operation that ended
    its launch    and so by the operation that the host waited for before it

`nsys_pp.frames.training` has an example.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    find_distinct,
    gather,
    numbers,
    pack,
    pick,
    select_rows,
)
from nsys_pp.arrays.intervals import Intervals, intersect, subtract, unite
from nsys_pp.arrays.launch_calls import gather_calls
from nsys_pp.arrays.search import expand_windows, find_first, find_last, find_pairs, running_maximum
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_frame, conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.report import (
    LOADING,
    OVERHEAD_SUMS,
    POINT_TO_POINT,
    WAITING_CALL,
    OpDetails,
)
from nsys_pp.frames.training import CAUSE, CAUSES, MESSAGES, NEED, WAITS
from nsys_pp.training.kernels import Segments
from nsys_pp.training.launched import DEVICE, LATE_NS, LaunchedOps, number_devices, repeat_devices

_RECEIVE = MESSAGES["verb"].categories.to_list().index("receive")  # type: ignore[attr-defined]
MESSAGE, COLLECTIVE = (NEED.categories.to_list().index(kind) for kind in ("message", "collective"))
COPY = len(NEED.categories)  # kind of copies and sets
ASIDE = COPY + 1  # kind of kernels on other than main streams
_TRIES = 4  # operations that ended earlier to try, where the last one was launched too late


class Needs(Struct, frozen=True, kw_only=True):
    """What the operations of a report do, by row of `GPU_OPS`."""

    kind: Int64s  # index of `NEED`, `COPY` or `ASIDE`; -1: a kernel of a main stream
    is_send: Bools  # messages that are only sent


def _list_needs(ops: LaunchedOps, messages: pl.DataFrame) -> Needs:
    """List what the operations do; without messages, sends count as receives."""
    op_id, is_send = numbers(messages["op_id"]), numbers(messages["verb"]) != _RECEIVE
    is_message = ops.names.match(POINT_TO_POINT)
    is_message[op_id] = True
    kind = np.where(is_message, MESSAGE, COLLECTIVE)
    kind[ops.is_copy] = COPY
    kind[ops.is_compute] = np.where(ops.is_main[ops.is_compute], -1, ASIDE)
    only_sends = np.zeros(len(kind), dtype=np.bool_)
    only_sends[op_id[is_send]] = True
    only_sends[op_id[~is_send]] = False
    return Needs(kind=kind, is_send=only_sends)


def _find_last_ended(
    group: Int64s,
    time: Int64s,
    ops: LaunchedOps,
    among: Bools,
    key: Int64s,
    *,
    launched_by: Int64s,
) -> Int64s:
    """Find the last operation of a group that ended at or before each time.

    Args:
        group: Group of each time.
        time: Times to search for.
        ops: Operations.
        among: Mask of the operations to choose from.
        key: Group of each operation.
        launched_by: Latest launch of the operation, for each time; operations launched later do not count.

    Returns:
        Row of the operation; -1 without one among the last `_TRIES` that ended.
    """
    rows = ops.by_end[among[ops.by_end]]
    rows = rows[np.argsort(key[rows], kind="stable")]
    at = find_last(group, time, key[rows], ops.end[rows])
    found = np.full(len(group), -1)
    open_ = np.flatnonzero(at >= 0)
    for _ in range(_TRIES):
        row = rows[at[open_]]
        is_it = (key[row] == group[open_]) & (ops.launch[row] <= launched_by[open_])
        found[open_[is_it]] = row[is_it]
        open_ = open_[~is_it & (at[open_] > 0)]
        at[open_] -= 1
    return found


STREAM_WAIT = "StreamWaitEvent"


class EventWaits(Struct, frozen=True, kw_only=True):
    """Recorded waits.

    Attributes:
        need: Row of the operation that the stream of each operation waited for before it; -1 without one.
        is_unknown: Mask of the operations before which their stream waited for an event whose record is
            unknown.
        has_waits: The streams of calls that make a stream wait are recorded.
        sync_calls: Rows of `API_CALLS`: synchronising calls for a single stream, or an event whose record is
            known.
        sync_needs: Row of the operation that each of them waited for; -1 without one.
    """

    need: Int64s
    is_unknown: Bools
    has_waits: bool
    sync_calls: Int64s
    sync_needs: Int64s


class _Calls(Struct, frozen=True, kw_only=True):
    """Calls with a recorded stream or event, by time; `NEVER` where one is not recorded."""

    call: Int64s  # row of `API_CALLS`
    time: Int64s  # its start
    stream: Int64s  # number of the stream, as those of operations
    event: Int64s  # equal for one event
    has_stream: Bools
    has_event: Bools


def _find_event_waits(ops: LaunchedOps, *, stream_calls: pl.DataFrame) -> EventWaits:
    """Find the operations that streams and synchronising calls waited for, from `STREAM_CALLS`."""
    process, context, stream, event = (
        numbers(stream_calls[name]) for name in ("process_key", "context_id", "stream_id", "event_id")
    )
    of_ops = (numbers(ops.gpu_ops[name]) for name in ("process_key", "context_id", "stream_id"))
    both = pack(*(np.append(*pair) for pair in zip((process, context, stream), of_ops, strict=True)))
    by_launch = np.argsort(ops.launch, kind="stable")
    launched = (both[len(process) :][by_launch], ops.launch[by_launch])

    def select(is_chosen: Bools, pattern: str) -> _Calls:
        """Select recorded calls by their name, in order of time."""
        named = ops.calls.list_rows(pattern) if is_chosen.any() else np.flatnonzero(is_chosen)
        of_process, of_call = (
            numbers(ops.api_calls[name])[named] for name in ("process_key", "correlation_id")
        )
        rows = np.flatnonzero(is_chosen)
        at = find_pairs(of_process, of_call, process[rows], numbers(stream_calls["correlation_id"])[rows])
        rows, call = rows[at >= 0], named[at[at >= 0]]
        time = numbers(ops.api_calls["start_ns"])[call]
        order = np.argsort(time, kind="stable")
        rows = rows[order]
        return _Calls(
            call=call[order],
            time=time[order],
            stream=both[rows],
            event=pack(process, event)[rows],
            has_stream=stream[rows] != NEVER,
            has_event=event[rows] != NEVER,
        )

    def find_last_launched(of_stream: Int64s, time: Int64s) -> Int64s:
        return pick(by_launch, find_last(of_stream, time, *launched, is_before=True), -1)

    def find_awaited(calls: _Calls) -> tuple[Int64s, Bools]:
        """Find the last operation before the last record of each event.

        Also returns the mask of calls with such a record.
        """
        record = find_last(calls.event, calls.time, records.event, records.time)
        record[~calls.has_event] = -1
        awaited = find_last_launched(pick(records.stream, record, NEVER), pick(records.time, record, NEVER))
        return np.where(record >= 0, awaited, -1), record >= 0

    is_record = stream_calls["is_record"].to_numpy().astype(np.bool_)
    records, waits = select(is_record, "EventRecord"), select(~is_record, STREAM_WAIT)
    syncs = select(~is_record, WAITING_CALL)
    awaited, is_resolved = find_awaited(waits)
    gated = pick(by_launch, find_first(waits.stream, waits.time, *launched), -1)
    gated[~waits.has_stream] = -1
    need = np.full(len(ops.start) + 1, -1)
    known = np.flatnonzero((gated >= 0) & (awaited >= 0))
    known = known[np.argsort(ops.end[awaited[known]], kind="stable")]  # the last assignment stays
    need[gated[known]] = awaited[known]
    is_unknown = np.zeros(len(need), dtype=np.bool_)
    is_unknown[gated[~is_resolved]] = True
    by_event, has_record = find_awaited(syncs)
    is_single = np.where(syncs.has_event, has_record, syncs.has_stream)
    by_stream = find_last_launched(syncs.stream, syncs.time)
    return EventWaits(
        need=need[:-1],
        is_unknown=is_unknown[:-1],
        has_waits=bool(waits.has_stream.any()),
        sync_calls=syncs.call[is_single],
        sync_needs=np.where(syncs.has_event, by_event, by_stream)[is_single],
    )


_RETURN_NS = 100_000  # a call that waits for an operation returns this soon after its end
_DEVICE = r"(?:Device|Ctx|Context)Synchronize"


class _Syncs(Struct, frozen=True, kw_only=True):
    """Calls that waited until the end of a known operation, by thread and return."""

    thread: Int64s
    returned: Int64s
    need: Int64s  # row of the operation


def _find_host_needs(
    rows: Int64s, ops: LaunchedOps, needs: Needs, events: EventWaits, waited: tuple[Int64s, Int64s] | None
) -> Int64s:
    """Find the operation that the host waited for before it launched each of some operations.

    The waits of the launching thread count, and those of threads that wait for its launch: PyTorch's main
    thread waits for messages, and lets autograd's thread launch the backward.

    Args:
        rows: Rows of the operations in `GPU_OPS`.
        ops: All operations.
        needs: What they do.
        events: Recorded waits.
        waited: As for `build_waits`.

    Returns:
        Row of the operation that ended last among those waited for; -1 without one.
    """
    # of the calls until each one on its thread, the one that waited for the operation that ended last
    syncs = _list_syncs(ops, needs, events)
    segment = np.cumsum(np.diff(syncs.thread, prepend=syncs.thread[:1]) != 0)
    end = ops.end[syncs.need]
    is_new = running_maximum(segment, end) == end
    syncs = select_rows(syncs, np.maximum.accumulate(np.where(is_new, np.arange(len(end)), 0)))
    at, thread = np.arange(len(rows)), ops.thread[rows]
    if waited is not None:
        waiting, calls = waited
        order = np.argsort(calls, kind="stable")
        first, last = (np.searchsorted(calls[order], ops.call[rows], side=side) for side in ("left", "right"))
        at = np.append(at, np.repeat(at, last - first))
        thread = np.append(thread, waiting[order[expand_windows(first, last)]])
    found = pick(syncs.need, find_last(thread, ops.launch[rows[at]], syncs.thread, syncs.returned), -1)
    found[ops.launch[rows[at]] == NEVER] = -1
    need = np.full(len(rows), -1)
    by_end = np.argsort(_end(found, ops), kind="stable")
    need[at[by_end]] = found[by_end]  # the last assignment stays
    return need


def _list_syncs(ops: LaunchedOps, needs: Needs, events: EventWaits) -> _Syncs:
    """List the synchronising calls with the operations that they waited for.

    A synchronous copy waits for itself, though it may return before the last bytes have arrived. Other calls
    wait for the last operation of their stream or event, where it is recorded, else for the last operation
    other than compute that ended while they waited: they return soon after it, unless they wait for the whole
    device. Calls rarely wait for sends.
    """
    api_calls, calls = ops.api_calls, ops.calls.list_rows(WAITING_CALL)
    thread, process, begin, returned = (
        numbers(api_calls[name])[calls] for name in ("thread_key", "process_key", "start_ns", "end_ns")
    )
    of_call = np.full(len(api_calls) + 1, -1)
    of_call[ops.call] = np.arange(len(ops.call))
    need = of_call[calls]
    recorded = np.full(len(api_calls), -1)
    recorded[events.sync_calls] = np.arange(len(events.sync_calls))
    is_recorded = recorded[calls] >= 0
    need = np.where(is_recorded, pick(events.sync_needs, recorded[calls], -1), need)

    is_guess = ~is_recorded & (need < 0)
    guess = np.full(len(calls), -1)
    is_other, of_process = needs.kind >= 0, numbers(ops.gpu_ops["process_key"])
    for among in (needs.is_send & is_other, ~needs.is_send & is_other) if is_guess.any() else ():
        found = _find_last_ended(process, returned, ops, among, of_process, launched_by=begin)
        guess = np.where(_end(found, ops) > begin, found, guess)
    is_soon = ops.calls.match(_DEVICE)[calls] | (returned - _end(guess, ops) <= _RETURN_NS)
    need = np.where(is_guess & is_soon, guess, need)
    is_own = (need == of_call[calls]) & (pick(ops.start, need, NEVER) < returned)
    is_possible = (_end(need, ops) > begin) & (is_own | (_end(need, ops) <= returned))
    rows = np.flatnonzero(is_possible)
    rows = rows[np.lexsort((returned[rows], thread[rows]))]
    return _Syncs(thread=thread[rows], returned=returned[rows], need=need[rows])


def _keep_last(row: Int64s, other: Int64s, ops: LaunchedOps) -> Int64s:
    """Return the operation of each two that ends later, the first one if both end at once."""
    return np.where(_end(other, ops) > _end(row, ops), other, row)


def _end(row: Int64s, ops: LaunchedOps) -> Int64s:
    """Return the ends of operations; `NEVER` where the row is -1."""
    return pick(ops.end, row, NEVER)


_STREAM_NS = 3_000  # an operation that waits for its stream starts this soon after the operation before it
AT_ONCE_NS = 10_000  # an operation that waits on its device starts this soon after the operation it waits for
_LAUNCH_NS = 4_000  # least time from the start of a launching call to the start of the operation


def _find_holders(
    rows: Int64s, ops: LaunchedOps, needs: Needs, events: EventWaits, waited: tuple[Int64s, Int64s] | None
) -> tuple[Int64s, Int64s]:
    """Find the holders of some operations, as `_find_host_needs`.

    Returns:
        Row of the operation that held each one, or that the host waited for before the launch, and ended at
        or before its start; -1 without one. Time from which nothing known held the operation; its start, if
        it is explained.
    """
    start, launch = ops.start[rows], ops.launch[rows]
    on_device = _find_on_device(rows, ops, needs, events)
    device_end = _end(on_device, ops)
    is_late = (launch != NEVER) & (launch + _LAUNCH_NS >= device_end)
    op = np.where(is_late, _find_host_needs(rows, ops, needs, events, waited), on_device)
    is_earlier = (op >= 0) & (ops.start[op] < start) & (_end(op, ops) <= start)
    since = np.where(is_late, ops.launched[rows], device_end)
    since = np.where(start - since > LATE_NS, np.minimum(since, start), start)
    return np.where(is_earlier, op, -1), since


def _find_on_device(rows: Int64s, ops: LaunchedOps, needs: Needs, events: EventWaits) -> Int64s:
    """Find the last operation that each operation waited for on its device; -1 without one."""
    start, launch = ops.start[rows], ops.launch[rows]
    launched_by = np.where(launch == NEVER, start, launch)
    found = _find_last_ended(ops.stream[rows], start, ops, needs.kind >= 0, ops.stream, launched_by=start)
    by_event = events.need[rows]
    by_event[_end(by_event, ops) > start] = -1
    found = _keep_last(found, by_event, ops)

    group = ops.device[rows]

    def last_ended(among: Bools) -> Int64s:
        return _find_last_ended(group, start, ops, among, ops.device, launched_by=launched_by)

    is_other = needs.kind >= 0
    awaited, sent, computed = (
        last_ended(among) for among in (is_other & ~needs.is_send, is_other & needs.is_send, ~is_other)
    )
    awaits = _await_unknown(rows, ops, events)
    is_ready = awaits | (start - launch > AT_ONCE_NS)  # else it may start so late because of its launch
    right_before, right_end = np.full(len(rows), -1), np.full(len(rows), NEVER)
    for guess in (sent, computed, awaited):  # rarely a send: any other operation replaces it
        guess_end = _end(guess, ops)
        is_held = (guess >= 0) & (start - guess_end <= AT_ONCE_NS)
        is_held &= (launch == NEVER) | (is_ready & (launch + _LAUNCH_NS <= guess_end))
        is_held &= (guess_end > right_end) | pick(needs.is_send, right_before, absent=False)
        right_before, right_end = (
            np.where(is_held, guess, right_before),
            np.where(is_held, guess_end, right_end),
        )
    right_before[start - _end(found, ops) <= _STREAM_NS] = -1
    found = _keep_last(found, right_before, ops)
    is_open = awaits & (start - np.maximum(_end(found, ops), launch) > LATE_NS)
    return _keep_last(found, np.where(is_open, awaited, -1), ops)


def _await_unknown(rows: Int64s, ops: LaunchedOps, events: EventWaits) -> Bools:
    """Return the mask of operations whose stream waited for an event that is not recorded.

    Without recorded streams, the stream of a call that waits for an event is that of the next launch on its
    thread.
    """
    if events.has_waits:
        return events.is_unknown[rows]
    api_calls, wait_calls = ops.api_calls, ops.calls.list_rows(STREAM_WAIT)
    if not len(wait_calls):
        return np.zeros(len(rows), dtype=np.bool_)
    is_launch = np.zeros(len(api_calls), dtype=np.bool_)
    is_launch[ops.launches["call_row"].to_numpy()] = True
    calls = np.concatenate([wait_calls, np.flatnonzero(is_launch)])
    thread, time = (gather_calls(api_calls[name], calls) for name in ("thread_key", "start_ns"))
    order = np.argsort(time, kind="stable")
    before = find_last(ops.thread[rows], ops.launch[rows], thread[order], time[order], is_before=True)
    return pick(order < len(wait_calls), before, absent=False)


_CAUSES = pl.Series(CAUSES, dtype=CAUSE)
_HOST, _UNKNOWN, _IDLE, _COPY = (CAUSES.index(cause) for cause in ("host", "unknown", "idle", "copy"))


class _Gaps(Struct, frozen=True, kw_only=True):
    """Gaps of steps between compute segments, which the chain of an operation explains."""

    group: Int64s  # index of the device
    step: Int64s
    start: Int64s
    end: Int64s
    # row of the next kernel of a main stream; in tails of the last operation of the step, -1 without one
    op: Int64s
    is_tail: Bools  # after the last kernel of a main stream in the step


def build_waits(
    segments: Segments,
    ops: LaunchedOps,
    *,
    steps: pl.DataFrame,
    stream_calls: pl.DataFrame,
    messages: pl.DataFrame,
    waited: tuple[Int64s, Int64s] | None = None,
) -> pl.DataFrame:
    """Find the operations that hold the gaps between the compute segments of each step.

    Args:
        segments: Compute segments.
        ops: Operations of the report.
        steps: `STEPS`.
        stream_calls: `STREAM_CALLS`.
        messages: `MESSAGES`, to distinguish sends from receives; empty: sends count as receives.
        waited: Threads that waited for launching calls of others, and rows of these calls in `API_CALLS`;
            None: unknown.

    Returns:
        `WAITS`; empty without steps.
    """
    needs, events = _list_needs(ops, messages), _find_event_waits(ops, stream_calls=stream_calls)
    gaps = _list_gaps(segments, steps, ops, needs)
    is_held = needs.kind >= 0
    is_held[gaps.op[gaps.op >= 0]] = True
    rows = np.flatnonzero(is_held)
    holder, since = np.full(len(ops.start) + 1, -1), np.full(len(ops.start) + 1, NEVER)
    holder[rows], since[rows] = _find_holders(rows, ops, needs, events, waited)
    gap, op = _follow(gaps, holder, ops, needs)
    return _build_frame(gaps, gap, op, since, ops, needs)


def _list_gaps(segments: Segments, steps: pl.DataFrame, ops: LaunchedOps, needs: Needs) -> _Gaps:
    # before each segment of a step, and after the last one
    group = number_devices(steps, ops.devices)
    order = np.lexsort((numbers(steps["start_ns"]), group))
    group = group[order]
    number, start, end = (numbers(steps[name])[order] for name in ("step", "start_ns", "end_ns"))
    of_segment = find_last(segments.group, segments.start, group, start)
    inside = np.flatnonzero((of_segment >= 0) & (segments.start < pick(end, of_segment, NEVER)))
    step = of_segment[inside]
    before = np.maximum(segments.previous_end[inside], start[step])

    last = find_last(group, end, segments.group, segments.start, is_before=True)
    latest = pick(running_maximum(segments.group, segments.end), last, NEVER)
    after = np.minimum(np.maximum(latest, start), end)
    gap_step = np.append(step, np.arange(len(group)))
    gap_end = np.append(segments.start[inside], end)
    mains = ops.list_by_start(needs.kind < 0)
    kernel = pick(mains, find_first(group[gap_step], gap_end, ops.device[mains], ops.start[mains]), -1)
    is_tail = (kernel < 0) | (ops.start[kernel] >= end[gap_step])
    is_final = np.isin(needs.kind, (MESSAGE, COLLECTIVE)) | ((needs.kind == COPY) & ops.is_main)
    final = _find_last_ended(group, end, ops, is_final, ops.device, launched_by=end)

    gaps = _Gaps(
        group=group[gap_step],
        step=number[gap_step],
        start=np.append(before, after),
        end=gap_end,
        op=np.where(is_tail, final[gap_step], kernel),
        is_tail=is_tail,
    )
    kept = np.flatnonzero(gaps.start < gaps.end)
    kept = kept[np.lexsort((gaps.start[kept], gaps.group[kept]))]
    return select_rows(gaps, kept)


def _follow(gaps: _Gaps, holder: Int64s, ops: LaunchedOps, needs: Needs) -> tuple[Int64s, Int64s]:
    """Follow the chain of each gap back to its start.

    Round k finds the operations at distances 2**k to 2**(k+1) - 1: there are as many rounds as bits in the
    length of the longest chain.

    Args:
        gaps: Gaps.
        holder: Row of the operation that held each one; -1 without one, and for row -1.
        ops: Operations.
        needs: What they do.

    Returns:
        Gaps, and operations that hold them; by gap and end.
    """

    def select(gap: Int64s, op: Int64s) -> tuple[Int64s, Int64s]:
        is_link = (op >= 0) & (pick(ops.end, op, NEVER) > gaps.start[gap])
        is_link &= pick(needs.kind, op, -1) >= 0
        return gap[is_link], op[is_link]

    gap, op = select(np.arange(len(gaps.op)), np.where(gaps.is_tail, gaps.op, holder[gaps.op]))
    jump, found_count = holder, -1
    while len(gap) != found_count:
        found_count = len(gap)
        further = select(gap, jump[op])
        gap, op = np.append(gap, further[0]), np.append(op, further[1])
        jump = jump[jump]
    order = np.lexsort((ops.end[op], gap))
    return gap[order], op[order]


def _build_frame(
    gaps: _Gaps, gap: Int64s, op: Int64s, since: Int64s, ops: LaunchedOps, needs: Needs
) -> pl.DataFrame:
    """Cut each gap at the starts and ends of its links; a link may outlast the gap, or begin after it.

    Args:
        gaps: Gaps.
        gap: Gap of each link.
        op: Operation of each link.
        since: Time from which nothing known held each operation; `NEVER` for row -1.
        ops: Operations.
        needs: What they do.
    """
    gap = np.append(gap, np.arange(len(gaps.op)))
    op = np.append(op, np.full(len(gaps.op), -1))  # -1: the rest of the gap
    is_rest = op < 0
    op_start, op_end = pick(ops.start, op, NEVER), pick(ops.end, op, NEVER)
    order = np.lexsort((op_end, is_rest, gap))
    gap, op, is_rest = gap[order], op[order], is_rest[order]
    op_start, op_end = op_start[order], op_end[order]
    end = np.where(is_rest, gaps.end[gap], np.minimum(op_end, gaps.end[gap]))
    begin = np.where(np.diff(gap, prepend=-1) != 0, gaps.start[gap], np.roll(end, 1))
    start = np.clip(np.where(is_rest, end, op_start), begin, end)

    is_idle = is_rest & gaps.is_tail[gap]
    late = np.where(ops.is_off, _UNKNOWN, _HOST)[gaps.group[gap]]  # launches are of another clock
    unexplained = np.where(is_idle, start, np.clip(since[np.where(is_rest, gaps.op[gap], op)], begin, start))
    need = pick(needs.kind, op, -1)
    run = np.select([need == COPY, need == ASIDE], [_COPY, _HOST], -1)  # kernels aside run in no gap
    parts = (
        (begin, unexplained, np.where(is_idle, _IDLE, late)),
        (unexplained, start, np.full(len(gap), _UNKNOWN)),
        (start, end, run),
    )
    columns = np.stack([np.concatenate(column) for column in zip(*parts, strict=True)])
    part = np.repeat(np.arange(3), len(gap))
    kept = np.flatnonzero(columns[0] < columns[1])
    row = np.tile(np.arange(len(gap)), 3)[kept]
    kept = kept[np.lexsort((part[kept], row))]
    row = np.tile(np.arange(len(gap)), 3)[kept]
    is_run = (part[kept] == 2) & (run[row] < 0)
    return build_frame(
        [
            *repeat_devices(ops.devices, gaps.group[gap[row]]),
            as_numbers("step", gaps.step[gap[row]]),
            pl.Series("start_ns", columns[0][kept]),
            pl.Series("end_ns", columns[1][kept]),
            gather(_CAUSES, columns[2][kept]).alias("cause"),
            gather(NEED.categories, np.where(is_run, need[row], -1)).alias("need"),
            as_numbers("need_op_id", np.where(is_run, op[row], -1), null=-1),
            as_numbers("need_start_ns", np.where(is_run, op_start[row], NEVER)),
            as_numbers("need_end_ns", np.where(is_run, op_end[row], NEVER)),
        ]
    ).pipe(conform, WAITS)


_INTERVAL = ("thread_key", "start_ns", "end_ns")


def cut_overheads(
    waits: pl.DataFrame, overheads: pl.DataFrame, *, ops: LaunchedOps, details: OpDetails
) -> pl.DataFrame:
    """Cut the time in which code was loaded, or nsys held the thread, out of the waits with cause "host".

    The causes of this time are "loading" and "profiler". A call that launches a kernel for the first time,
    and takes long, loads it.

    Args:
        waits: `WAITS`.
        overheads: `OVERHEADS`.
        ops: Operations of the report.
        details: Of these, with the demangled names of kernels: the short name of templates is one.

    Returns:
        `WAITS`.
    """
    named = overheads.filter(pl.col("name").str.contains(LOADING))
    first = _list_first_launches(ops, numbers(details.gather("full_name", ops.gpu_ops["op_id"]), null=-1))
    waits = _cut(waits, pl.concat([named.select(_INTERVAL), first]), "loading", ops)
    return _cut(waits, overheads.filter("is_of_profiler"), "profiler", ops)


def _list_first_launches(ops: LaunchedOps, full_name: Int64s) -> pl.DataFrame:
    """List the long calls that launch a kernel for the first time: thread_key, start_ns, end_ns."""
    launched = np.flatnonzero(ops.is_kernel & (ops.call >= 0))
    launched = launched[np.argsort(ops.launch[launched], kind="stable")]
    name = numbers(ops.gpu_ops["name"], null=-1)
    first = launched[find_distinct(pack(ops.device[launched], name[launched], full_name[launched]))[0]]
    first = first[ops.launched[first] - ops.launch[first] > LATE_NS]
    columns = zip(_INTERVAL, (ops.thread, ops.launch, ops.launched), strict=True)
    return pl.DataFrame({name: values[first] for name, values in columns})


def _cut(waits: pl.DataFrame, held: pl.DataFrame, cause: str, ops: LaunchedOps) -> pl.DataFrame:
    """Give the time in which something held the launching thread another cause than "host"."""
    late = waits.filter(cause="host")
    if held.is_empty() or late.is_empty():
        return waits
    holds = unite(*(numbers(held[name]) for name in _INTERVAL))
    cut = replace_cause(late, find_late_threads(late, ops), holds, cause)
    parts = [waits.filter(pl.col("cause").ne_missing("host")), cut]
    return pl.concat(parts).sort(*DEVICE, "start_ns").pipe(conform, WAITS)


def replace_cause(states: pl.DataFrame, owner: Int64s, others: Intervals, cause: str) -> pl.DataFrame:
    """Give the parts of states that other intervals of their owner cover another cause.

    Args:
        states: With cause, start_ns and end_ns.
        owner: Of each state.
        others: The intervals.
        cause: The new cause.

    Returns:
        States without such parts, then the rests of the others, then these parts.
    """
    start, end = numbers(states["start_ns"]), numbers(states["end_ns"])
    found = intersect(owner, start, end, others)
    rest, covered = (
        states[part.row].with_columns(pl.Series("start_ns", part.start), pl.Series("end_ns", part.end))
        for part in (subtract(start, end, found), found)
    )
    untouched = states[np.setdiff1d(np.arange(len(states)), found.row)]
    return pl.concat([untouched, rest, covered.with_columns(cause=pl.lit(cause, CAUSE))])


def find_late_threads(waits: pl.DataFrame, ops: LaunchedOps) -> Int64s:
    """Find the thread that launched the operation after each wait; `NEVER` without one.

    Args:
        waits: process_key, device_id, end_ns.
        ops: Operations of the report.
    """
    order = np.argsort(ops.start, kind="stable")
    group, end = number_devices(waits, ops.devices), numbers(waits["end_ns"])
    at = find_first(group, end, ops.device[order], ops.start[order])
    return np.asarray(np.append(ops.thread, NEVER)[np.append(order, -1)[at]])


def sum_overheads(
    overheads: pl.DataFrame, steps: pl.DataFrame, *, waits: pl.DataFrame, ops: LaunchedOps
) -> pl.DataFrame:
    """Sum the overhead of the threads that launch on each device, by step and name.

    Args:
        overheads: `OVERHEADS`.
        steps: `STEPS`.
        waits: `WAITS`, of which those with cause "host" are late launches.
        ops: Operations of the report.

    Returns:
        `OVERHEAD_SUMS`; times of one name at once on several threads count once. Empty without overhead, or
        without steps.
    """
    if overheads.is_empty() or steps.is_empty():
        return OVERHEAD_SUMS.to_frame()
    threads = ops.api_calls["thread_key"].gather(ops.launches["call_row"])
    launching = ops.gpu_ops[[*DEVICE]][ops.launches["op_id"].to_numpy()].with_columns(threads).unique()
    whole = overheads.filter("is_of_profiler").with_columns(name=pl.lit(None, pl.String))
    own = (
        pl.concat([overheads.drop_nulls("name"), whole])
        .join(launching.join(steps, on=DEVICE, how="semi"), on="thread_key")
        .with_columns(owner=pl.struct(*DEVICE, "name", "is_of_profiler").rank("dense").cast(pl.Int64))
        .sort("owner", "start_ns")
    )
    names = own.unique("owner", keep="first", maintain_order=True).select(
        *DEVICE, "name", "is_of_profiler", "owner"
    )
    spans = names.join(steps.select(*DEVICE, "step", "start_ns", "end_ns"), on=DEVICE).sort(
        "owner", "start_ns"
    )
    owner, since, until = (numbers(spans[name]) for name in ("owner", "start_ns", "end_ns"))
    united = _unite(own, numbers(own["owner"]))
    parts = intersect(owner, since, until, united)
    row = find_last(numbers(own["owner"]), numbers(own["start_ns"]), owner, since)
    row = np.where(numbers(own["start_ns"]) < pick(until, row, NEVER), row, -1)  # step of its begin
    inside = spans.with_columns(
        time_ns=pl.Series(_sum_rows(parts.row, parts.end - parts.start, len(spans))),
        count=pl.Series(_sum_rows(row[row >= 0], 1, len(spans))),
        step_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    totals = names.with_columns(
        time_ns=pl.Series(_sum_rows(united.owner - 1, united.end - united.start, len(names))),
        count=pl.Series(_sum_rows(numbers(own["owner"]) - 1, 1, len(names))),
    )
    counted = inside.group_by("owner").agg(pl.col("time_ns", "count").sum())
    outside = totals.join(counted, on="owner", suffix="_inside").with_columns(
        pl.col(name) - pl.col(f"{name}_inside") for name in ("time_ns", "count")
    )
    absent = {name: pl.lit(None, OVERHEAD_SUMS[name]) for name in ("step", "step_ns")}
    columns = [name for name in OVERHEAD_SUMS if name != "beside_ns"]
    sums = (
        pl.concat([inside.select(columns), outside.with_columns(**absent).select(columns)])
        .filter(pl.col("time_ns") > 0)
        .with_columns(beside_ns=pl.lit(0, pl.Int64))
    )
    return pl.concat([conform(sums, OVERHEAD_SUMS), _sum_beside(overheads, steps, waits, ops)])


def _sum_rows(row: Int64s, values: Int64s | int, count: int) -> Int64s:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, row, values)
    return sums


def _sum_beside(
    overheads: pl.DataFrame, steps: pl.DataFrame, waits: pl.DataFrame, ops: LaunchedOps
) -> pl.DataFrame:
    """Sum the flushes on other threads during late launches whose thread was inside a CUDA call.

    No overhead held this thread. Arguments and result as `sum_overheads`.
    """
    late = waits.filter(cause="host").join(steps, on=[*DEVICE, "step"], how="semi", maintain_order="left")
    # of buffers that all threads of a process share
    flushes = overheads.filter(pl.col("name").str.contains("(?i)flush"), "is_of_profiler")
    parts = [OVERHEAD_SUMS.to_frame()]
    if late.is_empty() or flushes.is_empty():
        return parts[0]
    start, end = (numbers(late[name]) for name in ("start_ns", "end_ns"))
    calls = _unite(ops.api_calls, numbers(ops.api_calls["thread_key"]))
    called = intersect(find_late_threads(late, ops), start, end, calls)
    process = numbers(late["process_key"])[called.row]
    lengths = steps.select(*DEVICE, "step", step_ns=pl.col("end_ns") - pl.col("start_ns"))
    for (name,), own in flushes.partition_by("name", as_dict=True).items():
        flushed = _unite(own, numbers(process_key(own["thread_key"])))
        beside = intersect(process, called.start, called.end, flushed)
        sums = (
            late.select(*DEVICE, "step")[called.row[beside.row]]
            .with_columns(beside_ns=pl.Series(beside.end - beside.start, dtype=pl.Int64))
            .group_by(*DEVICE, "step")
            .agg(pl.col("beside_ns").sum())
            .join(lengths, on=[*DEVICE, "step"])
            .with_columns(
                name=pl.lit(name, pl.String), is_of_profiler=True, time_ns=pl.lit(0), count=pl.lit(0)
            )
        )
        parts.append(conform(sums, OVERHEAD_SUMS))
    return pl.concat(parts)


def _unite(frame: pl.DataFrame, owner: Int64s) -> Intervals:
    return unite(owner, numbers(frame["start_ns"]), numbers(frame["end_ns"]))
