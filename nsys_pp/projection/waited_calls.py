"""Calls that a thread waits for while other threads make them, as PyTorch's main thread waits for autograd.

main      [ push ) [ fill )                                   [ pop )
autograd                     [ launch ) [ launch ) [ launch )
main              |        gap between its events            |

A thread that waits has no events (calls, starts and ends of ranges) meanwhile, and the worker's calls fill
the gap. Threads that work side by side, as loaders of data, make calls at any time: also while the other
thread has events, or few in a long gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import EVER, NEVER, index_rows, mark_rows, numbers, select_rows
from nsys_pp.arrays.search import group_pairs, number_keys, order_by_owner
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.ids import pid, tid
from nsys_pp.projection.windows import OrderedCalls, order_calls

_MOST_PAIRS = (
    1 << 14
)  # of a process: with more, only its first thread may wait, as pairs grow with the square of threads
_MAX_SIDE_BY_SIDE = 0.05  # share of a worker's calls that are not in gaps
# events among close calls of a worker: share of those expected of threads side by side
_MAX_AMONG_CALLS = 0.1
_MIN_EXPECTED = 2.0  # events among close calls that would be evidence
_MIN_FILLED = 0.3  # share of the gaps from the first to the last call in each
_MIN_FILLING = 0.8  # share of a worker's calls in gaps filled to `_MIN_FILLED_GAP`
_MIN_FILLED_GAP = 0.1
_SAMPLED = 5  # every fifth call, for a first comparison of two threads


class WaitedCalls(Struct, frozen=True, kw_only=True):
    """Launching calls of other threads: pairs of a thread that waits and a call."""

    thread: Int64s  # key of the thread
    call_row: Int64s  # row of API_CALLS


class Waited(Struct, frozen=True, kw_only=True):
    """Calls that were certainly waited for, and with these the calls that may have been."""

    certain: WaitedCalls
    possible: WaitedCalls

    def select(self, is_chosen: Bools) -> tuple[WaitedCalls, WaitedCalls]:
        """Return both with some of the calls, by a mask of the rows of API_CALLS."""
        return (
            select_rows(self.certain, is_chosen[self.certain.call_row]),
            select_rows(self.possible, is_chosen[self.possible.call_row]),
        )


class _Calls(Struct, frozen=True, kw_only=True):
    # of one thread, by start and end
    rows: Int64s  # of API_CALLS
    start: Int64s
    end: Int64s


class _Events(Struct, frozen=True, kw_only=True):
    """Calls of one thread, and the starts and ends of its ranges; by start."""

    start: Int64s
    reach: Int64s  # running maximum of their ends


class _Pair(Struct, frozen=True, kw_only=True):
    rows: Int64s  # calls of the worker in gaps of the thread: rows of API_CALLS
    is_possible: bool  # nothing shows that both work side by side
    has_evidence: bool  # the thread's events avoid the worker's calls
    is_filled: bool  # the worker's calls fill the gaps


def find_waited_calls(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    call_row: Int64s,
    *,
    device: Int64s | None = None,
    ordered: OrderedCalls | None = None,
) -> Waited:
    """Find the launching calls that threads waited for, certainly and possibly.

    Threads with ranges or, where a process has none, with launches. Two threads are judged by all their
    events in the capture. The first thread of a process (its main thread, or else the one with the first
    event) may wait where nothing speaks against it; other threads need evidence, and none of them waits for
    the first thread but by ranges without calls. No thread waits for one with ranges of its own that launches
    on other devices only: it is the thread of another GPU, as where one process trains on all GPUs of a
    machine.

    Args:
        ranges: `RANGES`, any order.
        api_calls: `API_CALLS`, any order.
        call_row: Rows of `api_calls` that launched operations; a row may be repeated.
        device: Device of each of these launches; None: all are on one device.
        ordered: All of `api_calls`, by thread; None: sorted here, where threads may wait.

    Returns:
        Both have pairs by thread and row.
    """
    is_launching = mark_rows(call_row, len(api_calls))
    waiting, workers = _list_threads(ranges), _list_threads(api_calls, is_launching)
    # where a process has no ranges, its launching threads show who waits for whom
    waiting = pl.concat([waiting, workers.join(waiting, on="process_key", how="anti")])
    workers_by_process: dict[int, list[int]] = group_pairs(workers.iter_rows())
    waiting_counts = Counter(waiting["process_key"])
    crowded = {
        process
        for process, own in workers_by_process.items()
        if len(own) * waiting_counts[process] > _MOST_PAIRS
    }
    may_wait = _find_first_threads(ranges, api_calls, crowded) if crowded else set()
    devices = {} if device is None else _list_devices(api_calls, call_row, device)
    with_ranges = {*waiting["thread_key"]}
    candidates = sorted(
        (key, worker, process)
        for process, key in waiting.iter_rows()
        if process not in crowded or key in may_wait
        for worker in workers_by_process.get(process, ())
        if worker != key
        and not (worker in with_ranges and key in devices and devices[key].isdisjoint(devices[worker]))
    )
    if not candidates:
        return Waited(certain=_collect({}, is_launching), possible=_collect({}, is_launching))
    first_threads = _find_first_threads(ranges, api_calls, {process for *_, process in candidates})
    by_thread = order_calls(api_calls, "thread") if ordered is None else ordered
    parts = _split(by_thread.owner, by_thread.rows, by_thread.start, by_thread.end)
    calls = {key: _Calls(rows=rows, start=start, end=end) for key, (rows, start, end) in parts.items()}
    own = {
        key: _Events(start=part.start, reach=np.maximum.accumulate(part.end)) for key, part in calls.items()
    }
    pairs = [
        (key, worker)
        for key, worker, _ in candidates
        if key not in calls or not _is_side_by_side(own[key], calls[worker])
    ]
    events = _list_events(ranges, calls, {key for key, _ in pairs}) if pairs else {}
    possible: dict[tuple[int, int], _Pair] = {}
    waited: dict[tuple[int, int], _Pair] = {}
    for key, worker in pairs:
        pair = _relate(events[key], calls[worker])
        if pair.is_possible and (key in first_threads or pair.has_evidence):
            possible[key, worker] = pair
            if pair.is_filled and worker not in first_threads and (key in calls or key in first_threads):
                waited[key, worker] = pair
    workers_of = group_pairs(waited)
    for (key, worker), pair in possible.items():  # a worker's own worker, as in nested autograd
        if worker not in first_threads and any(
            (between, worker) in waited for between in workers_of.get(key, ())
        ):
            waited[key, worker] = pair
            workers_of[key].append(worker)
    return Waited(certain=_collect(waited, is_launching), possible=_collect(possible, is_launching))


def _list_threads(events: pl.DataFrame, is_listed: Bools | None = None) -> pl.DataFrame:
    thread = events["thread_key"].to_numpy()
    if is_listed is None or is_listed.all():
        return index_rows(events[["process_key", "thread_key"]], number_keys(thread)[0])
    rows = np.flatnonzero(is_listed)
    return index_rows(events[["process_key", "thread_key"]], rows[number_keys(thread[rows])[0]])


def _list_devices(api_calls: pl.DataFrame, call_row: Int64s, device: Int64s) -> dict[int, set[int]]:
    """List the devices of each thread's launches; none if all are on one device."""
    devices: dict[int, set[int]] = {}
    if len(device) and (device != device[0]).any():
        launches = pl.DataFrame({"thread": api_calls["thread_key"].to_numpy()[call_row], "device": device})
        for thread, own in launches.unique().iter_rows():
            devices.setdefault(thread, set()).add(own)
    return devices


