"""Aggregates of the kernels of one report by name, step and device, for the comparison of runs."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    find_distinct,
    gather,
    index_column,
    index_rows,
    is_among,
    keep_rows,
    numbers,
    pick,
)
from nsys_pp.arrays.names import as_texts
from nsys_pp.arrays.order import order_by_number, sort_rows
from nsys_pp.arrays.scratch_frames import list_blocks
from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS, OP_DETAILS, OpDetails
from nsys_pp.frames.training import JOB_KIND, KERNEL_AGGREGATES
from nsys_pp.training.report.jobs import find_step_rows

_LAST = -NEVER
_DEVICE = ["process_key", "device_id"]
_KEYS = [*_DEVICE, "row", "kind", "name", "full_name", "is_communication", "job_kind"]


def sum_kernels(
    gpu_ops: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    details: OpDetails | None = None,
    job_kind: pl.Series | None = None,
) -> pl.DataFrame:
    """Sum kernels and CUDA graphs by name and job; a kernel is in the step of its start.

    Args:
        gpu_ops: `GPU_OPS`, any order.
        steps: `STEPS` of the same report, any order; the steps of a device do not overlap.
        details: Of these operations, with their demangled names; None, or empty: all have the short one alone.
        job_kind: Kind of the job of each operation, null without one; None: none has one.

    Returns:
        `KERNEL_AGGREGATES`, by process, device, step (null outside all steps), name and job. Times are whole
        durations, also of concurrent kernels. Empty without kernels.
    """

    def add_up(rows: slice) -> pl.DataFrame:
        ops = gpu_ops[rows]
        kinds = job_kind if job_kind is None else job_kind[rows]
        return _sum_kernels(ops, find_step_rows(ops[[*_DEVICE, "start_ns"]], steps), details, kinds)

    parts = [add_up(rows) for rows in list_blocks(len(gpu_ops))]
    sums = parts[0] if len(parts) == 1 else pl.concat(parts).group_by(_KEYS).agg(**_join_sums())
    step = np.append(numbers(steps["step"]), NEVER)[sums["row"].to_numpy()]
    texts = [
        as_texts(sums[name]).alias(text) for name, text in (("name", "text"), ("full_name", "full_text"))
    ]
    sums = sums.hstack([as_numbers("step", step), *texts])
    return conform(index_rows(sums, _order_sums(sums)), KERNEL_AGGREGATES)


def _order_sums(sums: pl.DataFrame) -> Int64s:
    """Order sums by process, device, step, name and job, null last; of few rows, polars' sort takes several times as long."""
    words = {
        name: _rank_texts(sums[name], sums[text])
        for name, text in (("name", "text"), ("full_name", "full_text"))
    }
    columns = [*_DEVICE, "step", "name", "is_communication", "full_name", "job_kind", "kind"]
    return sort_rows(*(words[name] if name in words else numbers(sums[name], null=_LAST) for name in columns))


def _rank_texts(names: pl.Series, texts: pl.Series) -> Int64s:
    """Rank texts by their characters, null last; names are equal where these are."""
    first, number = find_distinct(numbers(names, null=-1))
    distinct = index_column(texts, first).to_list()
    order = sorted(range(len(distinct)), key=lambda at: (distinct[at] is None, distinct[at] or ""))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[number]


def _sum_kernels(
    gpu_ops: pl.DataFrame, row: Int64s, details: OpDetails | None, job_kind: pl.Series | None
) -> pl.DataFrame:
    """Sum the kernels among some operations, by the row of their step: one small number, a faster key than its columns."""
    is_kernel = is_among(gpu_ops["kind"], KERNEL_KINDS)
    if job_kind is None:
        job_kind = pl.Series("job_kind", [None], JOB_KIND).new_from_index(0, len(gpu_ops))
    keys = gpu_ops[["kind", *_DEVICE, "name", "is_communication"]].hstack(
        [build_column("row", row), job_kind.alias("job_kind")]
    )
    keys = keep_rows(keys, is_kernel)
    full_names, detail = OP_DETAILS.to_frame()["full_name"], np.full(len(keys), -1)
    if details is not None and len(details.row):
        full_names = details.distinct["full_name"]
        detail = details.row[gpu_ops["op_id"].to_numpy()[is_kernel]].astype(np.int64)
    code = pick(numbers(full_names, null=-1), detail, -1)  # equal names have one code
    first, number = number_rows([*keys.get_columns(), build_column("", code)])
    order, before = order_by_number(number.astype(np.int64), len(first))
    start, end = (gpu_ops[name].to_numpy()[is_kernel] for name in ("start_ns", "end_ns"))
    duration = (end - start)[order]
    return index_rows(keys, first).hstack(
        [
            gather(full_names, detail[first]),
            build_column("count", np.diff(before)),
            *(
                build_column(name, reduce.reduceat(duration, before[:-1]))
                for name, reduce in (("total_ns", np.add), ("min_ns", np.minimum), ("max_ns", np.maximum))
            ),
        ]
    )


def _join_sums() -> dict[str, pl.Expr]:
    return {
        "count": pl.col("count").sum(),
        "total_ns": pl.col("total_ns").sum(),
        "min_ns": pl.col("min_ns").min(),
        "max_ns": pl.col("max_ns").max(),
    }
