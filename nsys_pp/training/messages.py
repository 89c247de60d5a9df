"""Sends and receives of the point-to-point kernels of a report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    find_distinct,
    gather,
    gather_rows,
    index_rows,
    mark_categories,
    numbers,
    pick,
    set_column,
)
from nsys_pp.arrays.intervals import check_forest, find_unmarked
from nsys_pp.arrays.search import expand_windows, find_last, find_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_nulls, conform
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS, MESSAGE_KINDS, MESSAGES
from nsys_pp.training.jobs import find_step_rows
from nsys_pp.training.launched import LaunchedOps

_KERNEL = r"(?i)send_?recv"
_OF_OPERATION = ("process_key", "device_id", "context_id", "stream_id", "op_id", "start_ns", "end_ns")
_IS_MESSAGE = mark_categories(JOB_KIND, MESSAGE_KINDS)
_RECEIVE, _SEND_RECEIVE = map(JOB_KINDS.index, ("receive", "send_receive"))
_NAMED = ("direction", "micro_batch", "chunk", "virtual_stage")
_VERBS, _SOURCES = (pl.Series(words) for words in (["send", "receive"], ["NCCL", "name"]))


def find_messages(
    launched_ops: LaunchedOps,
    *,
    requests: pl.DataFrame,
    jobs: pl.DataFrame,
    halves: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Find the sends and receives of each point-to-point kernel.

    The verb is from the NCCL request; where none is recorded, from the innermost message job around the
    kernel's launch. Direction and micro-batch are from the name of this job. A job that both sends and
    receives has them for each half, which are unknown for a kernel with several sends or receives.

    Args:
        launched_ops: Operations of the report.
        requests: `REQUESTS`.
        jobs: `JOBS`.
        halves: `HALVES`, of the names of jobs that both send and receive; None: these are unknown.

    Returns:
        `MESSAGES` by start; `step` is null. A kernel without a request and without a job has one row
        without a verb. Empty without point-to-point kernels.
    """
    is_receive, is_p2p = _list_requests(requests["call"])
    p2p_requests = requests if is_p2p.all() else index_rows(requests, np.flatnonzero(is_p2p))
    of_request = p2p_requests["op_id"].to_numpy()
    ops = _list_ops(launched_ops, of_request)
    if not len(ops):
        return MESSAGES.to_frame()
    kinds = numbers(jobs["kind"])
    job = _find_jobs(ops, jobs, kinds, launched_ops)
    kind = pick(kinds, job, -1)
    is_both, receives = kind == _SEND_RECEIVE, kind == _RECEIVE

    first, last = (np.searchsorted(of_request, ops, side=side) for side in ("left", "right"))
    is_requested = last > first
    count = np.where(is_requested, last - first, 1 + is_both)
    op = np.repeat(np.arange(len(ops)), count)
    half = expand_windows(np.zeros_like(count), count)  # 0, 1, ... of each kernel
    request = np.where(is_requested[op], first[op] + half, -1)
    by_name = np.where(job < 0, -1, receives)[op]
    by_name[is_both[op]] = half[is_both[op]]
    by_request = np.append(is_receive[is_p2p], False)[request]
    source = np.where(is_requested, 0, np.where(job < 0, -1, 1))[op]
    verb = np.where(is_requested[op], by_request, by_name)
    has_halves = is_both & (np.bincount(op, verb == 1, len(ops)) == 1) & (count == 2)

    parts = [
        gather_rows(launched_ops.gpu_ops, _OF_OPERATION, ops[op]),
        gather_rows(p2p_requests, ("communicator", "rank", "peer", "size_bytes"), request),
        _gather_names(jobs, np.where(is_both, -1, job)[op], np.where(has_halves, job, -1)[op], verb, halves),
    ]
    columns = [
        as_numbers("launch_ns", launched_ops.launch[ops[op]]),
        gather(_VERBS, verb).alias("verb"),
        gather(_SOURCES, source).alias("source"),
        build_nulls("step", pl.Int64(), len(op)),
    ]
    return conform(pl.concat(parts, how="horizontal").hstack(columns), MESSAGES)