def _find_first_threads(ranges: pl.DataFrame, api_calls: pl.DataFrame, processes: set[int]) -> set[int]:
    """Find the first thread of each process: its main thread, or else the thread of its first event."""
    columns = ("process_key", "thread_key", "start_ns")
    threads = {*_list_threads(ranges).rows(), *_list_threads(api_calls).rows()}
    main = {
        process: thread for process, thread in threads if process in processes and tid(thread) == pid(thread)
    }
    first = set(main.values())
    processes = processes - main.keys()
    if not processes:
        return first
    firsts = (
        pl.concat([ranges.select(columns), api_calls.select(columns)])
        .filter(pl.col("process_key").is_in(list(processes)))
        .group_by("process_key", "thread_key")
        .agg(pl.col("start_ns").min())
        .sort("process_key", "start_ns", "thread_key")
    )
    return first | set(firsts.unique("process_key", keep="first", maintain_order=True)["thread_key"])


def _is_side_by_side(thread: _Events, worker: _Calls) -> bool:
    """Whether some of a worker's calls alone show that a thread makes calls meanwhile.

    This is true of most pairs of many threads.

    Further events of the thread and further calls can only add to these.
    """
    start, end = worker.start[::_SAMPLED], worker.end[::_SAMPLED]
    before, ended, following = _find_gaps(thread, start)
    is_inside = (ended <= start) & (end <= following)
    return int(np.count_nonzero((before >= 0) & ~is_inside)) > _MAX_SIDE_BY_SIDE * len(worker.start)


