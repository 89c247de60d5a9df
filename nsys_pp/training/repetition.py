"""Steps of a device that nothing names: the iterations that its launches clearly repeat, or none.

An iteration runs the same kernels as often as the one before. So a launch that occurs once per iteration, the
anchor, cuts the launches into segments in which nearly every name occurs equally often:

launches   [ embed layer layer loss layer' layer' update embed layer layer loss layer' layer' update ...
embed      |--------------------------------------------|----------------------------------------    constant:
all layer            |-----|-------------------------------------|-----|-----------------------------
constant: none

Layers and micro-batches repeat, too, and a wrong step is worse than none. So an optimizer has to end each
iteration, or the host copies results or launches a graph in each, and the iterations hold most of the
device's work.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, find_distinct, has_value, is_among, keep_rows, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.search import sort_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import WAITING_CALL

_UPDATE = r"(?i)adam|lamb_|adagrad|momentum|sgd|optimizer|multi_tensor|multitensor"
_LEAST = 3  # iterations; fewer do not show what repeats
_CLEAR = (
    0.8  # share of the names that occur equally often in each iteration, and of the iterations that are alike
)
_ALIKE = 0.05  # of an iteration's launches that may differ from the usual ones, as where something is logged
_LEAST_WORK = 0.5  # of the device's time in operations, that iterations hold: most of it
_CLEAR_PAUSE = 10  # times the pause after the optimizer: a longer one is between iterations
_SAMPLE = 100_000  # launches on which anchors are compared, to bound the time
_MOST_ANCHORS = 48  # of them


class RepeatedSteps(Struct, frozen=True, kw_only=True):
    """Steps of one device, in order; none where a device has no clear iterations."""

    host_start: Int64s  # end of the launch before the first one, or of a later wait for the GPU
    host_end: Int64s  # end of the last launch
    first: Int64s  # start of the first operation
    is_partial: Bools
    reason: str


class Launches(Struct, frozen=True, kw_only=True):
    """Launches of a device, in order of time.

    The operations of one call, as those of a graph, are one launch.
    """

    name: Int64s  # index of the name; CUDA graphs have one name
    launch: Int64s  # start of the call
    launched: Int64s  # end of the call
    start: Int64s  # of the first operation
    busy: Int64s  # time of the operations
    is_update: Bools  # by index of the name: an optimizer runs it
    to_host: Bools  # by index of the name: a copy to the host
    is_loop: Bools  # by index of the name: such a copy, or a graph


class _Cut(Struct, frozen=True, kw_only=True):
    """Launches cut at the occurrences of an anchor."""

    begin: Int64s  # positions of the anchor
    usual: Int64s  # by index of the name: launches per segment, the median
    is_constant: Bools  # by index of the name: most segments have the usual count
    is_alike: Bools  # by segment: it has nearly the usual counts
    score: float  # share of names that are constant

    @property
    def size(self) -> int:
        """Launches of the usual segment."""
        return int(self.usual.sum())


def find_repeated_steps(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> RepeatedSteps:
    """Find the steps of one device from its launches.

    Args:
        gpu_ops: `GPU_OPS` of the device.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
    """
    order = order_launches(gpu_ops, api_calls=api_calls, launches=launches)
    found = find_iterations(order)
    if isinstance(found, str):
        nothing = np.zeros(0, dtype=np.int64)
        return RepeatedSteps(
            host_start=nothing, host_end=nothing, first=nothing, is_partial=nothing > 0, reason=found
        )
    begin, end, is_whole = found
    is_own = numbers(api_calls["process_key"]) == gpu_ops["process_key"][0]
    calls = keep_rows(api_calls[["name", "end_ns"]], is_own)
    # a wait for the GPU ends an iteration; the host prepares the next one since then, or since the launch
    # before
    waits = np.sort(numbers(calls["end_ns"])[is_named(calls["name"], WAITING_CALL)])
    waited = np.append(waits, NEVER)[np.searchsorted(waits, order.launch[begin], side="right") - 1]
    before = np.where(begin > 0, order.launched[begin - 1], order.launch[0])
    outside = len(order.name) - int((end - begin).sum())
    rest = f"; {outside:,} launches around them are in none" if outside else ""
    return RepeatedSteps(
        host_start=np.minimum(np.maximum(before, waited), order.launch[begin]),
        host_end=np.maximum(order.launched[end - 1], order.launch[end - 1]),
        first=order.start[begin],
        is_partial=~is_whole,
        reason=f"{int(np.median((end - begin)[is_whole])):,} launches repeat {is_whole.sum():,} times{rest}",
    )


def order_launches(gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame) -> Launches:
    """Order the launches of the operations of one device; operations without a launch call are left out.

    Without any calls, the order is that of the operations' starts.
    """
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    start, end = numbers(gpu_ops["start_ns"]), numbers(gpu_ops["end_ns"])
    has_calls = bool((call >= 0).any())
    launch, launched = (
        (gather_calls(api_calls[name], call) if has_calls else start) for name in ("start_ns", "end_ns")
    )
    order = sort_rows(launch, start)
    order = order[launch[order] != NEVER]
    is_first = np.append(True, np.diff(call[order]) != 0)[: len(order)] | (not has_calls)
    busy = np.add.reduceat((end - start)[order], np.flatnonzero(is_first)) if len(order) else order
    order = order[is_first]
    is_graph = has_value(gpu_ops["graph_id"]) | is_among(gpu_ops["kind"], ("graph",))
    code = pack(numbers(gpu_ops["kind"]), numbers(gpu_ops["name"], null=-1))
    first, name = find_distinct(np.where(is_graph, code.max(initial=0) + 1, code)[order])
    row = order[first]
    text = gpu_ops["name"][row].cast(pl.String).fill_null("")
    is_kernel = is_among(gpu_ops["kind"][row], ("kernel",))
    to_host = text.str.contains("DtoH").to_numpy() & ~is_kernel
    return Launches(
        name=name,
        launch=launch[order],
        launched=launched[order],
        start=start[order],
        busy=busy,
        is_update=text.str.contains(_UPDATE).to_numpy() & is_kernel & ~is_graph[row],
        to_host=to_host,
        is_loop=to_host | is_graph[row],
    )


def find_iterations(launches: Launches) -> tuple[Int64s, Int64s, Bools] | str:
    """Find the first launch of each iteration, the position after its last one, and the mask of whole ones.

    Returns:
        The iterations; else the reason why none are clear.
    """
    count = len(launches.name)
    cut = _choose_cut(launches, count=min(count, _SAMPLE))
    if isinstance(cut, str) and count > _SAMPLE:  # three iterations may be longer than the sample
        cut = _choose_cut(launches, count=count, most=4 * count // _SAMPLE)
    if isinstance(cut, str):
        return cut
    begin = _find_begins(launches, cut)
    size, usual = cut.size, cut.usual
    while begin[0] >= size and _count(launches, begin[0] - size, begin[0], usual) <= _ALIKE * size:
        begin = np.append(begin[0] - size, begin)  # a pair of launches lacks the first iteration
    end = np.append(begin[1:], count)
    # launches after an iteration, as of an evaluation, belong to none; a last one may be cut by the capture
    end = np.where(np.abs(end - begin - size) > _ALIKE * size, np.minimum(begin + size, end), end)
    difference = [_count(launches, *bounds, usual) for bounds in zip(begin, end, strict=True)]
    is_whole = np.array(difference) <= 2 * _ALIKE * size
    is_cut = (np.arange(len(begin)) == len(begin) - 1) & (end == count) & (end - begin < size)
    kept = is_whole | is_cut
    if is_whole.sum() < _LEAST:
        return f"launches repeat, but fewer than {_LEAST} iterations are whole"
    until = np.append(0, np.cumsum(launches.busy))
    if (until[end[kept]] - until[begin[kept]]).sum() < _LEAST_WORK * until[-1]:
        return "launches repeat, but they are less than half of the GPU's work"
    return begin[kept], end[kept], is_whole[kept]


def _choose_cut(launches: Launches, *, count: int, most: int | None = None) -> _Cut | str:
    """Choose the cut into iterations among those into segments that are alike.

    Returns the reason where none is clear.
    """
    name = launches.name[:count]
    updates = np.bincount(name, minlength=len(launches.is_update)) * launches.is_update
    cuts = [_cut(name, begin, len(launches.is_update)) for begin in _list_anchors(name, most)]
    clear = [cut for cut in cuts if cut.score >= _CLEAR and cut.is_alike.mean() >= _CLEAR]
    if not clear:
        return "no launch divides the capture into parts that run the same kernels"
    if updates.any():  # each iteration has one; longer segments are several iterations
        clear = [cut for cut in clear if 2 * (updates * cut.is_constant).sum() > updates.sum()]
    shortest = min((cut.size for cut in clear), default=0)
    like = [cut for cut in clear if cut.size <= 1.5 * shortest]
    if not updates.any():
        if len(like) < len(clear):
            return "launches repeat at several lengths, and none of these is certain"
        like = [cut for cut in like if (launches.is_loop & cut.is_constant).any()]
    if not like:
        return "launches repeat, but nothing distinguishes iterations from layers"
    return max(like, key=lambda cut: cut.score)


def _list_anchors(name: Int64s, most: int | None) -> Iterator[Int64s]:
    """List the positions of names and pairs of names that may occur once per iteration.

    The most regular ones come first.
    """
    names = int(name.max(initial=-1)) + 1
    grams = _list_grams(name)
    # as many segments as names, at most some times: the names of an iteration occur in it
    grams = [at for at in grams if _LEAST < len(at) <= min(3 * len(name) / names, most or len(name))]
    spread = np.array([np.log(np.diff(at)).std() for at in grams])
    for row in np.argsort(spread, kind="stable")[:_MOST_ANCHORS]:
        yield grams[row]


def _list_grams(name: Int64s) -> list[Int64s]:
    """List the positions of each name, and of each pair of adjacent names, at its second one."""
    names = int(name.max(initial=-1)) + 1
    pair = find_distinct(name[:-1] * names + name[1:])[1] if len(name) > 1 else name[:0]
    grams = []
    for code, shift in ((name, 0), (pair, 1)):
        order = np.argsort(code, kind="stable")
        grams += np.split(order + shift, np.flatnonzero(np.diff(code[order])) + 1)
    return grams


def _cut(name: Int64s, begin: Int64s, names: int) -> _Cut:
    """Cut launches at some positions, and compare the segments."""
    segment = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    counts = np.bincount(segment * names + name[begin[0] : begin[-1]], minlength=(len(begin) - 1) * names)
    counts = counts.reshape(-1, names)
    usual = np.median(counts, axis=0).astype(np.int64)
    is_constant = (usual >= 1) & ((counts == usual).mean(axis=0) >= _CLEAR)
    size = int(usual.sum())
    around = name[
        max(begin[0] - size, 0) : begin[-1] + size
    ]  # an iteration that the capture cuts counts, too
    return _Cut(
        begin=begin,
        usual=usual,
        is_constant=is_constant,
        is_alike=np.abs(counts - usual).sum(axis=1) <= _ALIKE * size,
        score=is_constant.sum() / max(len(np.unique(around)), 1),
    )


def _find_begins(launches: Launches, cut: _Cut) -> Int64s:
    """Find the launches that begin iterations.

    Of launches that occur once in each, the host pauses longest before these.

    An optimizer ends an iteration, so with one they are those that follow its last launch first.
    """
    size, name = cut.size, launches.name
    grams = [at for at in _list_grams(name) if len(at) > 1]
    regular = np.array([(np.abs(np.diff(at) - size) <= _ALIKE * size).sum() for at in grams])
    extra = np.array([len(at) for at in grams]) - regular
    is_anchor = (regular >= regular.max() - 1) & (extra <= 1 + _ALIKE * regular)
    anchors = [grams[row] for row in np.flatnonzero(is_anchor)]
    pause = np.diff(launches.launch, prepend=launches.launch[:1])
    updates = np.flatnonzero((launches.is_update & cut.is_constant)[name])
    if not len(updates):  # a copy of results, or a graph, ends an iteration
        ends = launches.is_loop[name]
        anchors = [at for at in anchors if ends[at[at > 0] - 1].mean() > 0.5] or anchors
        return max(anchors, key=lambda at: float(np.median(pause[at])), default=cut.begin)
    following = np.append(updates, len(name) + size)
    # an iteration has nearly all its work before its first update; from between two updates there is less to
    # the next
    work = [float(np.median(following[np.searchsorted(updates, at)] - at)) for at in anchors]
    after = [at for at, each in zip(anchors, work, strict=True) if each >= 0.85 * max(work)]
    # the host pauses between iterations, or as it waits for a copy; kernels of optimizers may also prepare
    # inputs of graphs
    free = [at for at in anchors if not launches.to_host[name[at - 1]].any()]
    longest, begin = (
        max(some, key=lambda at: float(np.median(pause[at])), default=cut.begin) for some in (free, after)
    )
    if np.median(pause[longest]) > _CLEAR_PAUSE * np.median(pause[begin]):
        return longest
    # where an evaluation comes between, the launch before the first one is another, and the pair is missing
    last = updates[np.append(np.diff(updates) > size / 2, True)]
    ended = np.append(last, len(name) + size)[np.searchsorted(last, begin)]
    expected = last - int(np.median(ended - begin))
    around = np.concatenate([[-size], begin, [len(name) + size]])  # none is near these
    at = np.searchsorted(around, expected)
    is_missing = (expected - around[at - 1] > size / 4) & (around[at] - expected > size / 4) & (expected >= 0)
    return np.sort(np.append(begin, expected[is_missing]))


def _count(launches: Launches, begin: int, end: int, usual: Int64s) -> int:
    """Count the launches by which a stretch differs from the usual counts."""
    counts = np.bincount(launches.name[begin:end], minlength=len(usual))
    return int(np.abs(counts - usual).sum())