def assign_message_steps(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Assign each message to the step in which its kernel was launched.

    A receive that is posted early begins before the first kernel of its step. Where the launch is unknown, or
    outside all steps, the start of the kernel counts.

    Args:
        messages: `MESSAGES`.
        steps: `STEPS`.

    Returns:
        The same rows in the same order with `step`, null outside all steps.
    """
    if messages.is_empty():
        return messages
    row = find_step_rows(messages.hstack([messages["launch_ns"].alias("host_start_ns")]), steps)
    row[numbers(messages["launch_ns"]) == NEVER] = -1
    if (row < 0).any():
        row = np.where(row < 0, find_step_rows(messages, steps), row)
    return set_column(messages, as_numbers("step", pick(numbers(steps["step"]), row, NEVER)))


def _gather_names(
    jobs: pl.DataFrame, job: Int64s, both: Int64s, verb: Int64s, halves: pl.DataFrame | None
) -> pl.DataFrame:
    """Gather direction and ids of each message.

    They are those of its job, or of its half of a job that sends and receives.

    Args:
        jobs: `JOBS`.
        job: Row of the job that only sends or only receives; -1 without one.
        both: Row of the job that both sends and receives; -1 without one.
        verb: 0 for a send, 1 for a receive.
        halves: `HALVES`; None: unknown.
    """
    named = gather_rows(jobs, _NAMED, job)
    rows = np.flatnonzero(both >= 0)
    if halves is None or halves.is_empty() or not len(rows):
        return named
    of_name = {name: row for row, name in enumerate(halves["name"].to_list())}
    first, inverse = find_distinct(numbers(jobs["name"], null=-1)[both[rows]])
    half = np.array([of_name.get(name, -1) for name in jobs["name"][both[rows][first]].to_list()])[inverse]
    stacked = pl.concat(
        halves.select(pl.col(f"{verb_name}_{name}").alias(name) for name in _NAMED) for verb_name in _VERBS
    )
    row = np.full(len(both), -1)
    row[rows] = np.where(half < 0, -1, verb[rows] * len(halves) + half)
    of_half = gather_rows(stacked, _NAMED, row)
    return pl.select(
        pl.when(pl.Series(row >= 0)).then(of_half[name]).otherwise(named[name]).alias(name) for name in _NAMED
    )


def _list_requests(calls: pl.Series) -> tuple[Bools, Bools]:
    """Return the masks of requests to receive, and of requests to send or receive."""
    is_receive, is_send = ((calls == name).to_numpy().astype(np.bool_) for name in ("Recv", "Send"))
    return is_receive, is_receive | is_send


def _list_ops(ops: LaunchedOps, of_request: npt.NDArray[np.uint32]) -> Int64s:
    """List the rows of point-to-point kernels, recognised by name or by NCCL request; by start."""
    is_message = ops.names.contain(_KERNEL)
    is_message[of_request] = True
    rows = np.flatnonzero(is_message & ops.is_communication & (ops.is_kernel | ops.is_set))
    return rows[np.argsort(ops.start[rows], kind="stable")]


def _find_jobs(rows: Int64s, jobs: pl.DataFrame, kinds: Int64s, ops: LaunchedOps) -> Int64s:
    """Find the innermost message job around the launch of each operation: a row of `JOBS`, -1 without one."""
    thread, launch, launch_end = ops.thread[rows], ops.launch[rows], ops.launched[rows]
    range_id = numbers(jobs["range_id"])
    ranges = np.flatnonzero(
        np.diff(range_id, prepend=range_id[:1] - 1)
    )  # one row of each range, which has a row per device
    columns = ("thread_key", "host_start_ns", "host_end_ns", "outer_id")
    of_thread, start, end, outer_id = (numbers(jobs[name])[ranges] for name in columns)
    nearest = find_last(thread, launch, of_thread, start)
    is_message = _IS_MESSAGE[kinds[ranges]]
    row = _find_message_ancestors(nearest, launch_end, end, is_message, find_rows(range_id[ranges], outer_id))
    return np.append(ranges, -1)[row]


def _find_message_ancestors(
    row: Int64s, call_end: Int64s, end: Int64s, is_message: Bools, above: Int64s
) -> Int64s:
    """Find the innermost message job around each call, from the last job started before it; -1 without one.

    Args:
        row: Row of the last job started before each call.
        call_end: End of each call.
        end: End of each job.
        is_message: Mask of the message jobs.
        above: Row of the job around each job.
    """
    next_message = find_unmarked(above, ~is_message)
    check_forest(next_message)
    row = np.where((row >= 0) & ~np.append(is_message, True)[row], np.append(next_message, -1)[row], row)
    pending = np.flatnonzero(row >= 0)
    while len(pending):  # messages are seldom inside each other
        pending = pending[end[row[pending]] < call_end[pending]]
        row[pending] = next_message[row[pending]]
        pending = pending[row[pending] >= 0]
    return row
