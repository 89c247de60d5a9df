"""Memory that was allocated and freed, and where in the program."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.groups import add_groups, finish, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, Columns, SummaryTable, TableOptions, says_of

_COLUMNS: Columns = {
    "kind": (pl.String, "of the memory"),
    "allocation_count": (pl.Int64, "allocations"),
    "free_count": (pl.Int64, "releases"),
    "allocated_bytes": (pl.Int64, "sum of the sizes of allocations"),
    "freed_bytes": (pl.Int64, "sum of the sizes of releases"),
    "increased_bytes": (pl.Int64, "allocated less freed"),
    "peak_bytes": (pl.Int64, "most in use on a single GPU, of what was allocated during the capture"),
    "name": (pl.String, "kind of the innermost job around the call, or else the name of its innermost range"),
}
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
    places = sum_by(frame, [*by_kind, "name"], **sums, **increased).with_columns(
        is_place=pl.lit(True), peak_bytes=pl.lit(None, pl.Int64)
    )
    peaks = add_groups(summary.frames["memory_peaks"], summary, options)
    peaks = sum_by(peaks, by_kind, peak_bytes=pl.col("peak_bytes").max())
    kinds = sum_by(frame, by_kind, **sums, **increased)
    kinds = kinds.join(peaks, on=by_kind, how="full", coalesce=True, nulls_equal=True).with_columns(
        is_place=pl.lit(False), name=pl.lit("all")
    )
    rows = pl.concat([kinds, places], how="diagonal")
    return finish(
        rows,
        _COLUMNS,
        groups=COLUMNS_OF_GROUP[options.by],
        sort="increased_bytes",
        before=["kind", "is_place"],
    )


MEMORY_TABLE = SummaryTable(
    title="Memory",
    columns=says_of(_COLUMNS),
    says=(
        "Allocations and releases that CUDA itself made, which frameworks keep and hand out again: reserved, not used."
        " The peak is that of the GPU that has the largest."
    ),
    needs=("gpu_memory",),
    totals=(),
    sort="increased_bytes",
    build=_build,
)
