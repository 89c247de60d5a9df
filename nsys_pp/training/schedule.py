"""The schedule of a pipeline: orders of jobs compared with known ones, ids and labels of jobs, and doubts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import as_numbers, is_among, whole_numbers
from nsys_pp.arrays.intervals import has_marked_line, intersect, unite
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    MESSAGE_KINDS,
    RUN_JOBS,
    RUN_STEPS,
    SCHEDULED_KINDS,
    Schedule,
    mark_split_backwards,
)
from nsys_pp.training.lanes import count_stages
from nsys_pp.training.orders import WAYS, count_earlier, mark_ways, number_jobs, order_jobs

_IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")
_NUMBERS = ("micro_batch", "backward_micro_batch")
_STEP = ("step", "role")
_ORDER = ("stage", "micro_batches")
_IS_BOTH = pl.col("is_forward") & pl.col("is_backward")


class Sequences(Struct, frozen=True, kw_only=True):
    """Jobs by group and time. A group is one step (of one role) on one lane.

    Attributes:
        jobs: job (row of the frame of jobs), group, step, role, kind, ids (micro-batches from 0 in each
            step), base (least micro-batch of the step, which is subtracted from them), is_forward,
            is_backward, is_weight, forward_rank, backward_rank and weight_rank (number of earlier ones of the
            group), and position among the jobs of the group that are not weight gradients; null for weight
            gradients.
        groups: group, step, role, stage (null where unknown; 0 where those of all lanes are), forward_count,
            backward_count, weight_count, size (number of jobs), and is_complete: the step is not cut, and has
            backwards.
        stages: Number of stages of the pipeline; 0 where the stages of all lanes are unknown.
    """

    jobs: pl.DataFrame
    groups: pl.DataFrame
    stages: int

    @property
    def complete(self) -> pl.DataFrame:
        """Groups of complete steps."""
        return self.groups.filter("is_complete")


def mark_top_level(jobs: pl.DataFrame, kinds: Sequence[str] = SCHEDULED_KINDS) -> Bools:
    """Return the mask of jobs of the kinds that are not inside a job of these kinds, or recomputation.

    Args:
        jobs: All `RUN_JOBS`: `outer` is a row of the frame.
        kinds: Kinds of jobs. Default: the kinds that schedules order.
    """
    outer = whole_numbers(jobs["outer"])
    top_level = is_among(jobs["kind"], kinds)
    nested = np.flatnonzero(outer >= 0)
    if len(nested):
        is_work = is_among(jobs["kind"], (*kinds, "recompute"))
        top_level[nested] &= ~has_marked_line(outer, is_work)[outer[nested]]
    return top_level


def build_sequences(lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame) -> Sequences:
    """Sort the jobs of all lanes into sequences, by the start of their compute.

    Jobs outside all steps and jobs inside others are left out. Some programs continue counting micro-batches
    from step to step, others restart.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`.
        jobs: All `RUN_JOBS`.
    """
    stages = count_stages(lanes)
    is_weight = pl.col("is_weight")
    ordered = (
        jobs.select("lane", *_STEP, "kind", *_IDS, at_ns=pl.coalesce("compute_start_ns", "start_ns"))
        .with_row_index("job")
        .filter(pl.Series(mark_top_level(jobs)), pl.col("step").is_not_null())
        .sort("lane", *_STEP, "at_ns", maintain_order=True)
        .with_columns(
            *mark_ways(),
            group=pl.struct("lane", *_STEP).rle_id(),
            base=pl.min_horizontal(_NUMBERS).min().over(_STEP).fill_null(0),
        )
        .with_columns(pl.col(_NUMBERS) - pl.col("base"))
        .with_columns(
            *(count_earlier(f"is_{way}", "group").alias(f"{way}_rank") for way in WAYS),
            place=pl.int_range(pl.len()).over("group"),
        )
        .with_columns(position=pl.when(~is_weight).then(pl.col("place") - pl.col("weight_rank")))
    )
    counts = [pl.col(f"is_{way}").sum().cast(pl.Int64).alias(f"{way}_count") for way in WAYS]
    groups = (
        ordered.group_by("group", maintain_order=True)
        .agg(pl.col("lane", *_STEP).first(), *counts, size=pl.len())
        .join(lanes.select("lane", "stage"), on="lane", how="left", maintain_order="left")
        .join(
            steps.select("lane", "step", "is_partial"),
            on=["lane", "step"],
            how="left",
            maintain_order="left",
        )
        .with_columns(
            stage="stage" if stages else pl.lit(0, pl.Int64),
            is_complete=~pl.col("is_partial").fill_null(value=True) & (pl.col("backward_count") > 0),
        )
    )
    return Sequences(jobs=ordered, groups=groups, stages=stages)


# Least share of jobs at their positions in a schedule, and of steps with the warm-up of the schedule. One job
# in twenty may be out of order, as where a capture lost events. Two different schedules agree in fewer jobs,
# or differ in their warm-up (as 1F1B and interleaved 1F1B of many micro-batches).
LEAST_AGREEMENT = 0.95


class Fit(Struct, frozen=True, kw_only=True):
    """Agreement of a schedule with the jobs.

    Attributes:
        name: Name of the schedule.
        chunks: Its number of chunks.
        agreement: Share of the jobs of complete steps at their positions in the schedule.
        warm_up: Share of these steps with as many forwards in the warm-up as the schedule.
        groups: The groups of `Sequences` with by_group (agreement of each) and micro_batches; null where the
            schedule is impossible.
        orders: The distinct orders of the groups, by stage and micro_batches.
    """

    name: str
    chunks: int
    agreement: float
    warm_up: float
    groups: pl.DataFrame
    orders: pl.DataFrame

    @property
    def is_good(self) -> bool:
        """Whether the jobs follow the schedule."""
        return min(self.agreement, self.warm_up) >= LEAST_AGREEMENT

    def describe_mismatch(self) -> str:
        """Describe why the fit is not good."""
        share = f"{100 * (1 - self.warm_up):.0f} % of steps have another warm-up"
        if self.agreement < LEAST_AGREEMENT:
            share = f"only {100 * self.agreement:.0f} % agree"
        return f"most like {self.name}, but {share}"


def recognise_schedule(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, *, schedule_name: str | None = None
) -> Schedule:
    """Recognise the schedule of the jobs.

    The jobs of every lane in every complete step are compared, position by position, with the jobs of its
    stage in each schedule: kind, and micro-batch and chunk where they are known. The n-th weight gradient may
    be anywhere after the n-th backward, since zero-bubble schedules move weight gradients into bubbles.
    Recomputation is part of its backward.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`, for `is_partial`.
        jobs: All `RUN_JOBS`.
        schedule_name: Name of the schedule, to compute only its agreement; None: recognised.

    Returns:
        The schedule; "unknown" with a reason where no schedule or several schedules fit. The numbers of
        chunks and micro-batches are 0 where several of them fit equally well: with 6 interleaved stages, 15
        micro-batches in 4 chunks have the same order as 12 micro-batches in 5 chunks.
    """
    sequences = build_sequences(lanes, steps, jobs)
    fits = [] if sequences.complete.is_empty() else find_fits(sequences, schedule_name=schedule_name)
    reason = "" if schedule_name else _explain_unknown(sequences, fits)
    alike = [] if reason else _list_alike(fits)
    named = sequences.jobs.select(pl.max_horizontal("chunk", "backward_chunk").max()).item()
    chunk_counts = {fit.chunks for fit in alike} or {1 + (named or 0)}
    chunks = chunk_counts.pop() if len(chunk_counts) == 1 else 0
    micro_batches = 0
    if chunks:
        micro_batches = (
            _most_common(alike[0].groups.filter("is_complete")["micro_batches"])
            if alike
            else _count_micro_batches(sequences, chunks)
        )
    return Schedule(
        name=schedule_name or (alike[0].name if alike else "unknown"),
        source="given" if schedule_name else "recognised" if alike else "",
        stage_count=sequences.stages,
        micro_batch_count=micro_batches,
        chunk_count=chunks,
        agreement=fits[0].agreement if fits else 0.0,
        reason=reason,
    )


def _count_micro_batches(sequences: Sequences, chunks: int) -> int:
    """Count the micro-batches of a complete step without a schedule: by ids, else by forwards.

    0 where unknown.
    """
    complete = sequences.complete
    forwards = sequences.jobs.filter("is_forward").join(complete, on="group", how="semi")
    if len(forwards) and not forwards["micro_batch"].has_nulls():
        return _most_common(forwards.group_by("group").agg(pl.col("micro_batch").n_unique())["micro_batch"])
    count = _most_common(complete["forward_count"])
    return count // chunks if count % chunks == 0 else 0


def _explain_unknown(sequences: Sequences, fits: list[Fit]) -> str:
    """Return the reason for an unknown schedule; empty where it is known."""
    missing = [f"{way}s" for way in ("forward", "backward") if not sequences.jobs[f"is_{way}"].any()]
    if missing:
        return f"there are no {' and '.join(missing)} within steps"
    if not sequences.stages:
        return "the stages of the GPUs are unknown"
    if sequences.stages == 1:
        return "there is one stage, and no pipeline"
    if sequences.complete.is_empty():
        return "no step is complete"
    if not fits:
        return "the number of jobs fits no schedule"
    if not fits[0].is_good:
        return f"the order of jobs is {fits[0].describe_mismatch()}"
    names = sorted({fit.name for fit in _list_alike(fits)})
    return "" if len(names) == 1 else f"the jobs would be in this order under {' and '.join(names)} alike"


def _list_alike(fits: list[Fit]) -> list[Fit]:
    return [fit for fit in fits if fit.agreement >= fits[0].agreement and fit.warm_up >= fits[0].warm_up]


def find_fits(sequences: Sequences, *, schedule_name: str | None = None) -> list[Fit]:
    """Compare the jobs with every possible schedule; the best fit first.

    Incomplete steps are compared only if no step is complete. The number of forwards of a group is the most
    common one of its step, or else of all steps.
    """
    counted = sequences.complete
    if counted.is_empty():
        counted = sequences.groups.filter(pl.col("backward_count") > 0)
    if counted.is_empty():
        return []
    usual = counted.group_by(_STEP).agg(forwards=pl.col("forward_count").mode().max())
    groups = (
        sequences.groups.join(usual, on=_STEP, how="left", nulls_equal=True, maintain_order="left")
        .join(counted.select("group", is_counted=True), on="group", how="left", maintain_order="left")
        .with_columns(
            pl.col("forwards").fill_null(_most_common(counted["forward_count"])),
            pl.col("is_counted").fill_null(value=False),
        )
    )
    forwards = _most_common(groups.filter("is_counted")["forwards"])
    possible = [
        _fit(name, chunks, sequences, groups)
        for name, chunks in _list_candidates(sequences, forwards, schedule_name)
    ]
    return sorted(
        (fit for fit in possible if fit is not None), key=lambda fit: (-fit.agreement, -fit.warm_up)
    )


def _list_candidates(
    sequences: Sequences, forwards: int, schedule_name: str | None
) -> Iterator[tuple[str, int]]:
    names = ["zb-h1" if sequences.jobs["is_weight"].any() else "1f1b", "interleaved", "dualpipev"]
    if sequences.stages > 1:
        names.append("gpipe")  # a single stage may be the first one of an interleaved schedule
    for chunks in _list_chunk_counts(sequences, forwards):
        for name in [schedule_name] if schedule_name else names:
            if {"interleaved": chunks > 1, "dualpipev": chunks == 2}.get(name, chunks == 1):
                yield name, chunks


def _list_chunk_counts(sequences: Sequences, forwards: int) -> list[int]:
    """List the possible numbers of chunks per stage.

    From names, else from forwards per micro-batch, else all.
    """
    named = sequences.jobs.select(pl.max_horizontal("chunk", "backward_chunk").max()).item()
    if named is not None:
        return [named + 1]
    of_forwards = sequences.jobs.filter("is_forward")
    if len(of_forwards) and not of_forwards["micro_batch"].has_nulls():
        return [_most_common(of_forwards.group_by("group", "micro_batch").len()["len"])]
    # interleaved schedules need at least one micro-batch per stage
    most = forwards // sequences.stages if sequences.stages > 1 else 1
    return [1, *(chunks for chunks in range(2, most + 1) if forwards % chunks == 0)]


def _fit(name: str, chunks: int, sequences: Sequences, groups: pl.DataFrame) -> Fit | None:
    """Compare every job with the schedule's job at its position; None for an impossible schedule.

    Args:
        name: Name of the schedule.
        chunks: Its number of chunks.
        sequences: The jobs.
        groups: Groups of `sequences`, with forwards (the expected number) and is_counted.
    """
    stages = max(sequences.stages, 1)
    least = 2 * stages if name == "dualpipev" else 1
    is_possible = pl.col("stage").is_not_null() & (pl.col("forwards") % chunks == 0)
    is_possible &= pl.col("forwards") >= least * chunks
    sized = groups.with_columns(micro_batches=pl.when(is_possible).then(pl.col("forwards") // chunks))
    shapes = sized.drop_nulls("micro_batches")
    if not shapes["is_counted"].any():
        return None
    distinct = shapes.select(_ORDER).unique(maintain_order=True).iter_rows()
    orders = _list_orders(name, distinct, stages=stages, chunks=chunks)
    compared = _compare(sequences, orders, sized)
    agreement, warm_up = (
        compared.filter("is_counted", pl.col("stage").is_not_null())
        .select(pl.col("hits").sum() / pl.col("most").sum(), pl.col("starts_right").mean())
        .row(0)
    )
    return Fit(name=name, chunks=chunks, agreement=agreement, warm_up=warm_up, groups=compared, orders=orders)


def _list_orders(
    name: str, shapes: Iterable[tuple[int, int]], *, stages: int, chunks: int = 1
) -> pl.DataFrame:
    """List the jobs of a schedule in order, with stage and micro_batches, for some of these."""
    return pl.concat(
        order_jobs(name, stage=stage, stages=stages, micro_batches=count, chunks=chunks).with_columns(
            stage=pl.lit(stage, pl.Int64), micro_batches=pl.lit(count, pl.Int64)
        )
        for stage, count in shapes
    )


def _list_places(orders: pl.DataFrame) -> pl.DataFrame:
    """List the jobs of orders that are not weight gradients, with position, and their number as expected."""
    return orders.filter(~pl.col("is_weight")).with_columns(
        position=pl.int_range(pl.len()).over(_ORDER), expected=pl.len().over(_ORDER)
    )


def _compare(sequences: Sequences, orders: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Compare jobs with the orders of their groups.

    Returns:
        The groups with hits (jobs at their positions), most (jobs that are expected or there), by_group (the
        share of both) and starts_right (whether the warm-up is the expected one).
    """
    first_backward = pl.col("position").filter("is_backward").min()
    places = _list_places(orders)
    shapes = places.group_by(_ORDER).agg(
        pl.col("expected").first(), until=pl.coalesce(first_backward, pl.len().cast(pl.Int64))
    )
    jobs = sequences.jobs.join(groups.select("group", *_ORDER), on="group", maintain_order="left").join(
        places.select(*_ORDER, "position", "expected", "kind", *_IDS),
        on=[*_ORDER, "position"],
        how="left",
        suffix="_expected",
    )
    is_alike = pl.col("expected").is_not_null() & (pl.col("kind") == pl.col("kind_expected"))
    for name in _IDS:
        is_alike &= pl.col(name).is_null() | pl.col(name).eq_missing(pl.col(f"{name}_expected"))
    is_after = pl.col("is_weight") & pl.col("micro_batches").is_not_null()
    is_after &= pl.col("weight_rank") < pl.col("backward_rank")
    found = jobs.group_by("group").agg(
        hits=(is_alike | is_after).sum().cast(pl.Int64), warm_up=first_backward
    )
    return (
        groups.join(found, on="group", maintain_order="left")
        .join(shapes, on=_ORDER, how="left", maintain_order="left")
        .with_columns(
            most=pl.max_horizontal("size", pl.col("expected").fill_null(0) + pl.col("weight_count")),
            starts_right=(pl.col("warm_up") == pl.col("until")).fill_null(value=False),
        )
        .with_columns(by_group=pl.col("hits") / pl.col("most"))
    )


