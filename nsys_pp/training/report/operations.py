"""Operations of a report as arrays, for the search of their holders."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import is_among, is_named, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.order import order_rows
from nsys_pp.arrays.search import find_last
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.causes import NEED
from nsys_pp.frames.report import KERNEL_KINDS
from nsys_pp.frames.training import MESSAGES
from nsys_pp.training.report.devices import number_devices
from nsys_pp.training.report.main_streams import mark_main_streams

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


def list_operations(
    gpu_ops: pl.DataFrame,
    devices: pl.DataFrame,
    *,
    messages: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> Operations:
    """List the operations of a report.

    Args:
        gpu_ops: `GPU_OPS`.
        devices: Devices of them (`list_devices`).
        messages: `MESSAGES`, to distinguish sends from receives; empty: sends count as receives.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
    """
    group = number_devices(gpu_ops, devices)
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    op_id, is_send = numbers(messages["op_id"]), numbers(messages["verb"]) != _RECEIVE
    is_compute = ~gpu_ops["is_communication"].to_numpy() & is_among(gpu_ops["kind"], KERNEL_KINDS)
    is_message = is_named(gpu_ops["name"], _NAME)
    is_message[op_id] = True
    need = np.where(is_message, MESSAGE, COLLECTIVE)
    need[is_among(gpu_ops["kind"], ("memcpy", "memset"))] = COPY
    is_on_main = mark_main_streams(gpu_ops, group)
    need[is_compute] = np.where(is_on_main[is_compute], -1, ASIDE)
    only_sends = np.zeros(len(gpu_ops), dtype=np.bool_)
    only_sends[np.setdiff1d(op_id[is_send], op_id[~is_send])] = True
    return Operations(
        group=group,
        process=numbers(gpu_ops["process_key"]),
        stream=pack(group, numbers(gpu_ops["context_id"]), numbers(gpu_ops["stream_id"])),
        start=numbers(gpu_ops["start_ns"]),
        end=numbers(gpu_ops["end_ns"]),
        call=call,
        launch=gather_calls(api_calls["start_ns"], call),
        launched=gather_calls(api_calls["end_ns"], call),
        thread=gather_calls(api_calls["thread_key"], call),
        need=need,
        is_on_main=is_on_main,
        is_send=only_sends,
    )


def find_last_ended(
    group: Int64s,
    time: Int64s,
    ops: Operations,
    among: Int64s,
    key: Int64s,
    *,
    launched_by: Int64s,
) -> Int64s:
    """Find the last operation of a group that ended at or before each time.

    Args:
        group: Group of each time.
        time: Times to search for.
        ops: Operations.
        among: Rows of the operations to choose from.
        key: Group of each operation.
        launched_by: Latest launch of the operation, for each time; operations launched later do not count.

    Returns:
        Row of the operation; -1 without one among the last `_TRIES` that ended.
    """
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
