"""What is sent and received: every half of every point-to-point kernel of a report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, is_among, numbers
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import MESSAGE_KINDS, MESSAGES
from nsys_pp.training.report.columns import find_rows, is_named, places, take
from nsys_pp.training.report.launched import find_first_calls, of_calls
from nsys_pp.training.report.nearest import find_last

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_KERNEL = r"(?i)send_?recv"
_VERBS, _SOURCES = (pl.Series(words) for words in (["send", "receive"], ["NCCL", "name"]))


def find_messages(
    *,
    gpu_ops: pl.DataFrame,
    requests: pl.DataFrame,
    jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """List what each point-to-point kernel sends and receives.

    What NCCL was asked for says it; where that is not recorded, the innermost job around the kernel's
    launch that is itself a message does. That job also says which micro-batch a message is of, unless
    it both sends and receives: then its name has two, and does not say which is whose.

    Args:
        gpu_ops: `GPU_OPS`.
        requests: `REQUESTS`.
        jobs: `JOBS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`, at least of communication.

    Returns:
        `MESSAGES` by start; `step` is null. A kernel of which nothing tells what it does has one row
        without a verb. Empty where there is no point-to-point kernel.
    """
    call = requests["call"]
    asked = requests[np.flatnonzero((call == "Send") | (call == "Recv"))]
    ops = _list_ops(gpu_ops, asked)
    job = _find_jobs(ops, jobs, api_calls, launches)
    is_both, receives = (
        np.append(is_among(jobs["kind"], (kind,)), False)[job] for kind in ("send_receive", "receive")
    )

    first, last = (
        np.searchsorted(asked["op_id"].to_numpy(), ops["op_id"].to_numpy(), side=side)
        for side in ("left", "right")
    )
    is_asked = last > first
    count = np.where(is_asked, last - first, 1 + is_both)
    op = np.repeat(np.arange(len(ops)), count)
    half = expand_windows(np.zeros_like(count), count)  # 0, 1, ... of each kernel
    request = np.where(is_asked[op], first[op] + half, -1)
    by_name = np.where(job < 0, -1, receives)[op]
    by_name[is_both[op]] = half[is_both[op]]
    by_request = np.append((asked["call"] == "Recv").to_numpy(), False)[request]
    source = np.where(is_asked, 0, np.where(job < 0, -1, 1))[op]

    parts = [
        ops[["process_key", "device_id", "context_id", "stream_id", "op_id", "start_ns", "end_ns"]][op],
        take(asked, ("communicator", "rank", "peer", "size_bytes"), request),
        take(jobs, ("direction",), job[op]),
        take(jobs, ("micro_batch", "chunk", "virtual_stage"), np.where(is_both, -1, job)[op]),
    ]
    told = [
        _VERBS.gather(places(np.where(is_asked[op], by_request, by_name))).alias("verb"),
        _SOURCES.gather(places(source)).alias("source"),
        as_numbers("step", np.full(len(op), NEVER)),
    ]
    return conform(pl.concat(parts, how="horizontal").hstack(told), MESSAGES)


def _list_ops(gpu_ops: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Pick the point-to-point kernels, by start: those of such a name, and those of which NCCL says it."""
    kernels = np.flatnonzero(gpu_ops["is_communication"].to_numpy() & ~is_among(gpu_ops["kind"], ("memcpy",)))
    is_message = is_named(gpu_ops["name"].gather(kernels), _KERNEL)
    is_message |= np.isin(gpu_ops["op_id"].to_numpy()[kernels], asked["op_id"].to_numpy())
    rows = kernels[is_message]
    return gpu_ops[rows[np.argsort(gpu_ops["start_ns"].to_numpy()[rows], kind="stable")]]


def _find_jobs(
    ops: pl.DataFrame, jobs: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Int64s:
    """Find the innermost message job around each operation's launch: a row of `JOBS`, -1 where there is none."""
    call = find_first_calls(ops["op_id"], launches=launches)
    thread, launch, launch_end = (
        of_calls(api_calls[name], call) for name in ("thread_key", "start_ns", "end_ns")
    )
    range_id = numbers(jobs["range_id"])
    ranges = np.flatnonzero(np.diff(range_id, prepend=range_id[:1] - 1))  # a range has a row per device
    columns = ("thread_key", "host_start_ns", "host_end_ns", "outer_id")
    of_thread, start, end, outer_id = (numbers(jobs[name])[ranges] for name in columns)
    nearest = find_last(thread, launch, of_thread, start)
    is_message = is_among(jobs["kind"], MESSAGE_KINDS)[ranges]
    row = _climb(nearest, launch_end, end, is_message, find_rows(range_id[ranges], outer_id))
    return np.append(ranges, -1)[row]


def _climb(row: Int64s, call_end: Int64s, end: Int64s, is_message: Bools, above: Int64s) -> Int64s:
    """Go from the job that began last before each call to the innermost message job that holds it; -1: none.

    Args:
        row: Of that job.
        call_end: ns.
        end: Of each job, ns.
        is_message: Of each job.
        above: Row of the job around each job.
    """
    going = np.flatnonzero(row >= 0)
    while len(going):
        at = row[going]
        going = going[~is_message[at] | (end[at] < call_end[going])]
        row[going] = above[row[going]]
        going = going[row[going] >= 0]
    return row