def _most_common(values: pl.Series) -> int:
    """Return the most frequent value, the greater one of a tie; 0 without values.

    >>> _most_common(pl.Series([3, 8, 8, 3, 1]))
    8
    """
    return int(values.drop_nulls().mode().to_numpy().max(initial=0))


def resolve_jobs(
    lanes: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, *, schedule_name: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Find the micro-batch, chunk and virtual stage of every job that ran on a GPU.

    Ids in names are kept; chunk and virtual stage are computed from each other. Other ids are inferred where
    the jobs of a lane in a step are in the order of a schedule: the n-th forward has the chunk of the
    schedule's n-th forward, and the next micro-batch of this chunk; likewise backwards and weight gradients.
    No ids are inferred in a step with missing jobs or in another order, or where several schedules fit but
    number the jobs differently. Recomputation has the ids of its backward; jobs inside forwards and backwards
    have the ids of the outer job.

    Args:
        lanes: `LANES`.
        steps: `RUN_STEPS`, for `is_partial`.
        jobs: `LANE_JOBS`.
        schedule_name: Name of the schedule; None: recognised.

    Returns:
        `RUN_JOBS` without labels, and notes on inferred and refused ids. `confidence` is the share of the
        lane's jobs in the step at their positions in the schedule; equally good schedules are refused at any
        share.
    """
    listed = _list_jobs(lanes, jobs)
    sequences = build_sequences(lanes, steps, listed)
    fits = find_fits(sequences, schedule_name=schedule_name) if _needs_fit(sequences) else []
    best = fits[0] if fits and fits[0].is_good else None
    expected = [_expect_chunks(sequences, fit) for fit in (_list_alike(fits) if best else ())]
    is_unique = len(expected) > 0 and all(chunks.equals(expected[0]) for chunks in expected)
    ids = _infer(sequences, best, expected[0]) if best and is_unique else _infer(sequences, None, None)
    filled = _copy_outer_ids(_add_ids(listed, ids))
    resolved = _add_virtual_stages(filled, _find_chunk_layout(ids, best, schedule_name))
    return conform(resolved, RUN_JOBS), _describe(ids, fits, is_unique=is_unique)


def _list_jobs(lanes: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """List the jobs that ran on a GPU, numbered, with the job around each and chunks from virtual stages."""
    ran = (
        jobs.drop_nulls(["lane", "start_ns"])
        .sort("lane", "start_ns", "host_start_ns", "range_id", maintain_order=True)
        .with_row_index("job")
    )
    around = ran.select("lane", outer_id="range_id", outer="job").unique(["lane", "outer_id"], keep="first")
    chunk, backward_chunk = (
        pl.coalesce(f"{way}chunk", pl.col(f"{way}virtual_stage") // pl.col("_stages"))
        for way in ("", "backward_")
    )
    return (
        ran.join(around, on=["lane", "outer_id"], how="left", maintain_order="left")
        .join(lanes.select("lane", _stage="stage"), on="lane", how="left", maintain_order="left")
        .with_columns(
            _stages=pl.lit(count_stages(lanes) or None, pl.Int64),
            phase=pl.lit(None, pl.Int64),
            label=pl.lit(None, pl.String),
        )
        .with_columns(chunk=chunk, backward_chunk=backward_chunk)
    )


def _needs_fit(sequences: Sequences) -> bool:
    """Return whether a schedule is needed for ids.

    Micro-batches or chunks are unknown, or there are several chunks.
    """
    is_open = pl.any_horizontal(pl.col("micro_batch", "chunk").is_null()) | (pl.col("chunk") > 0)
    is_open |= _IS_BOTH & pl.any_horizontal(pl.col("backward_micro_batch", "backward_chunk").is_null())
    return bool(sequences.jobs.select(is_open.any()).item())


def _expect_chunks(sequences: Sequences, fit: Fit) -> pl.DataFrame:
    """Return the expected chunk of each job, and backward_chunk of each combined job; null where unknown.

    Forwards, backwards and weight gradients are counted separately, so that a forward swapped with a backward
    changes no chunk.
    """
    jobs = sequences.jobs.join(
        fit.groups.select("group", *_ORDER, *(f"{way}_count" for way in WAYS)),
        on="group",
        maintain_order="left",
    )
    for way in WAYS:
        chunk = pl.coalesce("backward_chunk", "chunk") if way == "backward" else pl.col("chunk")
        own = fit.orders.filter(f"is_{way}").select(
            *_ORDER,
            chunk.alias(way),
            pl.len().over(_ORDER).cast(pl.Int64).alias(f"{way}_count"),
            pl.int_range(pl.len()).over(_ORDER).alias(f"{way}_rank"),
        )
        jobs = jobs.join(own, on=[*_ORDER, f"{way}_count", f"{way}_rank"], how="left", maintain_order="left")
    first = pl.when("is_forward").then("forward").when("is_backward").then("backward").otherwise("weight")
    return jobs.select(chunk=first, backward_chunk=pl.when(_IS_BOTH).then("backward"))


def _infer(sequences: Sequences, fit: Fit | None, expected: pl.DataFrame | None) -> pl.DataFrame:
    """Infer missing ids from the order of a schedule, in the groups that follow it.

    Returns:
        job, ids, is_inferred, and confidence; null where nothing is inferred.
    """
    named = sequences.jobs
    jobs = named.with_columns(is_sound=False, confidence=pl.lit(None, pl.Float64))
    if fit is not None and expected is not None:
        # a capture may have cut off as many jobs of each step
        is_sound = pl.lit(not sequences.complete.is_empty()) & (pl.col("by_group") >= LEAST_AGREEMENT)
        is_sound &= pl.col("forward_count") == pl.col("micro_batches") * fit.chunks
        is_sound &= pl.col("forward_count") == pl.col("backward_count")
        groups = fit.groups.select("group", is_sound=is_sound.fill_null(value=False), confidence="by_group")
        jobs = named.join(groups, on="group", maintain_order="left").with_columns(
            pl.coalesce(name, pl.when("is_sound").then(expected[name])).alias(name)
            for name in expected.columns
        )
    if _has_one_chunk(named):
        jobs = jobs.with_columns(chunk=0, backward_chunk=pl.when(_IS_BOTH).then(0))
    counted = jobs.select(number_jobs("group"))
    of_chunk = {"micro_batch": "chunk", "backward_micro_batch": "backward_chunk"}
    jobs = jobs.with_columns(
        pl.coalesce(
            name, pl.when(pl.col("is_sound") & pl.col(chunk).is_not_null()).then(counted[name])
        ).alias(name)
        for name, chunk in of_chunk.items()
    )
    found = _IDS if fit is not None and fit.chunks > 1 else _NUMBERS
    is_inferred = pl.any_horizontal(pl.col(name).ne_missing(named[name]) for name in found)
    return jobs.with_columns(is_inferred=is_inferred).with_columns(
        confidence=pl.when("is_inferred").then("confidence")
    )


def _has_one_chunk(jobs: pl.DataFrame) -> bool:
    """Return whether there is one chunk: no name has a chunk, and every micro-batch occurs once."""
    if jobs.select(pl.col("chunk", "backward_chunk").count().sum()).row(0) != (0, 0):
        return False
    numbered = jobs.select("group", "kind", "micro_batch")
    return not jobs["micro_batch"].has_nulls() and not numbered.is_duplicated().any()


def _add_ids(jobs: pl.DataFrame, ids: pl.DataFrame) -> pl.DataFrame:
    # ids in names are kept
    found = ids.with_columns(pl.col(_NUMBERS) + pl.col("base")).select(
        "job", *_IDS, "is_inferred", "confidence"
    )
    return jobs.join(found, on="job", how="left", maintain_order="left", suffix="_found").with_columns(
        *(pl.coalesce(name, f"{name}_found").alias(name) for name in _IDS),
        pl.col("is_inferred").fill_null(value=False),
    )


def _copy_outer_ids(jobs: pl.DataFrame) -> pl.DataFrame:
    """Copy ids from outer jobs to inner jobs, and from backwards to recomputation."""
    kind, outer = jobs["kind"], whole_numbers(jobs["outer"])
    is_inner = is_among(kind, ("forward", "backward", "weight_gradient", "recompute")) & (outer >= 0)
    of_backward = is_inner & ~is_among(kind, ("forward",))
    of_backward &= is_among(kind, ("forward_backward",))[outer]
    rows, around, second = np.flatnonzero(is_inner), outer[is_inner], of_backward[is_inner]
    inherited = []
    for name in ("micro_batch", "chunk"):
        values, of_both = whole_numbers(jobs[name]).copy(), whole_numbers(jobs[f"backward_{name}"])
        while True:
            candidates = np.where(second, of_both[around], values[around])
            is_new = (values[rows] < 0) & (candidates >= 0)
            if not is_new.any():
                break
            values[rows[is_new]] = candidates[is_new]
        inherited.append(as_numbers(name, values, null=-1))
    jobs = jobs.with_columns(inherited)
    return _copy_backward_ids(jobs) if is_among(kind, ("recompute",)).any() else jobs


def _copy_backward_ids(jobs: pl.DataFrame) -> pl.DataFrame:
    is_both = pl.col("kind") == "forward_backward"
    is_unknown = (pl.col("kind") == "recompute") & pl.col("micro_batch").is_null()
    unknown = -1  # a value, not null: fill_null must not replace it by the ids of a later backward
    following = {
        name: pl.when(is_both)
        .then(pl.col(f"backward_{name}").fill_null(unknown))
        .when(pl.col("kind") == "backward")
        .then(pl.col(name).fill_null(unknown))
        .fill_null(strategy="backward")
        .over("lane", "step")
        .replace(unknown, None)
        for name in ("micro_batch", "chunk")
    }
    return jobs.with_columns(
        pl.when(is_unknown).then(values).otherwise(name).alias(name) for name, values in following.items()
    )


def _add_virtual_stages(jobs: pl.DataFrame, shape: str) -> pl.DataFrame:
    """Compute virtual stages from chunks.

    In a V (DualPipeV), the second chunks run back from the last stage.
    """
    if shape == "":
        return jobs

    parts = {"virtual_stage": "chunk", "backward_virtual_stage": "backward_chunk"}
    return jobs.with_columns(
        pl.coalesce(virtual, find_virtual_stage(chunk, shape)).alias(virtual)
        for virtual, chunk in parts.items()
    )


def find_virtual_stage(chunk: str, shape: str) -> pl.Expr:
    """Return the virtual stage of jobs with `_stage`, `_stages` and a chunk; `shape` is "loop" or "V"."""
    looped = pl.col(chunk) * pl.col("_stages") + pl.col("_stage")
    return (
        pl.when((pl.col(chunk) == 1) & (shape == "V"))
        .then(2 * pl.col("_stages") - 1 - pl.col("_stage"))
        .otherwise(looped)
    )


def _find_chunk_layout(ids: pl.DataFrame, best: Fit | None, schedule_name: str | None) -> str:
    """Return the layout of the chunks along the stages: "loop" or "V"; "" where unknown."""
    if not ids.select(pl.max_horizontal("chunk", "backward_chunk").max()).item():
        return "loop"
    return {"interleaved": "loop", "dualpipev": "V"}.get(schedule_name or (best.name if best else ""), "")


def _describe(ids: pl.DataFrame, fits: list[Fit], *, is_unique: bool) -> list[str]:
    notes = []
    if inferred := int(ids["is_inferred"].sum()):
        order = f"from the order of {fits[0].name}"
        notes.append(f"the micro-batches or chunks of {inferred:,} jobs were inferred {order}")
    if unknown := ids.select(pl.any_horizontal(pl.col("micro_batch", "chunk").is_null()).sum()).item():
        reason = _explain_refusal(fits, is_unique)
        notes.append(f"the micro-batches or chunks of {unknown:,} jobs are unknown: {reason}")
    return notes


def _explain_refusal(fits: list[Fit], is_unique: bool) -> str:
    if not fits:
        return "their number fits no schedule"
    if not fits[0].is_good:
        return f"their order is {fits[0].describe_mismatch()}"
    if not is_unique:
        return "several schedules have jobs in this order, and number them differently"
    return f"their steps are cut, or not in the order of {fits[0].name}"


_WORDS = {  # labels of jobs without a micro-batch, or in addition to it
    "forward": "F",
    "backward": "B",
    "weight_gradient": "W",
    "recompute": "R",
    "forward_backward": "F+B",
    "optimizer": "opt",
    "send": "send",
    "receive": "recv",
    "send_receive": "send+recv",
    "data": "data",
}

_PACKAGES = re.compile(r"(?:[^\W\d]\w*\.){2,}")  # of a function: "megatron.core."


def label_jobs(jobs: pl.DataFrame, lanes: pl.DataFrame, schedule: Schedule) -> pl.DataFrame:
    """Label the jobs, and add the phases of a DualPipeV schedule.

    The label of a forward or backward is its micro-batch; the halves of a split backward are `3b` and `3w`, a
    recomputation is `3r`, a combined forward and backward `7F+13B`. DualPipeV has the labels of
    msprof-analyze: micro-batch k of the second chunk is number m + k of m micro-batches, and backwards are
    `3B`. Other jobs are labelled by a word for their kind, messages by a word and their micro-batch, and jobs
    of kind "other" by their name, without the packages with which all names of the kind begin.

    Args:
        jobs: All `RUN_JOBS`.
        lanes: `LANES`.
        schedule: The schedule of the run.

    Returns:
        `RUN_JOBS` with `label`, and `phase` where a lane has the number of jobs of DualPipeV in a step.
    """
    is_v = schedule.name == "dualpipev"
    if is_v:
        jobs = _add_phases(jobs, lanes, schedule)
    base = schedule.micro_batch_count if is_v else 0
    number = pl.col("micro_batch") + base * pl.col("chunk").fill_null(0)
    partner = pl.col("backward_micro_batch") + base * pl.col("backward_chunk").fill_null(0)
    kind = pl.col("kind").cast(pl.String)
    word = kind.replace_strict(_WORDS, default=None, return_dtype=pl.String)
    half = pl.when("is_split").then(pl.concat_str(number, pl.lit("b")))
    forms = {
        "forward": pl.when(pl.col("phase") == 3).then(pl.concat_str(number, pl.lit("F"))),
        "backward": pl.coalesce(half, pl.concat_str(number, pl.lit("B"))) if is_v else half,
        "weight_gradient": pl.concat_str(number, pl.lit("w")),
        "recompute": pl.concat_str(number, pl.lit("r")),
        "forward_backward": pl.concat_str(number, pl.lit("F+"), partner, pl.lit("B")),
        **{message: pl.concat_str(word, number, separator=" ") for message in MESSAGE_KINDS},
        "other": pl.col("name").cast(pl.String).str.strip_prefix(_find_packages(jobs)),
    }
    form = pl.coalesce(pl.when(kind == name).then(form) for name, form in forms.items())
    text = pl.coalesce(form, pl.when(kind.is_in(["forward", "backward"])).then(number.cast(pl.String)), word)
    return jobs.with_columns(mark_split_backwards(jobs)).with_columns(label=text).pipe(conform, RUN_JOBS)


def _find_packages(jobs: pl.DataFrame) -> str:
    """Find the packages with which the names of all jobs of kind "other" begin; "" without any."""
    names = jobs.filter(kind="other")["name"].drop_nulls().unique().cast(pl.String)
    parts = zip(*(name.split(".")[:-1] for name in names), strict=False)
    packages = "".join(f"{part[0]}." for part in takewhile(lambda part: len({*part}) == 1, parts))
    return packages if _PACKAGES.fullmatch(packages) else ""


def _add_phases(jobs: pl.DataFrame, lanes: pl.DataFrame, schedule: Schedule) -> pl.DataFrame:
    # of DualPipeV, by position, in groups with all jobs
    stages, micro_batches = schedule.stage_count, schedule.micro_batch_count
    if not 0 < 2 * stages <= micro_batches:
        return jobs
    sequences = build_sequences(lanes, RUN_STEPS.to_frame(), jobs)
    shapes = ((stage, micro_batches) for stage in range(stages))
    places = _list_places(_list_orders("dualpipev", shapes, stages=stages)).select(
        "stage", "position", "phase", count="expected"
    )
    # a weight gradient has the phase of the job before it
    before = pl.col("position").forward_fill().over("group").fill_null(0)
    count = pl.col("size") - pl.col("weight_count")
    found = (
        sequences.jobs.select("job", "group", position=before)
        .join(sequences.groups.select("group", "stage", count=count), on="group")
        .join(places.with_columns(pl.col("count").cast(pl.Int64)), on=["stage", "position", "count"])
    )
    return jobs.drop("phase").join(found.select("job", "phase"), on="job", how="left", maintain_order="left")


_MOST_UNEXPLAINED = 0.05  # casts, norms and sums of gradients between jobs are a few percent


def doubt_schedule(
    schedule: Schedule, jobs: pl.DataFrame, compute_segments: pl.DataFrame
) -> tuple[Schedule, list[str]]:
    """Add the share of unexplained compute to a schedule, which is uncertain if the share is large.

    Weight gradients without ranges, for example, turn the order of jobs of ZB-H1 into that of 1F1B.

    Args:
        schedule: A schedule.
        jobs: `RUN_JOBS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        The schedule, and a note if the share is large.
    """
    share = measure_unexplained(jobs, compute_segments)
    schedule = replace(schedule, unexplained=share)
    if share is None or share <= _MOST_UNEXPLAINED:
        return schedule, []
    reason = f"{100 * share:.0f} % of the compute between jobs belongs to no job"
    if schedule.source == "recognised":
        schedule = replace(schedule, source="uncertain", reason=reason)
        reason += f", so the schedule {schedule.name} is uncertain"
    return schedule, [f"{reason}: name the ranges of further jobs with `--job-pattern`, or choose `--preset`"]


def measure_unexplained(jobs: pl.DataFrame, compute_segments: pl.DataFrame) -> float | None:
    """Measure the share of compute outside of all jobs, from the first job of each lane and step on.

    It counts until the optimizer, or else until the last job, since few rules name all of an optimizer.

    Args:
        jobs: `RUN_JOBS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        The share, from 0 to 1; None without compute between jobs.
    """
    ran = jobs.select(
        "lane", "step", "kind", start_ns="compute_start_ns", end_ns="compute_end_ns"
    ).drop_nulls(["start_ns", "end_ns"])
    is_scheduled = pl.col("kind").is_in(SCHEDULED_KINDS)
    last_ns = pl.col("end_ns").filter(is_scheduled).max()
    updates = pl.col("start_ns").filter((pl.col("kind") == "optimizer") & (pl.col("start_ns") >= last_ns))
    spans = (
        ran.drop_nulls("step")
        .group_by("lane", "step")
        .agg(
            start_ns=pl.col("start_ns").filter(is_scheduled).min(), end_ns=pl.coalesce(updates.min(), last_ns)
        )
        .drop_nulls()
    )
    inside = intersect(*_list_intervals(compute_segments), unite(*_list_intervals(spans)))
    lane = whole_numbers(compute_segments["lane"])[inside.row]
    explained = intersect(lane, inside.start, inside.end, unite(*_list_intervals(ran)))
    total, of_jobs = (int((parts.end - parts.start).sum()) for parts in (inside, explained))
    return (total - of_jobs) / total if total else None


def _list_intervals(frame: pl.DataFrame) -> tuple[Int64s, Int64s, Int64s]:
    return whole_numbers(frame["lane"]), frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
