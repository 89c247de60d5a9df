"""GPU memory that was allocated and freed, by the job or range around the call."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, order_table, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions

_COLUMNS = (
    Column("kind", pl.String, "kind of memory", is_group=True),
    Column("allocation_count", pl.Int64, "allocations"),
    Column("free_count", pl.Int64, "releases"),
    Column("allocated_bytes", pl.Int64, "sum of the sizes of allocations"),
    Column("freed_bytes", pl.Int64, "sum of the sizes of releases"),
    Column("increased_bytes", pl.Int64, "allocated less freed"),
    Column(
        "peak_bytes",
        pl.Int64,
        "most memory in use on a single GPU, of allocations during the capture; of a job: while the host was in it",
    ),
    Column(
        "name", pl.String, "kind of the innermost job around the call, else the name of its innermost range"
    ),
)
_COUNTS = ("allocation_count", "free_count", "allocated_bytes", "freed_bytes")
_INDENT = "  "


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    by_kind = [*COLUMNS_OF_GROUP[options.by], "kind"]
    name = pl.coalesce(
        pl.col("job").cast(pl.String), pl.col("name").cast(pl.String), pl.lit("outside all ranges")
    )
    frame = add_groups(summary.frames["memory_aggregates"], summary, options).with_columns(
        name=_INDENT + name
    )
    sums = {name: pl.col(name).sum() for name in _COUNTS}
    increased = {"increased_bytes": (pl.col("allocated_bytes") - pl.col("freed_bytes")).sum()}
    callers = sum_by(frame, [*by_kind, "name"], **sums, **increased)
    of_jobs = add_groups(summary.frames["job_memory_peaks"], summary, options)
    of_jobs = of_jobs.with_columns(name=_INDENT + pl.col("job").cast(pl.String))
    of_jobs = sum_by(of_jobs, [*by_kind, "name"], peak_bytes=pl.col("peak_bytes").max())
    on = [*by_kind, "name"]
    callers = callers.join(of_jobs, on=on, how="full", coalesce=True, nulls_equal=True).with_columns(
        pl.col(*_COUNTS, "increased_bytes").fill_null(0), is_caller=pl.lit(True)
    )
    peaks = add_groups(summary.frames["memory_peaks"], summary, options)
    peaks = sum_by(peaks, by_kind, peak_bytes=pl.col("peak_bytes").max())
    kinds = sum_by(frame, by_kind, **sums, **increased)
    kinds = kinds.join(peaks, on=by_kind, how="full", coalesce=True, nulls_equal=True).with_columns(
        is_caller=pl.lit(False), name=pl.lit("all")
    )
    rows = pl.concat([kinds, callers], how="diagonal")
    return order_table(
        rows,
        _COLUMNS,
        groups=COLUMNS_OF_GROUP[options.by],
        sort="increased_bytes",
        before=["kind", "is_caller"],
    )


MEMORY_TABLE = Table(
    name="memory",
    title="Memory",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Allocations and releases by CUDA itself, which frameworks keep and reuse: memory that is reserved, not used."
        " The peak is that of the GPU with the largest one."
    ),
    needs=("gpu_memory",),
    is_nested=True,
    sort="increased_bytes",
    build=_build,
)
