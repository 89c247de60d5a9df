"""Table of projections: NVTX ranges with their intervals on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.names import NO_NAME
from nsys_pp.frames.report import NAME
from nsys_pp.frames.table import Column, Table, View, build_table_schema

_COLUMNS = (
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
    Column("gpu_start_ns", pl.Int64, "first start of its operations", heading="Start", display_unit="ms"),
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
)
_DURATION = Column("duration_ns", pl.Int64, "from the first start to the last end", display_unit="ms")
_BUSY = Column("busy_fraction", pl.Float64, "busy time over duration", decimals=1)
_RANGE = Column("range", pl.String, "text of the range, indented by depth", is_name=True)
_LOCATION = {
    "machine": "machine",
    "report": "report",
    "gpu": "GPU",
    "stream_id": "stream",
    "thread_id": "thread",
}
_INDENT = "  "


def define_projection_table(ops: Sequence[str], scope: str) -> Table[[pl.DataFrame]]:
    """Define the table of projections for the options of their computation.

    Args:
        ops: Kinds of operations that count.
        scope: Scope of calls that count.
    """
    options = f"--ops {','.join(ops)} --scope {scope}"

    def list_notes(table: pl.DataFrame) -> list[str]:
        shared = _describe_shared(table)
        process_count = table.filter(pl.col("scope") == "process").height if scope == "auto" else 0
        counted = f"{process_count:,} rows count launches of other threads of their process"
        return [*([shared] if shared else []), *([counted] if process_count else [])]

    return Table(
        name="projections",
        title="Projections of NVTX ranges",
        columns=_COLUMNS,
        caption=options,
        empty=f"no range launched an operation that counts with {options}",
        build=_keep_columns,
        view=View(
            columns=("gpu_start_ns", _DURATION, _BUSY, "op_count", *_LOCATION, _RANGE),
            derive=_arrange,
            notes=list_notes,
        ),
    )


def _keep_columns(projections: pl.DataFrame) -> pl.DataFrame:
    return conform(projections, build_table_schema(_COLUMNS))


def _arrange(table: pl.DataFrame) -> pl.DataFrame:
    """Sort projections by nesting, and add the columns of the view."""
    duration = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    name = pl.col("name").cast(pl.String).fill_null(NO_NAME)
    arranged = _sort_by_nesting(table).with_columns(
        duration_ns=duration,
        busy_fraction=pl.when(duration > 0).then(pl.col("busy_ns") / duration),
        range=pl.concat_str(pl.lit(_INDENT).repeat_by("depth").list.join(""), name),
    )
    if _is_gpu_unique(table):  # the GPU identifies the report
        arranged = arranged.with_columns(report=pl.lit(None, pl.String))
    return arranged.with_columns(pl.col("stream_id", "thread_id").cast(pl.String))


def _is_gpu_unique(table: pl.DataFrame) -> bool:
    gpus = table.select("machine", "gpu", "report").unique()
    return gpus.select("machine", "gpu").is_unique().all()


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

    # A range that ended on another thread has no range inside it: it comes after the ranges that it interrupts.
    around = frame.select("report_order", range_id="parent_id", is_around=True).drop_nulls().unique()
    frame = frame.join(around, on=["report_order", "range_id"], how="left", maintain_order="left")
    reach_ns = pl.col("end_ns").cum_max().shift(1).over(thread)
    interrupts = (pl.col("depth") == 0) & (pl.col("start_ns") < reach_ns) & pl.col("is_around").is_null()
    turn_ns = pl.when(interrupts).then(reach_ns).otherwise("start_ns").alias("turn_ns")
    return frame.sort("report_order", "gpu_order", *by_thread, turn_ns, maintain_order=True)


def _describe_shared(table: pl.DataFrame) -> str:
    """Describe the location that all rows share: "machine node7, GPU 0, thread 1000"."""
    shared = [
        f"{word} {table[column][0]}".removeprefix("GPU ")
        for column, word in _LOCATION.items()
        if column != "report" and table[column].n_unique() == 1 and table[column][0] is not None
    ]
    return ", ".join(shared)
