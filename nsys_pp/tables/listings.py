"""Tables of single frames: names of ranges, the roster, projections, clocks."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.conform import NAME, NO_NAME
from nsys_pp.frames.table import Column, Table, View

# Rows are those of `nsys_pp.explain_jobs`.
NAME_TABLE = Table(
    name="names",
    title="Names of ranges",
    columns=(
        Column(
            "kind", pl.String, "kind of the job, or `step`; null: no rule reads the name", null_text="unread"
        ),
        Column("range_count", pl.Int64, "ranges with the name"),
        Column(
            "gpu_ns",
            pl.Int64,
            "time of GPU operations in these ranges, on all devices; nested ranges all count",
        ),
        Column("preset", pl.String, "preset of the rule; null: none", null_text=""),
        Column("pattern", pl.String, "expression of the rule; null: none", is_name=True, null_text=""),
        Column("name", pl.String, "name of the ranges, with `#` for numbers", is_name=True),
    ),
    caption=(
        "Names that a rule reads come first, then unread ones, each by GPU time. `--job-pattern` reads more."
    ),
    empty="no ranges were recorded",
    rows=lambda names: names,
)


def _describe_locations(table: pl.DataFrame) -> pl.DataFrame:
    """Add stages and sources as text; parallel dimensions of size one are omitted."""
    parts = [
        pl.format("{} {}", pl.lit(word), column)
        for column, word in (("tensor", "tp"), ("replica", "dp"))
        if table[column].n_unique() > 1
    ]
    sources = [
        pl.format("{}: {}", pl.lit(column), f"{column}_source") for column in ("machine", "rank", "stage")
    ]
    split = pl.concat_str(parts, separator=", ", ignore_nulls=True) if parts else pl.lit("")
    stage = pl.col("stage").cast(pl.String)
    return table.with_columns(
        gpu_name=pl.col("gpu").str.strip_prefix("GPU "),
        layout=pl.when(split != "").then(pl.format("{} ({})", stage, split)).otherwise(stage),
        sources=pl.concat_str(sources, separator=", ", ignore_nulls=True),
    )


ROSTER_TABLE = Table(
    name="roster",
    title="Reports",
    columns=(
        Column("label", pl.String, "label of the report", heading="Report", is_file=True),
        Column("machine", pl.String, "label of the machine"),
        Column("machine_source", pl.String, "source of the machine"),
        Column("rank", pl.Int64, "rank of the process; null: unknown"),
        Column("rank_source", pl.String, "source of the rank"),
        Column("gpu", pl.String, "label of the GPU on its machine"),
        Column("stage", pl.Int64, "pipeline stage (pp); null: unknown"),
        Column("tensor", pl.Int64, "tensor-parallel rank (tp); null: unknown"),
        Column("replica", pl.Int64, "data-parallel rank (dp); null: unknown"),
        Column("stage_source", pl.String, "source of the stage"),
    ),
    caption="",
    rows=lambda roster: roster.sort(
        "machine_order", "rank", "gpu_number", "report", "device_id", nulls_last=True
    ),
    view=View(
        columns=(
            "label",
            "machine",
            "rank",
            Column("gpu_name", pl.String, "label of the GPU without its kind", heading="GPU"),
            Column(
                "layout", pl.String, "stage, with tensor-parallel and data-parallel rank", heading="Stage"
            ),
            Column("sources", pl.String, "sources of machine, rank and stage", heading="Learned from"),
        ),
        derive=_describe_locations,
    ),
)


_LOCATION = {
    "machine": "machine",
    "report": "report",
    "gpu": "GPU",
    "stream_id": "stream",
    "thread_id": "thread",
}


def define_projection_table(ops: Sequence[str], scope: str) -> Table[[pl.DataFrame]]:
    """Define the table of projections for the options of their computation.

    Args:
        ops: Kinds of operations that count.
        scope: Scope of calls that count.
    """
    options = f"--ops {','.join(ops)} --scope {scope}"

    def list_notes(table: pl.DataFrame) -> list[str]:
        shared = ", ".join(  # the location that all rows share: "machine node7, GPU 0, thread 1000"
            f"{word} {table[column][0]}".removeprefix("GPU ")
            for column, word in _LOCATION.items()
            if column != "report" and table[column].n_unique() == 1 and table[column][0] is not None
        )
        process_count = table.filter(pl.col("scope") == "process").height if scope == "auto" else 0
        counted = f"{process_count:,} rows count launches of other threads of their process"
        return [*([shared] if shared else []), *([counted] if process_count else [])]

    return Table(
        name="projections",
        title="Projections of NVTX ranges",
        columns=(
            Column("report", pl.String, "label of the report", is_optional=True, is_file=True),
            Column("machine", pl.String, "label of the machine", is_optional=True),
            Column("process_id", pl.Int64, "process of the range"),
            Column("thread_id", pl.Int64, "thread of the range", heading="Thread", is_optional=True),
            Column("device_id", pl.Int32, "device of the operations, as the process numbers it"),
            Column(
                "stream_id",
                pl.Int64,
                "stream of the operations; null: all streams",
                heading="Stream",
                is_optional=True,
            ),
            Column("range_id", pl.Int64, "number of the range in its report"),
            Column("parent_id", pl.Int64, "range_id of the range around it; null: none"),
            Column("depth", pl.Int64, "number of ranges around it"),
            Column("domain", NAME, "NVTX domain; null: the default domain"),
            Column("name", NAME, "text of the range; null: none"),
            Column("start_ns", pl.Int64, "start of the range on the CPU"),
            Column("end_ns", pl.Int64, "end of the range on the CPU"),
            Column(
                "gpu_start_ns", pl.Int64, "first start of its operations", heading="Start", display_unit="ms"
            ),
            Column("gpu_end_ns", pl.Int64, "last end of its operations"),
            Column("busy_ns", pl.Int64, "union of its operations"),
            Column("call_count", pl.Int64, "API calls that launched operations"),
            Column("op_count", pl.Int64, "operations that it launched", heading="Ops"),
            Column("first_op", NAME, "name of the first operation"),
            Column("last_op", NAME, "name of the last operation"),
            Column(
                "scope",
                pl.Enum(["thread", "process"]),
                "calls that count: of the thread, or also of other threads of the process",
            ),
            Column("is_open", pl.Boolean, "the range had not ended at the end of the capture"),
            Column("gpu", pl.String, "label of the GPU on its machine", is_optional=True),
            Column("rank", pl.Int64, "rank of the process; null: unknown"),
            Column("utc_offset_ns", pl.Int64, "offset from the times to UTC; null: unknown"),
        ),
        caption=options,
        empty=f"no range launched an operation that counts with {options}",
        rows=lambda projections: projections,
        view=View(
            columns=(
                "gpu_start_ns",
                Column("duration_ns", pl.Int64, "from the first start to the last end", display_unit="ms"),
                Column("busy_fraction", pl.Float64, "busy time over duration", decimals=1),
                "op_count",
                *_LOCATION,
                Column("range", pl.String, "text of the range, indented by depth", is_name=True),
            ),
            derive=_arrange,
            notes=list_notes,
        ),
    )


def _arrange(table: pl.DataFrame) -> pl.DataFrame:
    """Sort projections by nesting, and add the columns of the view."""
    duration = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    name = pl.col("name").cast(pl.String).fill_null(NO_NAME)
    arranged = _sort_by_nesting(table).with_columns(
        duration_ns=duration,
        busy_fraction=pl.when(duration > 0).then(pl.col("busy_ns") / duration),
        range=pl.concat_str(pl.lit("  ").repeat_by("depth").list.join(""), name),
    )
    gpus = table.select("machine", "gpu", "report").unique()
    if gpus.select("machine", "gpu").is_unique().all():  # the GPU identifies the report
        arranged = arranged.with_columns(report=pl.lit(None, pl.String))
    return arranged.with_columns(pl.col("stream_id", "thread_id").cast(pl.String))


def _sort_by_nesting(table: pl.DataFrame) -> pl.DataFrame:
    """Sort projections by report, GPU and thread, and each range before the ranges inside it."""
    thread = ("report_order", "gpu_order", "process_id", "thread_id")
    frame = table.with_columns(
        report_order=pl.struct("machine", "report").rle_id(),
        gpu_order=pl.col("gpu").str.extract(r"(\d+)").cast(pl.Int64),
    )
    by_thread = (
        pl.col("gpu_start_ns").min().over(thread).alias("thread_start_ns"),
        "process_id",
        "thread_id",
    )
    by_nesting = ("start_ns", -pl.col("end_ns"), "depth", "range_id")
    frame = frame.sort("report_order", "gpu_order", *by_thread, *by_nesting, maintain_order=True)

    # A range that ended on another thread has no range inside it: it comes after the ranges that it
    # interrupts.
    around = frame.select("report_order", range_id="parent_id", is_around=True).drop_nulls().unique()
    frame = frame.join(around, on=["report_order", "range_id"], how="left", maintain_order="left")
    reach_ns = pl.col("end_ns").cum_max().shift(1).over(thread)
    interrupts = (pl.col("depth") == 0) & (pl.col("start_ns") < reach_ns) & pl.col("is_around").is_null()
    turn_ns = pl.when(interrupts).then(reach_ns).otherwise("start_ns").alias("turn_ns")
    return frame.sort("report_order", "gpu_order", *by_thread, turn_ns, maintain_order=True)


_COUNTS = {"collective_count": "coll", "mpi_count": "mpi", "message_count": "msg"}


def build_clock_table(clocks: pl.DataFrame, labels: Sequence[str]) -> pl.DataFrame:
    """Build the rows of `CLOCK_TABLE`, in the order of `clocks`.

    Args:
        clocks: `CLOCKS` of an alignment; its column `reports` has positions in `labels`.
        labels: Labels of the reports.
    """
    names = [
        labels[reports[0]] if len(reports) == 1 else f"{len(reports)} reports"
        for reports in clocks["reports"].to_list()
    ]
    return clocks.with_columns(pl.Series("report", names, dtype=pl.String))


def _describe_sources(table: pl.DataFrame) -> pl.DataFrame:
    """Add the operations that a clock shares, as text; omit the report if machines identify clocks."""
    counts = [
        pl.when(pl.col(column) > 0).then(pl.format("{} {}", column, pl.lit(word)))
        for column, word in _COUNTS.items()
    ]
    shared = pl.col("source").replace_strict(
        {
            "UTC": "UTC alone",
            "given": "--offset",
            "alone": "the only clock",
            "same machine": "same machine",
            "nothing": "nothing",
        },
        default=None,
        return_dtype=pl.String,
    )
    return table.with_columns(
        report=pl.col("report") if table["machine"].is_duplicated().any() else pl.lit(None, pl.String),
        drift_ppm=pl.col("drift_ppm").fill_null(0),
        shared=pl.coalesce(shared, pl.concat_str(counts, separator=", ", ignore_nulls=True)),
    )


CLOCK_TABLE = Table(
    name="clocks",
    title="Clocks",
    columns=(
        Column("machine", pl.String, "label of the machine"),
        Column("report", pl.String, "label of the report, or the number of reports", is_file=True),
        Column(
            "group",
            pl.Int64,
            "group of clocks; those of different groups cannot be compared with each other",
            is_optional=True,
        ),
        Column("source", pl.String, "kind of events or clocks used for its alignment"),
        Column(
            "offset_ns",
            pl.Int64,
            "correction of the recorded UTC, in the middle of the capture",
            heading="Added",
            display_unit="us",
            is_signed=True,
        ),
        Column("drift_ppm", pl.Float64, "excess of its rate over that of most clocks", is_signed=True),
        Column(
            "residual_median_ns",
            pl.Int64,
            "residual of the ends of shared operations, median; null without any",
            heading="Residual",
            display_unit="us",
        ),
        Column(
            "residual_p95_ns",
            pl.Int64,
            "95th percentile of these residuals",
            heading="95 % residual",
            display_unit="us",
        ),
        Column(
            "bound_ns",
            pl.Int64,
            "bound of its error; null: unknown",
            display_unit="us",
            priority=6,
            null_text="unknown",
        ),
        Column("collective_count", pl.Int64, "collectives shared with other clocks"),
        Column("mpi_count", pl.Int64, "MPI calls shared with other clocks"),
        Column("message_count", pl.Int64, "messages shared with other clocks"),
    ),
    caption=(
        "added: correction of the recorded UTC; residual: median and 95th percentile of the differences "
        "between ends of shared operations; bound: greatest error against clocks aligned with it"
    ),
    rows=build_clock_table,
    view=View(
        columns=(
            *(
                "machine",
                "report",
                "group",
                "offset_ns",
                "drift_ppm",
                "residual_median_ns",
                "residual_p95_ns",
            ),
            *(
                "bound_ns",
                Column(
                    "shared",
                    pl.String,
                    "operations shared with other clocks, or the source of the correction",
                ),
            ),
        ),
        derive=_describe_sources,
    ),
)
