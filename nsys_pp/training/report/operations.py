"""Operations of a report as arrays, for the search of their holders."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import numbers, pick
from nsys_pp.arrays.nearest import find_launched
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.search import find_last
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.training import MESSAGES, NEED
from nsys_pp.training.report.launched_ops import LaunchedOps

_RECEIVE = MESSAGES["verb"].categories.to_list().index("receive")  # type: ignore[attr-defined]
_NAME = r"(?i)send_?recv"
MESSAGE, COLLECTIVE = (NEED.categories.to_list().index(kind) for kind in ("message", "collective"))
COPY = len(NEED.categories)  # kind of copies and sets
ASIDE = COPY + 1  # kind of kernels on other than main streams
_TRIES = 4  # operations that ended earlier to try, where the last one was launched too late


class Operations(Struct, frozen=True, kw_only=True):
    """All operations of a report, by row of `GPU_OPS`; `NEVER` stands for unknown times and threads."""

    group: Int64s  # index of the device
    process: Int64s
    stream: Int64s  # equal for operations of one stream
    start: Int64s
    end: Int64s
    call: Int64s  # row of the launching call in `API_CALLS`; -1 where unknown
    launch: Int64s  # start of this call
    launched: Int64s  # end of this call
    thread: Int64s  # of this call
    need: Int64s  # index of `NEED`, `COPY` or `ASIDE`; -1: a kernel of a main stream
    is_on_main: Bools  # on a main stream
    is_send: Bools  # messages that are only sent
    by_end: Int64s  # rows in order of `end`


def list_operations(ops: LaunchedOps, messages: pl.DataFrame) -> Operations:
    """List the operations of a report.

    Args:
        ops: The operations.
        messages: `MESSAGES`, to distinguish sends from receives; empty: sends count as receives.
    """
    op_id, is_send = numbers(messages["op_id"]), numbers(messages["verb"]) != _RECEIVE
    is_message = ops.names.contain(_NAME)
    is_message[op_id] = True
    need = np.where(is_message, MESSAGE, COLLECTIVE)
    need[ops.is_copy] = COPY
    need[ops.is_compute] = np.where(ops.is_main[ops.is_compute], -1, ASIDE)
    only_sends = np.zeros(len(need), dtype=np.bool_)
    only_sends[op_id[is_send]] = True
    only_sends[op_id[~is_send]] = False
    return Operations(
        group=ops.device,
        process=numbers(ops.gpu_ops["process_key"]),
        stream=ops.stream,
        start=ops.start,
        end=ops.end,
        call=ops.call,
        launch=ops.launch,
        launched=ops.launched,
        thread=ops.thread,
        need=need,
        is_on_main=ops.is_main,
        is_send=only_sends,
        by_end=np.argsort(ops.end, kind="stable"),
    )


def find_last_ended(
    group: Int64s,
    time: Int64s,
    ops: Operations,
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
    events = (key[rows], ops.end[rows], ops.launch[rows])
    found = find_launched((group, time, launched_by), events, tries=_TRIES)
    if found is None:
        return _find_last_ended(group, time, ops, rows, key, launched_by)
    return pick(rows, found, -1)


def _find_last_ended(
    group: Int64s, time: Int64s, ops: Operations, among: Int64s, key: Int64s, launched_by: Int64s
) -> Int64s:
    """Find the operations as above, among some rows, which are in order of their ends."""
    among = among[order_rows(_number(key[among]), ops.end[among])]
    at = find_last(group, time, key[among], ops.end[among])
    found = np.full(len(group), -1)
    rows = np.append(among, -1)
    for _ in range(_TRIES):
        row = rows[at]
        is_open = (at >= 0) & (found < 0)
        is_open[is_open] &= key[row[is_open]] == group[is_open]
        is_early = is_open.copy()
        is_early[is_open] &= ops.launch[row[is_open]] <= launched_by[is_open]
        found[is_early] = row[is_early]
        at = np.maximum(at - 1, -1)
    return found


def _number(key: Int64s) -> Int64s:
    """Number the keys from 0; indices stay as they are."""
    if not len(key) or (key.min() >= 0 and key.max() <= len(key)):
        return key
    return np.unique(key, return_inverse=True)[1].astype(np.int64, copy=False)
