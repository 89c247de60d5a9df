"""A run and its replay as one training, for charts and traces: each rank twice, one below the other."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from msgspec import structs

from nsys_pp.arrays.columns import numbers, whole_numbers
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import keep_comparable
from nsys_pp.frames.conform import conform, conform_part
from nsys_pp.frames.training import CAUSES, LANE_STATES, RUN_JOBS, RUN_STEPS, Training, span_steps
from nsys_pp.training.plan import Planned
from nsys_pp.training.schedule import label_jobs
from nsys_pp.training.whatif import Change, WhatIf

Frames = dict[str, pl.DataFrame]
_UNKNOWN = ("busy_ns", "compute_ns", "host_start_ns", "host_end_ns", "launch_delay_ns")  # of replayed jobs


def pair_runs(
    run: WhatIf, change: Change, planned: Planned | None = None, *, is_short: bool = False
) -> Training:
    """Join a run and its replay: lane 2 n is lane n as measured, lane 2 n + 1 as replayed.

    Args:
        run: The run.
        change: Of its durations.
        planned: The steps in another order of jobs.
        is_short: Select the complete step that changes most; both runs begin it at the same time.

    Returns:
        A training with lanes, steps, jobs, states and messages; other frames are empty.
    """
    of = run.training
    replayed = _replay(run, change) if planned is None else _place(run, planned)
    measured: Frames = {name: getattr(of, name) for name in replayed}
    if is_short:
        measured, replayed = _select_step(measured, replayed)
    every = {field.name: getattr(of, field.name) for field in fields(of)}
    frames: dict[str, Any] = {
        name: one.clear() for name, one in every.items() if isinstance(one, pl.DataFrame)
    }
    for name, frame in replayed.items():
        frames[name] = pl.concat([_renumber(measured[name], 0), _renumber(frame, 1)])
    count, is_replayed = len(of.jobs), pl.col("lane") % 2 == 1
    frames["jobs"] = frames["jobs"].with_columns(
        pl.when(is_replayed).then(pl.col(name) + count).otherwise(name).cast(pl.UInt32).alias(name)
        for name in ("job", "outer")
    )
    frames["lanes"] = pl.concat(
        of.lanes.with_columns(
            lane=(2 * pl.col("lane") + side).cast(pl.UInt32),
            machine=pl.lit(name),
            gpu=pl.concat_str("machine", "gpu", separator=" ", ignore_nulls=True),
            label=pl.concat_str("label", pl.lit(suffix)),
        )
        for side, name, suffix in ((0, "measured", ""), (1, "replayed", ", replayed"))
    ).sort("lane")
    # the picture has two schedules, if they differ
    schedule = (
        of.schedule if planned is None else structs.replace(of.schedule, name="unknown", micro_batch_count=0)
    )
    return replace(of, **frames, schedule=schedule, losses=(), notes=[])


def _select_step(measured: Frames, replayed: Frames) -> tuple[Frames, Frames]:
    """Select the complete step that changes most; its replay begins when it was measured to begin."""
    spans = span_steps(measured["steps"]).join(span_steps(replayed["steps"]), on="step", suffix="_new")
    change = pl.col("end_ns") - pl.col("start_ns") - pl.col("end_ns_new") + pl.col("start_ns_new")
    chosen = spans.sort("is_partial", -change.abs(), "step").row(0, named=True)
    shift = chosen["start_ns"] - chosen["start_ns_new"]
    times = cs.ends_with("start_ns", "end_ns")
    return (
        {name: frame.filter(step=chosen["step"]) for name, frame in measured.items()},
        {
            name: frame.filter(step=chosen["step"]).with_columns(times + shift)
            for name, frame in replayed.items()
        },
    )


def _renumber(frame: pl.DataFrame, side: int) -> pl.DataFrame:
    columns = {"lane", "sender", "receiver", "waits_for"} & {*frame.columns}
    return frame.with_columns((pl.col(name) * 2 + side).cast(pl.UInt32) for name in columns)


def _replay(run: WhatIf, change: Change) -> dict[str, pl.DataFrame]:
    of, graph = run.training, run.graph
    pieces, moments = graph.pieces, graph.reach(change.pieces, change.kernels)
    ends = moments[: len(pieces.end)]

    def move(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
        lane = whole_numbers(frame["lane"])
        return frame.with_columns(
            pl.Series(name, graph.move(lane, numbers(frame[name]), ends)) for name in names
        )

    jobs = of.jobs.with_columns(
        pl.col("compute_start_ns").fill_null(pl.col("start_ns")),
        pl.col("compute_end_ns").fill_null(pl.col("end_ns")),
    )
    jobs = move(jobs, "start_ns", "end_ns", "compute_start_ns", "compute_end_ns")
    return {
        "steps": move(of.steps, "start_ns", "end_ns"),
        "jobs": jobs.with_columns(pl.lit(None, pl.Int64).alias(name) for name in _UNKNOWN),
        "lane_states": _build_states(run, change, ends),
        "transfers": _move_transfers(run, moments[len(ends) :].round().astype(np.int64)),
    }


def _build_states(run: WhatIf, change: Change, ends: Floats) -> pl.DataFrame:
    """Build the states of a replay: beyond its own duration or transfer, a piece begins with a wait."""
    graph, pieces = run.graph, run.graph.pieces
    piece, kernel = graph.waits
    is_known = np.isin(kernel, run.known_kernels)
    own = (pieces.end - pieces.start) * change.pieces
    own[piece] = np.where(is_known, (graph.transfers * change.kernels)[kernel], np.inf)
    # between steps there is no cause, and nothing is drawn
    causes = [*(cause.removesuffix("_wait").removesuffix("_transfer") for cause in CAUSES), "idle"]
    first = pl.Series([*["unknown"] * len(causes), *(f"{cause}_wait" for cause in causes)])
    rest = pl.Series([*causes, *(f"{cause}_transfer" for cause in causes)])
    at = pieces.cause.astype(np.int64)
    at[piece[is_known]] += len(causes)  # communication of which both are known
    start = graph.find_starts(ends)
    middle = np.clip(ends - own, start, ends)
    parts = pl.concat(
        pl.DataFrame(
            {
                "lane": pieces.lane,
                "step": pieces.step,
                "cause": cause,
                "start_ns": begin.round().astype(np.int64),
                "end_ns": until.round().astype(np.int64),
            }
        )
        for cause, begin, until in (
            (first.gather(at), start, middle),
            (rest.gather(at), middle, ends),
        )
    )
    inside = parts.filter(pl.col("step") >= 0, pl.col("end_ns") > pl.col("start_ns"))
    return inside.sort("lane", "start_ns").pipe(conform_part, LANE_STATES)


def _move_transfers(run: WhatIf, moments: Int64s) -> pl.DataFrame:
    """Move messages to the replayed times of their kernels; `moments`: all starts, then all ends."""
    graph, of = run.graph, run.training
    known = keep_comparable(of.transfers, of.lanes, "sender", "receiver").with_row_index("group")
    sides, count = graph.members.drop_nulls("peer"), len(graph.kernels)
    kernel = numbers(sides["kernel"])
    timed = sides.select(
        "group",
        "is_received",
        start=pl.Series(moments[:count][kernel]),
        end=pl.Series(moments[count : 2 * count][kernel]),
    )
    for verb, is_received in (("send", False), ("receive", True)):
        own = timed.filter(is_received=is_received).unique("group")
        times = own.select(
            "group", pl.col("start").alias(f"{verb}_start_ns"), pl.col("end").alias(f"{verb}_end_ns")
        )
        known = known.drop(f"{verb}_start_ns", f"{verb}_end_ns").join(
            times, on="group", maintain_order="left"
        )
    both = pl.max_horizontal("send_start_ns", "receive_start_ns")  # one side waits for the other
    return known.with_columns(
        **{
            f"{verb}_wait_ns": pl.when(~pl.col("is_buffered") | (verb == "receive"))
            .then(pl.min_horizontal(both, f"{verb}_end_ns") - pl.col(f"{verb}_start_ns"))
            .cast(of.transfers.schema[f"{verb}_wait_ns"])
            for verb in ("send", "receive")
        }
    ).select(of.transfers.columns)


def _place(run: WhatIf, planned: Planned) -> dict[str, pl.DataFrame]:
    of = run.training
    zero = of.steps.filter(step=planned.jobs["step"].min())["start_ns"].min()
    jobs = planned.jobs.select(
        *("lane", "step", "kind", "micro_batch", "chunk", "backward_micro_batch", "backward_chunk"),
        pl.col("start_ns", "end_ns") + zero,
        job=pl.int_range(pl.len()),
        is_inferred=pl.lit(value=True),
    )
    spans = jobs.group_by("step", "lane").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    steps = spans.with_columns(is_partial=pl.lit(value=False), source=pl.lit("jobs"))
    # a job waits for messages, and what follows the jobs for the others
    waits = (
        jobs.sort("lane", "start_ns")
        .with_columns(free_ns=pl.col("end_ns").cum_max().shift().over("lane", "step"))
        .filter(pl.col("start_ns") > pl.col("free_ns"))
        .select(
            *("lane", "step"),
            cause=pl.when(kind="other").then(pl.lit("collective")).otherwise(pl.lit("message")),
            start_ns="free_ns",
            end_ns="start_ns",
        )
    )
    return {
        "steps": conform(steps.sort("step", "lane"), RUN_STEPS),
        "jobs": label_jobs(conform_part(jobs, RUN_JOBS), of.lanes, of.schedule),
        "lane_states": conform_part(waits, LANE_STATES),
        "transfers": of.transfers.clear(),
    }
