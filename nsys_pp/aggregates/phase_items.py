"""Phases of training: jobs by kind, and steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.step_times import DEVICE, EVER, step_on_host, time_on_device
from nsys_pp.arrays.ancestors import has_marked_line
from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    has_value,
    index_rows,
    is_among,
    list_distinct,
    numbers,
    pack,
    set_column,
)
from nsys_pp.arrays.search import find_rows, number_keys
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.aggregates import ALL_JOBS
from nsys_pp.frames.report import NAME
from nsys_pp.frames.training import JOB_KINDS

_STEP = ["process_key", "device_id", "step"]


def sum_phases(
    jobs: pl.DataFrame, gpu_ops: pl.DataFrame, steps: pl.DataFrame, *, kinds: Sequence[str]
) -> pl.DataFrame:
    """Add up jobs by kind, jobs of all kinds, and steps.

    A job inside another of its kind, on any level, does not count; a job inside a job of another kind
    does, so rows overlap. In `ALL_JOBS` only outermost jobs count.

    Args:
        jobs: `JOBS`.
        gpu_ops: `GPU_OPS`.
        steps: `STEPS`.
        kinds: Kinds of operation that count for jobs and steps.

    Returns:
        `ITEM_AGGREGATES` of item "phase", measures "host" and "gpu". "host" counts a job or step once, however many devices it
        reached; "gpu" of a step adds up the operations that began in it. Calls are not counted.
    """
    on_host = numbers(step_on_host(jobs, steps, time="host_start_ns"))
    step = numbers(jobs["step"])
    jobs = set_column(jobs, as_numbers("step", np.where(step == NEVER, on_host, step)))
    return pl.concat([*_sum_jobs(jobs), *_sum_steps(gpu_ops, is_among(gpu_ops["kind"], kinds), steps)])


def _sum_jobs(jobs: pl.DataFrame) -> list[pl.DataFrame]:
    kind, outer = numbers(jobs["kind"]), numbers(jobs["outer_id"])
    of_kinds, of_all = np.flatnonzero(~_is_inside_its_kind(jobs)), np.flatnonzero(outer == NEVER)
    row = np.append(of_kinds, of_all)
    # a phase for each kind, and that of all
    phase = np.append(kind[of_kinds], np.full(len(of_all), len(JOB_KINDS)))
    names = pl.Series("name", [*JOB_KINDS, ALL_JOBS], dtype=NAME)
    first, _ = number_keys(pack(numbers(jobs["range_id"])[row], phase))
    ran = np.flatnonzero(has_value(jobs["start_ns"])[row])
    measured = {
        "host": (first, _STEP[:1] + _STEP[2:], jobs["host_end_ns"] - jobs["host_start_ns"]),
        "gpu": (ran, _STEP, jobs["total_ns"]),
    }
    parts = []
    for measure, (at, keys, values) in measured.items():
        chosen = index_rows(jobs[keys].hstack([values.alias("value_ns")]), row[at])
        parts.append(sum_instances(chosen.hstack([names[phase[at]]]), item="phase", measure=measure))
    return parts


def _sum_steps(gpu_ops: pl.DataFrame, is_counted: Bools, steps: pl.DataFrame) -> list[pl.DataFrame]:
    columns = [numbers(steps[name]) for name in _STEP]
    process, device, start, end = (
        numbers(gpu_ops[name])[is_counted] for name in (*DEVICE, "start_ns", "end_ns")
    )
    of_ops = (process, device, time_on_device(steps).find([process, device], start))
    group = pack(*(np.append(own, other) for own, other in zip(columns, of_ops, strict=True)))
    first, number = number_keys(group)
    ran = np.zeros(len(first), dtype=np.int64)
    np.add.at(ran, number[len(steps) :], end - start)
    name = pl.Series("name", ["step"], dtype=NAME)
    on_device = steps[_STEP].hstack(
        [pl.Series("value_ns", ran[number[: len(steps)]]), name.new_from_index(0, len(steps))]
    )

    first, number = number_keys(pack(columns[0], columns[2]))
    begin, end = np.full(len(first), EVER), np.full(len(first), NEVER)
    np.minimum.at(begin, number, numbers(steps["host_start_ns"], null=EVER))
    np.maximum.at(end, number, numbers(steps["host_end_ns"]))
    length = np.where((begin < EVER) & (end > NEVER), end - begin, NEVER)
    on_host = index_rows(steps[["process_key", "step"]], first).hstack(
        [as_numbers("value_ns", length), name.new_from_index(0, len(first))]
    )
    measured = {"host": on_host, "gpu": on_device}
    return [sum_instances(rows, item="phase", measure=measure) for measure, rows in measured.items()]


def _is_inside_its_kind(jobs: pl.DataFrame) -> Bools:
    """Return the mask of jobs inside a job of the same kind, on any level."""
    ids, outer_ids, kinds = (numbers(jobs[name]) for name in ("range_id", "outer_id", "kind"))
    first, number = number_keys(ids)
    kind = kinds[first]
    outer = find_rows(ids[first], outer_ids[first])
    is_inside = np.zeros(len(first), dtype=np.bool_)
    for code in list_distinct(kind):
        is_inside |= (kind == code) & _is_below(outer, kind == code)
    mask: Bools = is_inside[number]
    return mask


def _is_below(parent: Int64s, marked: Bools) -> Bools:
    """Return the mask of rows with a marked ancestor."""
    line = has_marked_line(parent, marked)
    return np.asarray((parent >= 0) & line[parent])
