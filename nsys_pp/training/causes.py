"""Bubbles in which the host loads data: cut out of late launches, and of the ends of steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    gather,
    gather_rows,
    has_value,
    index_rows,
    keep_rows,
    numbers,
    pick,
    whole_numbers,
)
from nsys_pp.arrays.intervals import Overlaps, intersect, subtract, unite
from nsys_pp.arrays.search import find_equal_rows, find_last, find_pairs, number_rows, order_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import keep_comparable
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import CAUSE, COVER, LANE_STATES, NEED, POSITION
from nsys_pp.training.collectives import find_last_members


def cut_loading(states: pl.DataFrame, loads: pl.DataFrame, *, owner: str) -> pl.DataFrame:
    """Cut data loading out of the states with cause "host" or "idle".

    Args:
        states: `owner`, cause (null where unknown), start_ns, end_ns, and any other columns.
        loads: `owner`, host_start_ns and host_end_ns of data loading jobs.
        owner: Column of integers: states are cut by the loads of the same owner.

    Returns:
        The same columns, in any order; the parts that are cut out have cause "data". No state is empty.
    """
    loading = unite(*(numbers(loads[name]) for name in (owner, "host_start_ns", "host_end_ns")))
    if not len(loading.owner):
        return states
    is_free = states["cause"].is_in(["host", "idle"]).fill_null(value=False)
    free = states.filter(is_free)
    start, end = numbers(free["start_ns"]), numbers(free["end_ns"])
    data = intersect(numbers(free[owner]), start, end, loading)
    return pl.concat(
        [
            states.filter(~is_free),
            free[np.setdiff1d(np.arange(len(free)), data.row)],
            _take(free, subtract(start, end, data)),
            _take(free, data).with_columns(cause=pl.lit("data", CAUSE)),
        ]
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def _take(states: pl.DataFrame, parts: Overlaps) -> pl.DataFrame:
    return states[parts.row].with_columns(pl.Series("start_ns", parts.start), pl.Series("end_ns", parts.end))


_STEP = ["lane", "step"]
# causes of each need
_WAITING, _TRANSFERRING, _EITHER = (
    pl.Series([f"{need}{state}" for need in NEED.categories], dtype=CAUSE)
    for state in ("_wait", "_transfer", "")
)
_POSITIONS = pl.Series("position", [*POSITION.categories, None], dtype=POSITION)
_NEED = ["need_start_ns", "need_end_ns"]
_OPERATION = ["lane", *_NEED]
_PEER = ["peer_start_ns", "bound_ns", "waits_for", "is_complete"]
_MAX_OPEN = (
    0.5  # share of an operation in which the peer may have begun, for all errors of the clocks within bounds
)


def build_lane_states(
    *,
    lanes: pl.DataFrame,
    steps: pl.DataFrame,
    compute_segments: pl.DataFrame,
    waits: pl.DataFrame,
    jobs: pl.DataFrame,
    data_jobs: pl.DataFrame,
    messages: pl.DataFrame,
    transfers: pl.DataFrame,
    anchors: pl.DataFrame,
) -> pl.DataFrame:
    """Build the states of each lane at every moment of every step.

    While a message or collective runs, the cause is that its peers have not begun theirs, until the start of
    the last peer, and then its transfer; where that start is not known, or the error of the clocks leaves
    most of the operation open, or another peer may begin later, it is either of the two.
    `nsys_pp.frames.training` defines all causes.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.
        waits: `LANE_WAITS`.
        jobs: `RUN_JOBS`; forwards and backwards define positions.
        data_jobs: lane, host_start_ns and host_end_ns of data loading jobs.
        messages: `LANE_MESSAGES`: a kernel with an unpaired message may wait for another peer.
        transfers: `TRANSFERS`.
        anchors: `LANE_ANCHORS`.

    Returns:
        `LANE_STATES` by lane and start; `position` is null in steps without forwards and backwards.
    """
    if steps.is_empty():  # reports without a training
        return LANE_STATES.to_frame()
    inside = _clip_to_steps(steps, compute_segments)
    waits = _keep_steps(waits, steps)
    known = keep_comparable(transfers, lanes, "sender", "receiver")
    of_messages = _find_message_peers(waits.filter(pl.col("need") == "message"), known, messages)
    needed = _list_needs(waits)
    collectives = find_last_members(needed, lanes=lanes, anchors=anchors)
    exchanges = find_last_members(needed, lanes=lanes, anchors=anchors, kind="send_receive")
    exchanges = exchanges.filter("is_complete")  # slices that exchange with others in lockstep are no members
    peers = pl.concat([of_messages, collectives, exchanges], how="diagonal")
    row = find_equal_rows(_read_needs(peers), _read_needs(waits))
    matched = waits.hstack(gather_rows(peers, _PEER, row))
    computes = inside.select(
        *_STEP, "start_ns", "end_ns", cause=pl.lit("compute", CAUSE), waits_for=pl.lit(None, pl.UInt32)
    )
    lane_states = pl.concat([computes, _split_waits(matched)]).filter(pl.col("start_ns") < pl.col("end_ns"))
    with_data = cut_loading(lane_states, data_jobs, owner="lane")
    return _cut_at_positions(with_data, jobs).pipe(conform, LANE_STATES)


def measure_cover(*, steps: pl.DataFrame, compute_segments: pl.DataFrame) -> pl.DataFrame:
    """Split the compute states of each step into kernels and the pauses between them.

    Args:
        steps: `RUN_STEPS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        `COVER`: one row per lane and step of `steps`; by step, lane.
    """
    inside = _clip_to_steps(steps, compute_segments)
    length = pl.col("end_ns") - pl.col("start_ns")
    sums = inside.group_by(_STEP).agg(pl.col("compute_ns").sum(), length_ns=length.sum())
    return (
        steps.select(*_STEP)
        .join(sums, on=_STEP, how="left", maintain_order="left")
        .with_columns(
            pl.col("compute_ns").fill_null(0),
            pause_ns=(pl.col("length_ns") - pl.col("compute_ns")).fill_null(0),
        )
        .pipe(conform, COVER)
    )


def _clip_to_steps(steps: pl.DataFrame, compute_segments: pl.DataFrame) -> pl.DataFrame:
    """Keep the compute segments inside steps, with the run's step numbers; by lane and start."""
    steps = steps.sort("lane", "start_ns")  # numbers repeat after a restart, so they are no order
    lane, start = whole_numbers(compute_segments["lane"]), compute_segments["start_ns"].to_numpy()
    step = find_last(lane, start, whole_numbers(steps["lane"]), steps["start_ns"].to_numpy())
    until = steps["end_ns"].to_numpy()
    rows = order_rows(lane, start)
    rows = rows[step[rows] >= 0]
    rows = rows[start[rows] < until[step[rows]]]
    end_ns = np.minimum(compute_segments["end_ns"].to_numpy()[rows], until[step[rows]])
    spans = index_rows(steps.select("step"), step[rows])
    kept = index_rows(compute_segments[["lane", "start_ns", "compute_ns"]], rows)
    return kept.hstack([pl.Series("end_ns", end_ns), *spans])


def _find_message_peers(waits: pl.DataFrame, transfers: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Find the peer lane of each needed message, the start of its kernel, and the error of that time.

    For a kernel with several messages, the last peer to start counts; a buffered send has no wait.

    Args:
        waits: For messages.
        transfers: Between lanes whose times can be compared.
        messages: `LANE_MESSAGES`.
    """
    received = transfers.select(
        lane="receiver", need_start_ns="receive_start_ns", need_end_ns="receive_end_ns",
        peer_start_ns="send_start_ns", bound_ns="bound_ns", waits_for="sender",
    )  # fmt: skip
    sent = transfers.filter(~pl.col("is_buffered")).select(
        lane="sender", need_start_ns="send_start_ns", need_end_ns="send_end_ns",
        peer_start_ns="receive_start_ns", bound_ns="bound_ns", waits_for="receiver",
    )  # fmt: skip
    sides = pl.concat([received, sent])
    wait = find_equal_rows(_read_needs(waits), _read_needs(sides))
    needed = np.flatnonzero(wait >= 0)
    start, lane = (numbers(sides[name])[needed] for name in ("peer_start_ns", "waits_for"))
    order = needed[np.lexsort((-lane, start))]  # of peers that began together, the first lane is the last
    last = np.full(len(waits), -1)
    last[wait[order]] = order  # numpy keeps the last of several values assigned to one index
    ends = [
        transfers.select(lane=role, need_start_ns=f"{verb}_start_ns", need_end_ns=f"{verb}_end_ns")
        for role, verb in (("sender", "send"), ("receiver", "receive"))
    ]
    paired = pl.concat(ends).group_by(_OPERATION).agg(paired=pl.len())
    kernels = messages.group_by("lane", need_start_ns="start_ns", need_end_ns="end_ns").agg(count=pl.len())
    partial = kernels.join(paired, on=_OPERATION).filter(pl.col("paired") < pl.col("count"))
    found = index_rows(sides, last[last >= 0])
    return found.join(
        partial.select(*_OPERATION, is_complete=pl.lit(value=False)),
        on=_OPERATION,
        how="left",
        maintain_order="left",
    )


def _list_needs(waits: pl.DataFrame) -> pl.DataFrame:
    """List the operations that are waited for: lane, need_start_ns, need_end_ns."""
    needed = keep_rows(waits[[*_OPERATION]], has_value(waits["need"]))
    return index_rows(needed, number_rows(needed.get_columns())[0])


def _read_needs(rows: pl.DataFrame) -> list[Int64s]:
    """Return lane, start and end of the operation of each row."""
    return [numbers(rows[name]) for name in _OPERATION]


def _keep_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows with lane and number of a step, in order."""
    return keep_rows(rows, has_value(rows["step"]) & (_find_steps(steps, rows) >= 0))


def _find_steps(steps: pl.DataFrame, rows: pl.DataFrame) -> Int64s:
    """Find the step with lane and number of each row, the first of several; -1 without one."""
    (of_lane, of_step), (lane, step) = (
        (whole_numbers(frame["lane"]), whole_numbers(frame["step"])) for frame in (steps, rows)
    )
    return find_pairs(of_lane, of_step, lane, step)


def _split_waits(waits: pl.DataFrame) -> pl.DataFrame:
    """Split the waits for messages and collectives at the start of the peer's kernel, if it is well known."""
    start, end = pl.col("need_start_ns"), pl.col("need_end_ns")
    first, last = (pl.col("peer_start_ns") + sign * pl.col("bound_ns") for sign in (-1, 1))
    open_ns = last.clip(start, end) - first.clip(start, end)
    is_known = (open_ns <= _MAX_OPEN * (end - start)).fill_null(value=False)
    is_complete = pl.col("is_complete").fill_null(value=True)
    need = whole_numbers(waits["need"])
    waiting, transferring, either = (gather(causes, need) for causes in (_WAITING, _TRANSFERRING, _EITHER))
    edges = waits.with_columns(
        waiting=waiting,
        cause=pl.coalesce("cause", pl.when(is_known & is_complete).then(transferring).otherwise(either)),
        wait_end_ns=pl.when(is_known).then("peer_start_ns").otherwise("start_ns").clip("start_ns", "end_ns"),
    )
    return pl.concat(
        [
            edges.select(*_STEP, "start_ns", end_ns="wait_end_ns", cause="waiting", waits_for="waits_for"),
            edges.select(
                *_STEP, "end_ns", start_ns="wait_end_ns", cause="cause", waits_for=pl.lit(None, pl.UInt32)
            ),
        ],
        how="diagonal",
    )


def _cut_at_positions(lane_states: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Sort states, cut them at changes of position, and join equal neighbours."""
    start, end = (lane_states[name].to_numpy() for name in ("start_ns", "end_ns"))
    order = order_rows(whole_numbers(lane_states["lane"]), start)
    warm, cool, is_known = _find_position_changes(lane_states, jobs)
    edges = np.stack([start[order], warm[order], cool[order], end[order]], axis=1)
    piece, position = np.divmod(np.flatnonzero(edges[:, :-1] < edges[:, 1:]), edges.shape[1] - 1)
    start, end = edges[piece, position], edges[piece, position + 1]
    state = order[piece]
    position = np.where(is_known[state], position, len(_POSITIONS) - 1)
    is_new = np.append(-1, end)[:-1] != start
    for values in (
        position,
        *(whole_numbers(lane_states[name])[state] for name in (*_STEP, "cause", "waits_for")),
    ):
        is_new[1:] |= values[1:] != values[:-1]
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(start))[: len(first)] - 1
    return index_rows(lane_states[[*_STEP, "cause", "waits_for"]], state[first]).hstack(
        [
            pl.Series("start_ns", start[first]),
            pl.Series("end_ns", end[last]),
            gather(_POSITIONS, position[first]),
        ]
    )


def _find_position_changes(lane_states: pl.DataFrame, jobs: pl.DataFrame) -> tuple[Int64s, Int64s, Bools]:
    """Find the changes of position inside each state: first backward and end of the last forward of its step.

    Returns:
        Start of the steady position, start of the cool-down, and mask of states in steps with forwards or
        backwards.
    """
    is_backward = pl.col("kind").is_in(["backward", "forward_backward"])
    is_forward = pl.col("kind").is_in(["forward", "forward_backward"])
    turns = (
        jobs.select(*_STEP, "kind", "compute_start_ns", "start_ns", "compute_end_ns", "end_ns")
        .filter((is_backward | is_forward) & pl.col("step").is_not_null())
        .group_by(_STEP)
        .agg(
            first_ns=pl.coalesce("compute_start_ns", "start_ns").filter(is_backward).min(),
            last_ns=pl.coalesce("compute_end_ns", "end_ns").filter(is_forward).max(),
        )
    )
    row = _find_steps(turns, lane_states)
    first, last = (pick(numbers(turns[name]), row, NEVER) for name in ("first_ns", "last_ns"))
    start, end = (lane_states[name].to_numpy() for name in ("start_ns", "end_ns"))
    warm, cool = (
        np.where(turn == NEVER, absent, turn).clip(start, end)
        for turn, absent in ((first, start), (last, end))
    )
    return warm, np.maximum(warm, cool), (first != NEVER) | (last != NEVER)
