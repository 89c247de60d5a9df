"""Critical path of a step: the chain of work and waiting across lanes that determines its length.

The path is followed backwards, from the end of the step on the lane that computes last. It stays on a lane
while the lane works; where the lane waits for another lane, the path continues there, at the same time:

    rank 0   [ F0 )[ F1 )
    rank 1         . wait . . [ F0 )[ B0 )        path: F0 and F1 of rank 0, the transfer, F0 and B0
             ----------->       ---------->

Waits without a known cause, and all other causes of bubble, are part of the path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.intervals import split_at
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import list_comparable_steps
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import CAUSE, COMPUTE_KINDS, JOB_KIND, PAUSE_NS, Training
from nsys_pp.tables.analysis import select_outermost

CRITICAL_PATH = build_schema(
    {  # segments of the path; by step, start_ns; they cover the step from its first start to its last end
        "step": pl.Int64,
        "lane": pl.UInt32,
        "stage": pl.Int64,  # null where unknown
        "cause": CAUSE,  # "compute", pauses included, or the cause of the bubble
        "kind": JOB_KIND,  # kind of the job that computes; null outside of jobs
        "role": pl.String,  # its role; null without one
        "job": pl.UInt32,  # number in RUN_JOBS; a pause after a job belongs to it
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="CRITICAL_PATH",
)

_JOB_COLUMNS = ("job", "outer", "kind", "role", "lane", "compute_start_ns", "compute_end_ns")
_STAYS = build_schema(
    {  # intervals in which the path stays on one lane
        "step": pl.Int64,
        "lane": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "is_late_send": pl.Boolean,
    },
    name="_STAYS",
)


class _Lane(Struct, frozen=True, kw_only=True):
    """Jobs of a lane, and its waits for other lanes, in order of time."""

    wait_starts: list[int]
    wait_ends: list[int]
    waits_for: list[int]
    needs_job: list[bool]  # the message is the result of a job: it is from another stage
    job_starts: list[int]
    job_ends: list[int]
    is_whole: list[bool]  # not a forward and backward at once, which may send midway


def find_critical_path(training: Training) -> pl.DataFrame:
    """Find the critical path of each step.

    A lane that waits for a message of another stage depends on the job that computed its contents: the path
    continues with the job of the sender that ended last (or ends nearest, as clocks are not exact). The time
    between the end of that job and the send has the cause "host": the message was sent late. Messages within
    a stage (rings, experts) are exchanged inside of jobs: the path continues with what the sender did at that
    time.

    Returns:
        `CRITICAL_PATH`. Compute outside of jobs has neither `kind` nor `job`. Where the step begins earlier
        on another lane, a segment has the state of its lane in the step before; the lane is idle before its
        first step, and where it begins the next step earlier than another lane. Empty without compute; steps
        of lanes with clocks that cannot be compared are left out.
    """
    lane_states = training.lane_states.sort("lane", "start_ns")
    jobs = select_outermost(training.jobs.select(_JOB_COLUMNS), COMPUTE_KINDS).sort(
        "lane", "compute_start_ns"
    )
    lanes = _lanes(lane_states, jobs, training.lanes)
    stays = [
        stay
        for step, lane, start_ns, end_ns, computed_ns in _spans(training).iter_rows()
        for stay in (
            (step, lane, computed_ns, end_ns, False),
            *_walk(lanes, step=step, lane=lane, start_ns=start_ns, now_ns=computed_ns),
        )
    ]
    every = pl.DataFrame(stays, schema=_STAYS, orient="row")
    path = every.filter(pl.col("start_ns") < pl.col("end_ns")).sort("step", "start_ns")
    if path.is_empty():
        return CRITICAL_PATH.to_frame()
    return (
        _split_segments(path, lane_states, jobs)
        .join(training.lanes.select(pl.col("lane").cast(pl.Int64), "stage"), on="lane", how="left")
        .sort("step", "start_ns")
        .pipe(conform, CRITICAL_PATH)
    )


def _spans(training: Training) -> pl.DataFrame:
    """Return each step with the lane that computes last, its start and end on all lanes.

    Also the end of compute.
    """
    comparable = list_comparable_steps(training.steps, training.lanes)
    spans = training.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    last = (
        training.lane_states.filter(cause="compute")
        .sort("end_ns", "lane", descending=[False, True])
        .group_by("step")
        .agg(pl.col("lane").last(), computed_ns=pl.col("end_ns").last())
    )
    return (
        spans.join(comparable, on="step", how="semi")
        .join(last, on="step")
        .select("step", "lane", "start_ns", "end_ns", pl.min_horizontal("computed_ns", "end_ns"))
        .sort("step")
    )


def _lanes(lane_states: pl.DataFrame, jobs: pl.DataFrame, lanes: pl.DataFrame) -> dict[int, _Lane]:
    numbers = lane_states["lane"].unique(maintain_order=True).to_list()
    is_message = pl.col("cause") == "message_wait"
    stages = dict(lanes.select("lane", "stage").drop_nulls().iter_rows())
    own, peer = (pl.col(name).replace_strict(stages, default=None) for name in ("lane", "waits_for"))
    waits = lane_states.filter(
        is_message | (pl.col("cause") == "collective_wait"), pl.col("waits_for").is_in(numbers)
    ).with_columns(needs_job=is_message & (own != peer).fill_null(True))
    jobs = jobs.with_columns(is_whole=pl.col("kind") != "forward_backward")
    waits_of = _split_lists(waits, numbers, ["start_ns", "end_ns", "waits_for", "needs_job"])
    jobs_of = _split_lists(jobs, numbers, ["compute_start_ns", "compute_end_ns", "is_whole"])
    return {
        number: _Lane(
            wait_starts=starts,
            wait_ends=ends,
            waits_for=waits_for,
            needs_job=needs_job,
            job_starts=job_starts,
            job_ends=job_ends,
            is_whole=is_whole,
        )
        for number, (starts, ends, waits_for, needs_job), (job_starts, job_ends, is_whole) in zip(
            numbers, waits_of, jobs_of, strict=True
        )
    }


def _split_lists(frame: pl.DataFrame, lanes: Sequence[int], columns: Sequence[str]) -> list[list[list[Any]]]:
    # rows are by lane
    lane = frame["lane"].to_numpy()
    bounds = zip(np.searchsorted(lane, lanes), np.searchsorted(lane, lanes, side="right"), strict=True)
    values = [frame[name].to_list() for name in columns]
    return [[column[first:last] for column in values] for first, last in bounds]


def _walk(
    lanes: dict[int, _Lane], *, step: int, lane: int, start_ns: int, now_ns: int
) -> Iterator[tuple[int, int, int, int, bool]]:
    """Follow the path backwards to the start of the step: rows of `_STAYS`."""
    passed: set[int] = set()  # lanes that the path passed at this time
    while now_ns > start_ns:
        own = lanes[lane]
        at = bisect_left(own.wait_starts, now_ns) - 1
        until_ns = own.wait_ends[at] if at >= 0 else start_ns
        if until_ns >= now_ns and own.waits_for[at] in {*passed, lane}:
            until_ns = own.wait_starts[at]  # they wait for each other, so neither is the cause
        if until_ns < now_ns:
            until_ns = max(until_ns, start_ns)
            yield step, lane, until_ns, now_ns, False
            now_ns, passed = until_ns, set()
        else:
            passed.add(lane)
            lane = own.waits_for[at]
            sent_ns = max(_computed_ns(lanes[lane], now_ns), start_ns) if own.needs_job[at] else now_ns
            if sent_ns < now_ns:
                yield step, lane, sent_ns, now_ns, True
                now_ns, passed = sent_ns, set()


def _computed_ns(lane: _Lane, sent_ns: int) -> int:
    """Return the end of the job whose result a lane sent.

    The time of the send if a job ends soon after it.
    """
    at = bisect_left(lane.job_starts, sent_ns) - 1
    if at >= 0 and lane.job_ends[at] > sent_ns:
        has_just_begun = sent_ns - lane.job_starts[at] < lane.job_ends[at] - sent_ns
        if not (has_just_begun and lane.is_whole[at]):
            return sent_ns
        at -= 1
    return min(lane.job_ends[at], sent_ns) if at >= 0 else sent_ns


def _split_segments(path: pl.DataFrame, lane_states: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Split the path where lane states and jobs begin and end, and add the cause and job of each segment."""
    state_start, state_end = (_keys(lane_states, column, path) for column in ("start_ns", "end_ns"))
    job_start, job_end = (_keys(jobs, column, path) for column in ("compute_start_ns", "compute_end_ns"))
    first, last = (_keys(path, column, path) for column in ("start_ns", "end_ns"))
    edges = np.unique(np.concatenate([state_start, state_end, job_start, job_end]))
    stay, start, end = split_at(first, last, edges)
    in_state, in_job = _row_at(start, state_start, state_end), _row_at(start, job_start, job_end)
    segments = path[stay].with_columns(
        start_ns=pl.col("start_ns") + (start - first[stay]), end_ns=pl.col("start_ns") + (end - first[stay])
    )
    is_compute = pl.col("cause") == "compute"
    location = pl.struct("step", "lane", "cause")
    is_short = pl.col("end_ns") - pl.col("start_ns") <= PAUSE_NS
    is_pause = is_short & pl.col("job").is_null() & is_compute & (location == location.shift())  # after a job
    return (
        segments.with_columns(
            state_step=lane_states["step"].gather(in_state),
            cause=lane_states["cause"].gather(in_state).cast(pl.String).replace("pause", "compute"),
            job=jobs["job"].gather(in_job),
            kind=jobs["kind"].gather(in_job),
            role=jobs["role"].gather(in_job),
        )
        .with_columns(
            cause=pl.when("is_late_send")
            .then(pl.lit("host"))
            .when(pl.col("state_step") > pl.col("step"))
            .then(pl.lit("idle"))
            .otherwise(pl.col("cause").fill_null("idle"))
        )
        .with_columns(pl.when(is_compute).then(pl.col("job", "kind", "role")))
        .with_columns(
            pl.when(is_pause)
            .then(pl.col("job", "kind", "role").shift())
            .otherwise(pl.col("job", "kind", "role"))
        )
        .group_by(pl.struct("step", "lane", "cause", "job").rle_id().alias("run"), maintain_order=True)
        .agg(
            pl.col("step", "lane", "cause", "job", "kind", "role", "start_ns").first(),
            pl.col("end_ns").last(),
        )
    )


def _keys(frame: pl.DataFrame, column: str, path: pl.DataFrame) -> Int64s:
    """Map lane and time to one number, so that lanes do not overlap; times are clipped to the path."""
    first_ns, end_ns = path["start_ns"].min(), path["end_ns"].max()
    span = pl.lit(end_ns, pl.Int64) - pl.lit(first_ns, pl.Int64) + 1
    time = (pl.col(column) - first_ns).clip(0, span - 1)
    return frame.select(pl.col("lane").cast(pl.Int64) * span + time).to_series().to_numpy()


def _row_at(keys: Int64s, starts: Int64s, ends: Int64s) -> pl.Series:
    """Return the last row that starts at or before each key; null if it has ended by then."""
    row = np.searchsorted(starts, keys, side="right") - 1
    is_inside = row >= 0
    is_inside[is_inside] = ends[row[is_inside]] > keys[is_inside]
    return pl.Series(np.where(is_inside, row, 0)).set(pl.Series(~is_inside), None)