def _find_gaps(events: _Events, time: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Find the last event at or before each time, the end of all until it, and the start of the next one.

    Returns:
        Index, -1 without one, where the end is any; ns; ns, `EVER` without a next one.
    """
    before = np.searchsorted(events.start, time + 1) - 1
    last = len(events.start) - 1
    following = np.where(before < last, events.start[np.minimum(before + 1, last)], EVER)
    return before, events.reach[before], following


def _list_events(ranges: pl.DataFrame, calls: Mapping[int, _Calls], threads: set[int]) -> dict[int, _Events]:
    thread, start, end = (ranges[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns"))
    end_thread = thread
    if ranges["end_thread_key"].null_count() < len(ranges):
        other_thread = numbers(ranges["end_thread_key"])
        end_thread = np.where(other_thread == NEVER, thread, other_thread)
    is_ended = ~ranges["is_open"].to_numpy()
    begun = _split_by_thread(thread, start)
    ended = _split_by_thread(end_thread[is_ended], end[is_ended])
    events = {}
    for key in threads:
        times = [part[key] for part in (begun, ended) if key in part]
        own = calls.get(key)
        starts = np.concatenate([*([] if own is None else [own.start]), *times])
        ends = np.concatenate([*([] if own is None else [own.end]), *times])
        order = np.argsort(starts, kind="stable")  # fast for columns that are in order each
        events[key] = _Events(start=starts[order], reach=np.maximum.accumulate(ends[order]))
    return events


def _split_by_thread(thread: Int64s, time: Int64s) -> dict[int, Int64s]:
    order = order_by_owner(thread)
    return {key: part for key, (part,) in _split(thread[order], time[order]).items()}


def _split(thread: Int64s, *columns: Int64s) -> dict[int, list[Int64s]]:
    # the rows of each thread are contiguous
    if not len(thread):
        return {}
    firsts = np.flatnonzero(np.append(True, thread[1:] != thread[:-1]))
    parts = zip(*(np.split(column, firsts[1:]) for column in columns), strict=True)
    return {key: list(part) for key, part in zip(thread[firsts].tolist(), parts, strict=True)}


def _relate(events: _Events, worker: _Calls) -> _Pair:
    rows, start, end = worker.rows, worker.start, worker.end
    before, ended, following = _find_gaps(events, start)
    is_preceded = before >= 0
    is_inside = is_preceded & (ended <= start) & (end <= following)
    side_by_side = np.count_nonzero(is_preceded & ~is_inside)
    if side_by_side > _MAX_SIDE_BY_SIDE * len(start):  # as most pairs of many threads: compare no further
        return _Pair(rows=rows[:0], is_possible=False, has_evidence=False, is_filled=False)
    among, expected = _count_among_calls(events.start, start, end)
    filled, filling = _measure_filling(
        before[is_inside], ended[is_inside], following[is_inside], start[is_inside]
    )
    return _Pair(
        rows=rows[is_inside],
        is_possible=among <= _MAX_AMONG_CALLS * expected,
        has_evidence=expected >= _MIN_EXPECTED,
        is_filled=filled >= _MIN_FILLED and filling >= _MIN_FILLING * len(start),
    )


def _count_among_calls(at: Int64s, start: Int64s, end: Int64s) -> tuple[int, float]:
    """Count the events within or between close calls, and those expected of events that ignore the calls.

    Calls are close up to their median pause: longer pauses may be those in which the other thread works.
    """
    pause = np.maximum(start[1:] - end[:-1], 0)
    is_close = np.append(pause <= np.median(pause), False) if len(pause) else np.zeros(1, dtype=bool)
    own = at[(at >= start[0]) & (at <= end[-1])]
    call = np.searchsorted(start, own, side="right") - 1
    among = int(np.count_nonzero((own < end[call]) | is_close[call]))
    active = int((end - start).sum()) + int(pause[is_close[:-1]].sum())
    return among, len(own) * min(active / max(int(end[-1] - start[0]), 1), 1.0)


def _measure_filling(gap: Int64s, gap_start: Int64s, gap_end: Int64s, start: Int64s) -> tuple[float, int]:
    """Measure the share of gaps between the first and the last of a worker's calls.

    The second result counts its calls in filled gaps.

    Args:
        gap: Number of the gap of each call, ascending.
        gap_start: Its start.
        gap_end: Its end; `EVER` for the last one, which then ends with its last call.
        start: Of the calls.
    """
    if not len(gap):
        return 0.0, 0
    first = np.flatnonzero(np.append(True, gap[1:] != gap[:-1]))
    last = np.append(first[1:], len(gap)) - 1
    span = start[last] - start[first]
    length = np.where(gap_end[first] == EVER, start[last], gap_end[first]) - gap_start[first]
    is_filled = span > _MIN_FILLED_GAP * length
    return float(span.sum() / max(int(length.sum()), 1)), int((last - first + 1)[is_filled].sum())


def _collect(pairs: Mapping[tuple[int, int], _Pair], is_launching: Bools) -> WaitedCalls:
    rows = [pair.rows[is_launching[pair.rows]] for pair in pairs.values()]
    empty = np.zeros(0, dtype=np.int64)
    return WaitedCalls(
        thread=np.concatenate(
            [empty, *(np.full(len(part), key) for (key, _), part in zip(pairs, rows, strict=True))]
        ),
        call_row=np.concatenate([empty, *rows]),
    )
