"""Time of each activity on the CPU and on GPUs."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.report import KERNEL_KINDS
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, add_ranks, join_by, order_table, share, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions

_SIDE = pl.Enum(["CPU", "GPU"])
_COLUMNS = (
    Column("side", _SIDE, "processor of the activity", is_group=True),
    Column("count", pl.Int64, "number of calls, ranges or operations; null where there is nothing to count"),
    Column("time_ns", pl.Int64, "time in which at least one was active, summed over processes or GPUs"),
    Column("fraction", pl.Float64, "share of the span on this side"),
    Column("activity", pl.String, "the activity"),
)
_HOST_ACTIVITIES = {  # activity of HOST_TIMES -> activity in the table
    "span": "span",
    "range": "ranges",
    "operator": "operators",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "data": "data",
    "communication": "communication",
    "cuda": "CUDA calls",
    "sync": "waiting for the GPU",
    "os": "OS calls",
    "cpu": "on a processor",
}
_IS_KERNEL = pl.col("kind").is_in(KERNEL_KINDS)
_GPU_ACTIVITIES = {  # activity in the table -> its time in GPU_TIMES, and the OP_AGGREGATES that it counts
    "span": (pl.col("span_ns"), None),
    "kernels": (pl.col("kernel_ns"), _IS_KERNEL),
    "computation": (pl.col("compute_ns"), _IS_KERNEL & ~pl.col("is_communication")),
    "communication": (pl.col("communication_ns"), _IS_KERNEL & pl.col("is_communication")),
    "copies": (pl.col("memcpy_ns"), pl.col("kind") == "memcpy"),
    "sets": (pl.col("memset_ns"), pl.col("kind") == "memset"),
    "anything": (pl.col("busy_ns"), pl.lit(True)),
    "nothing": (pl.col("span_ns") - pl.col("busy_ns"), None),
}


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = [*COLUMNS_OF_GROUP[options.by], "side"]
    frame = add_groups(pl.concat([_host(summary), _gpu(summary)]), summary, options)
    rows = sum_by(frame, [*groups, "activity"], count=pl.col("count").sum(), time_ns=pl.col("time_ns").sum())
    spans = rows.filter(activity="span").select(*groups, span_ns="time_ns")
    # The sum of counts is 0 also for activities without counts.
    counted = pl.when(pl.col("activity").is_in(["span", "nothing", "on a processor"]).not_()).then("count")
    rows = join_by(rows, spans, groups).with_columns(count=counted, fraction=share("time_ns", "span_ns"))
    rows = add_ranks(rows, frame, summary, groups=groups, keys=["activity"], value="time_ns")
    return order_table(rows, _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="time_ns", before=["side"])


def _host(summary: Summary) -> pl.DataFrame:
    """Return process, step, side, activity, count and time on the CPU; activities without any event are left out."""
    activity = pl.col("activity").cast(pl.String).replace(_HOST_ACTIVITIES)
    side = pl.lit("CPU", _SIDE)
    return (
        summary.frames["host_times"]
        .filter((pl.col("union_ns") > 0) | (pl.col("count") > 0))
        .select("process", "step", side.alias("side"), activity, "count", time_ns="union_ns")
    )


def _gpu(summary: Summary) -> pl.DataFrame:
    """Return the same columns of activities on GPUs."""
    times, ops = summary.frames["gpu_times"], summary.frames["op_aggregates"]
    side = pl.lit("GPU", _SIDE)
    frames = []
    for activity, (time_ns, is_counted) in _GPU_ACTIVITIES.items():
        keys = side.alias("side"), pl.lit(activity).alias("activity")
        frames.append(
            times.select(
                "process", "step", *keys, pl.lit(0, pl.Int64).alias("count"), time_ns.alias("time_ns")
            )
        )
        if is_counted is not None:
            counted = ops.filter(is_counted)
            no_time = pl.lit(0, pl.Int64).alias("time_ns")
            frames.append(counted.select("process", "step", *keys, "count", no_time))
    return pl.concat(frames)


OVERVIEW_TABLE = Table(
    name="overview",
    title="Overview",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Time in which at least one such activity was under way, for each process across its threads and for each GPU"
        " across its streams, summed. Rows overlap. Shares are of the span: from the first to the last event of a process,"
        " or of the steps."
    ),
    needs=("ranges", "api_calls", "kernels", "copies", "sets", "graphs", "os_calls", "thread_switches"),
    sort="time_ns",
    is_fixed=True,
    build=_build,
)
