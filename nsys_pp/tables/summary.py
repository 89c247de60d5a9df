"""Tables of a summary: sums of kernels, copies, calls, ranges and more over all reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.arrays.names import natural_key
from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.aggregates import ALL_JOBS, KERNEL_WAIT_NS, LATE_NS, SLOW_CALL_NS, Summary
from nsys_pp.frames.conform import NO_NAME
from nsys_pp.frames.report import KERNEL_KINDS, WAITING_CALL
from nsys_pp.frames.table import Column, Table
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.options import SUMMARY_GROUPS
from nsys_pp.tables.training import TENSOR_CORE_COLUMNS, share_tensor_cores, sum_tensor_cores
from nsys_pp.units import NS_PER_S, NS_PER_US

# Columns of groups, the first columns of a table.
GROUP_COLUMNS = (
    Column(
        "rank",
        pl.String,
        "label of the GPU process: its rank, else machine and GPU; null: unknown",
        is_group=True,
    ),
    Column("machine", pl.String, "label of the machine", is_group=True),
    Column("stage", pl.Int64, "pipeline stage; null: unknown", is_group=True),
    Column("gpu", pl.String, "label of the GPU on its machine", is_group=True),
    Column("step", pl.Int64, "number of the step; null: outside all steps", is_group=True),
)

# Columns before the last one in groups of rows that have more than one rank (or GPU process).
RANK_COLUMNS = (
    Column(
        "rank_min_ns",
        pl.Int64,
        "smallest total of a rank; 0 if a rank has other rows, but not this one",
    ),
    Column("rank_median_ns", pl.Float64, "median of the totals of ranks"),
    Column("rank_max_ns", pl.Int64, "largest total of a rank"),
    Column("slowest_rank", pl.String, "rank with the largest total; null if all totals are 0"),
)

_GROUP, _VALUE, _NUMBER = "_group", "_value", "process"
# Columns that rows are grouped by: values of `SUMMARY_GROUPS`.
Groups: TypeAlias = tuple[str, ...]


def add_groups(frame: pl.DataFrame, summary: Summary, groups: Groups) -> pl.DataFrame:
    """Add the group columns of a table to a frame of aggregates, with `process` and `step`."""
    named = summary.processes.select(_NUMBER, "machine", "stage", "gpu", "label", rank="label")
    columns = [column for column in groups if column != "step"]
    return frame.join(named.select(_NUMBER, *columns), on=_NUMBER, how="left", maintain_order="left")


def repeat_hosts(summary: Summary) -> pl.DataFrame:
    """Repeat `HOST_TIMES` for every GPU of a process, instead of the first one only.

    To compare it with its GPUs.
    """
    processes = summary.processes.select("process", "report", "process_key")
    same_process = processes.join(processes, on=["report", "process_key"], nulls_equal=True, suffix="_of")
    return (
        summary.frames["host_times"]
        .join(same_process.select("process", "process_of"), on="process")
        .with_columns(process="process_of")
        .drop("process_of")
    )


def share(part: str | pl.Expr, whole: str | pl.Expr) -> pl.Expr:
    """Return the share of a part in a whole; null if the whole is 0."""
    part, whole = (pl.col(value) if isinstance(value, str) else value for value in (part, whole))
    return pl.when(whole > 0).then(part / whole)


def over(value: pl.Expr, columns: Sequence[str]) -> pl.Expr:
    """Aggregate a value over the rows with equal columns; over all rows without columns."""
    return value.over(columns) if columns else value


def sum_by(frame: pl.DataFrame, columns: Sequence[str], **sums: pl.Expr) -> pl.DataFrame:
    """Aggregate rows by columns, where nulls are equal; empty in, empty out."""
    by = [pl.col(column) for column in columns] or [pl.lit(0).alias(_GROUP)]
    return frame.group_by(by, maintain_order=True).agg(**sums).select(*columns, *sums)


def join_by(left: pl.DataFrame, right: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Join a single row per group to the rows of that group; nulls for groups without one."""
    on = list(columns)
    if on:
        return left.join(right, on=on, how="left", nulls_equal=True, maintain_order="left")
    if right.is_empty():
        return left.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in right.schema.items())
    return left.join(right, how="cross")


def add_ranks(
    table: pl.DataFrame,
    frame: pl.DataFrame,
    summary: Summary,
    *,
    groups: Sequence[str],
    keys: Sequence[str],
    value: str,
) -> pl.DataFrame:
    """Add `RANK_COLUMNS`, if a group has more than one rank.

    The ranks of a group are the GPU processes with any row in it; a rank that lacks a row of its group has
    the total 0 there. Processes without a GPU are not ranks, unless no process has a GPU.

    Args:
        table: Rows with `groups` and `keys`.
        frame: Aggregates that the rows were summed from: `process`, `groups` and `keys`.
        summary: The summary.
        groups: Group columns of the table.
        keys: Columns that identify a row in its group.
        value: Column of the frame that is summed.
    """
    ranks = summary.processes.filter(pl.col("gpu").is_not_null()).select(_NUMBER)
    if len(ranks):
        frame = frame.join(ranks, on=_NUMBER, how="semi", maintain_order="left")
    counts = sum_by(frame, groups, rank_count=pl.col(_NUMBER).n_unique())
    if frame.is_empty() or counts["rank_count"].max() == 1:
        return table
    totals = (
        frame.group_by(*groups, *keys, _NUMBER)
        .agg(pl.col(value).sum().alias(_VALUE))
        .join(summary.processes.select(_NUMBER, "label"), on=_NUMBER, how="left")
    )
    # The zeros of ranks without the row are the first of the sorted totals.
    rank_count = pl.col("rank_count").cast(pl.Int64)
    zero_count = rank_count - pl.col("totals").list.len()

    def at(index: pl.Expr) -> pl.Expr:
        total = pl.col("totals").list.get(index - zero_count, null_on_oob=True)
        return pl.when(index < zero_count).then(0).otherwise(total)

    by_row = sum_by(
        totals.sort(_VALUE, _NUMBER, descending=[False, True]),
        [*groups, *keys],
        totals=pl.col(_VALUE),
        slowest_rank=pl.col("label").last(),
    )
    described = join_by(by_row, counts, groups).select(
        *groups,
        *keys,
        rank_min_ns=at(pl.lit(0)),
        rank_median_ns=(at((rank_count - 1) // 2) + at(rank_count // 2)) / 2,
        rank_max_ns=pl.col("totals").list.last(),
        slowest_rank=pl.when(pl.col("totals").list.last() > 0).then("slowest_rank"),
    )
    return join_by(table, described, [*groups, *keys])


def _define(
    rows: Callable[[Summary, Groups], pl.DataFrame],
    *,
    order: Sequence[str] = (),
    of_processes: bool = False,
    **spec: Any,
) -> Table[[Summary, str]]:
    """Define a table whose rows are sorted: groups in natural order, and the rows of each by size.

    Args:
        rows: Function that builds the rows of a summary for some groups, with these columns; in any order, or
            in that of a table without `sort`.
        order: Columns that sort the rows of a group first, ascending.
        of_processes: Rows are processes, in their order: `label` is the last group, and that of ranks none.
        **spec: Attributes of the table.
    """

    def build_rows(summary: Summary, by: str) -> pl.DataFrame:
        groups = () if of_processes and by == "rank" else SUMMARY_GROUPS[by]
        if of_processes:
            numbers = summary.processes.select("label", _order="process")
            built = rows(summary, (*groups, "label")).join(numbers, on="label", how="left")
        else:
            built = rows(summary, groups)
        sort, name = spec.get("sort"), spec["columns"][-1].name
        by_size = [pl.col(sort), pl.col(name).cast(pl.String)] if sort else []
        return _number_groups(built, groups).sort(
            _GROUP,
            *order,
            *by_size,
            descending=[False] * (1 + len(order)) + [True, False][: len(by_size)],
            nulls_last=True,
            maintain_order=True,
        )

    return Table(rows=build_rows, extra_columns=(*GROUP_COLUMNS, *RANK_COLUMNS), **spec)


def _number_groups(table: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Add `_group`: the number of each row's group, in natural order; groups without a name come last."""
    if not groups:
        return table.with_columns(pl.lit(0).alias(_GROUP))
    named = table.select(groups).unique()

    def key(row: tuple[object, ...]) -> list[tuple[bool, object]]:
        return [
            (value is None, natural_key(value) if isinstance(value, str) else value or 0) for value in row
        ]

    rows = sorted(named.rows(), key=key)
    order = pl.DataFrame(rows, schema=named.schema, orient="row").with_row_index(_GROUP)
    return table.join(order, on=list(groups), how="left", nulls_equal=True, maintain_order="left")


TIME_COLUMNS = (
    Column("count", pl.Int64, "number of calls, operations or ranges"),
    Column("total_ns", pl.Int64, "sum of their durations"),
    Column("fraction", pl.Float64, "share of the sum of the totals"),
    Column("mean_ns", pl.Float64, "mean duration"),
    Column("median_ns", pl.Float64, "median duration"),
    Column("min_ns", pl.Int64, "shortest duration"),
    Column("max_ns", pl.Int64, "longest duration"),
    Column("std_ns", pl.Float64, "sample standard deviation of the durations"),
)
TIME_TOTALS = ("count", "total_ns", "fraction")


def sum_times(frame: pl.DataFrame, summary: Summary, groups: Groups, *, keys: Sequence[str]) -> pl.DataFrame:
    """Sum durations by group and keys: `TIME_COLUMNS`, and `RANK_COLUMNS` if there are several ranks.

    Args:
        frame: Aggregates of the summary: `process`, `step`, keys and a distribution.
        summary: The summary.
        groups: Columns of groups.
        keys: Columns that identify a row.
    """
    named = add_groups(frame, summary, groups)
    rows = describe_distributions(merge_distributions(named, [*groups, *keys])).with_columns(
        fraction=share("total_ns", over(pl.col("total_ns").sum(), groups))
    )
    return add_ranks(rows, named, summary, groups=groups, keys=keys, value="total")


_INDENT = "  "
HOST, GPU = "host", "gpu"


def item_columns(host_fraction: str, gpu_fraction: str) -> tuple[Column, ...]:
    """Return the columns of times on the CPU and on GPUs, with the meanings of their shares."""
    sides = {HOST: ("on the CPU", host_fraction), GPU: ("of their operations on GPUs", gpu_fraction)}
    columns = (
        column
        for side, (location, fraction) in sides.items()
        for column in (
            Column(f"{side}_total_ns", pl.Int64, f"sum of durations {location}"),
            Column(f"{side}_fraction", pl.Float64, fraction),
            Column(f"{side}_mean_ns", pl.Float64, f"mean {location}, per item and GPU"),
            Column(f"{side}_max_ns", pl.Int64, f"longest {location}"),
            Column(f"{side}_min_ns", pl.Int64, f"shortest {location}"),
        )
    )
    return (Column("count", pl.Int64, "number of items"), *columns)


def describe_items(
    frame: pl.DataFrame, summary: Summary, groups: Groups, *, keys: Sequence[str]
) -> pl.DataFrame:
    """Describe the distributions of times on the CPU and on GPUs.

    Args:
        frame: Rows of `ITEM_AGGREGATES`, with the columns of groups and the keys.
        summary: The summary.
        groups: Columns of groups.
        keys: Columns that identify an item in its group.

    Returns:
        The groups and keys, `host_total_ns`, `host_mean_ns` and so on, likewise for `gpu_`, `count`: the
        number of items on the CPU, else of items with operations on GPUs, and `RANK_COLUMNS` of the times on
        GPUs if there are several ranks.
    """
    by = [*groups, *keys]
    host, gpu = (
        describe_distributions(merge_distributions(frame.filter(measure=side), by)).select(
            *by, pl.exclude(by).name.prefix(f"{side}_")
        )
        for side in (HOST, GPU)
    )
    rows = host.join(
        gpu, on=by, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
    ).with_columns(count=pl.coalesce("host_count", "gpu_count"))
    return add_ranks(rows, frame.filter(measure=GPU), summary, groups=groups, keys=keys, value="total")


_COLUMNS = (
    Column("time_ns", pl.Int64, "time of the part, summed over GPUs"),
    Column("fraction", pl.Float64, "share of the span"),
    Column("part", pl.String, "part of the span"),
)
_PARTS = {
    "span": pl.col("span_ns"),
    "computation": pl.col("compute_ns"),
    "communication": pl.col("communication_ns"),
    "overlap": pl.col("overlap_ns"),
    "exposed communication": pl.col("communication_ns") - pl.col("overlap_ns"),
    "exposed copies": pl.col("busy_ns") - pl.col("kernel_ns"),
    "idle": pl.col("span_ns") - pl.col("busy_ns"),
}
_PADDLE_SPAN = "ProfileStep"
_PADDLE_PARTS = {
    "Communication": pl.col("any_communication_ns"),
    "Computation": pl.col("compute_ns"),
    "Overlap": pl.col("any_overlap_ns"),
}


def _sum_parts(
    summary: Summary, groups: Groups, parts: Mapping[str, pl.Expr], spans: Sequence[pl.DataFrame] = ()
) -> pl.DataFrame:
    # `spans`: of other times; shares are of the span
    times = [
        summary.frames["gpu_times"].select("process", "step", part=pl.lit(part), time_ns=time_ns)
        for part, time_ns in parts.items()
    ]
    frame = add_groups(pl.concat([*spans, *times]), summary, groups)
    rows = sum_by(frame, [*groups, "part"], time_ns=pl.col("time_ns").sum())
    spans_ns = rows.filter(pl.col("part").is_in(["span", _PADDLE_SPAN])).select(*groups, span_ns="time_ns")
    rows = join_by(rows, spans_ns, groups).with_columns(fraction=share("time_ns", "span_ns"))
    return add_ranks(rows, frame, summary, groups=groups, keys=["part"], value="time_ns")


def _paddle_spans(summary: Summary) -> pl.DataFrame:
    """Return the spans of steps on the CPU for every GPU of the process; the whole spans without steps."""
    spans = repeat_hosts(summary).filter(pl.col("activity") == "span")
    has_steps = pl.col("step").is_not_null().any().over("process")
    return (
        spans.filter(pl.col("step").is_not_null() | ~has_steps)
        .join(summary.frames["gpu_times"].select("process").unique(), on="process", how="semi")
        .select("process", "step", part=pl.lit(_PADDLE_SPAN), time_ns="union_ns")
    )


_NEEDS = ("kernels", "graphs")
DISTRIBUTION_TABLE = _define(
    lambda summary, groups: _sum_parts(summary, groups, _PARTS),
    name="distribution",
    title="Computation and communication",
    columns=_COLUMNS,
    caption=(
        "Times of each GPU across its streams, summed. Computation, exposed communication, exposed copies "
        "(without a kernel) and idle add up to the span; overlap: computation and communication at once."
    ),
    needs=_NEEDS,
    is_fixed=True,
)
PADDLE_DISTRIBUTION_TABLE = _define(
    lambda summary, groups: _sum_parts(summary, groups, _PADDLE_PARTS, [_paddle_spans(summary)]),
    name="distribution",
    title="Computation and communication",
    columns=_COLUMNS,
    caption=(
        "As in Paddle: ProfileStep is the length of the steps on the CPU; communication is communication "
        "kernels and communication ranges on the CPU; overlap is communication and computation at once."
    ),
    needs=_NEEDS,
    is_fixed=True,
)


_SIDE = pl.Enum(["CPU", "GPU"])
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


def _build_overview(summary: Summary, groups: Groups) -> pl.DataFrame:
    times, ops = summary.frames["gpu_times"], summary.frames["op_aggregates"]
    host, gpu = (pl.lit(side, _SIDE).alias("side") for side in ("CPU", "GPU"))
    nothing, no_time = pl.lit(0, pl.Int64).alias("count"), pl.lit(0, pl.Int64).alias("time_ns")
    activity = pl.col("activity").cast(pl.String).replace(_HOST_ACTIVITIES)
    some = (pl.col("union_ns") > 0) | (pl.col("count") > 0)
    keys = ("process", "step")
    parts = [
        summary.frames["host_times"].filter(some).select(*keys, host, activity, "count", time_ns="union_ns")
    ]
    for name, (time_ns, is_counted) in _GPU_ACTIVITIES.items():
        named = pl.lit(name).alias("activity")
        parts.append(times.select(*keys, gpu, named, nothing, time_ns.alias("time_ns")))
        if is_counted is not None:
            parts.append(ops.filter(is_counted).select(*keys, gpu, named, "count", no_time))
    by_side = [*groups, "side"]
    frame = add_groups(pl.concat(parts), summary, groups)
    rows = sum_by(frame, [*by_side, "activity"], count=pl.col("count").sum(), time_ns=pl.col("time_ns").sum())
    spans = rows.filter(activity="span").select(*by_side, span_ns="time_ns")
    # The sum of counts is 0 also for activities without counts.
    counted = pl.when(pl.col("activity").is_in(["span", "nothing", "on a processor"]).not_()).then("count")
    rows = join_by(rows, spans, by_side).with_columns(count=counted, fraction=share("time_ns", "span_ns"))
    return add_ranks(rows, frame, summary, groups=by_side, keys=["activity"], value="time_ns")


OVERVIEW_TABLE = _define(
    _build_overview,
    order=["side"],
    name="overview",
    title="Overview",
    columns=(
        Column("side", _SIDE, "processor of the activity", is_group=True),
        Column(
            "count", pl.Int64, "number of calls, ranges or operations; null where there is nothing to count"
        ),
        Column("time_ns", pl.Int64, "time in which at least one was active, summed over processes or GPUs"),
        Column("fraction", pl.Float64, "share of the span on this side"),
        Column("activity", pl.String, "the activity"),
    ),
    caption=(
        "Time in which at least one such activity was under way, for each process across its threads and "
        "for each GPU across its streams, summed. Rows overlap. Shares are of the span: of the steps, or "
        "from the first to the last event of a process, or GPU operation or step of a report."
    ),
    needs=("ranges", "api_calls", "kernels", "copies", "sets", "graphs", "os_calls", "thread_switches"),
    sort="time_ns",
    is_fixed=True,
)


_COLUMNS_KERNELS = (
    *TIME_COLUMNS,
    Column(
        "name", pl.String, "name of the kernel; number of a graph that was traced as a whole", is_symbol=True
    ),
)
_CAPTION = (
    "Durations of kernels, and of CUDA graphs that were traced as a whole, summed: concurrent kernels all "
    "count. Shares are of this sum."
)


def _sum_kernels(summary: Summary, groups: Groups, name: str) -> pl.DataFrame:
    ops = summary.frames["op_aggregates"].filter(pl.col("kind").is_in(KERNEL_KINDS))
    return sum_times(ops.with_columns(name=name), summary, groups, keys=["name"])


KERNEL_TABLE = _define(
    lambda summary, groups: _sum_kernels(summary, groups, "name"),
    name="kernels",
    title="Kernels by name",
    columns=_COLUMNS_KERNELS,
    caption=_CAPTION,
    needs=_NEEDS,
    totals=TIME_TOTALS,
    sort="total_ns",
)
BASE_KERNEL_TABLE = _define(
    lambda summary, groups: _sum_kernels(summary, groups, "base_name"),
    name="base_kernels",
    title="Kernels by base name",
    columns=_COLUMNS_KERNELS,
    caption=f"{_CAPTION} Kernels that differ only in template arguments share a row.",
    needs=_NEEDS,
    totals=TIME_TOTALS,
    sort="total_ns",
)


def _build_copies(summary: Summary, groups: Groups) -> pl.DataFrame:
    by_name = [*groups, "name"]
    ops = summary.frames["op_aggregates"].filter(pl.col("kind").is_in(["memcpy", "memset"]))
    sizes = add_groups(summary.frames["copy_sizes"], summary, groups)
    described = describe_distributions(merge_distributions(sizes, by_name), unit="bytes").drop("count")
    return join_by(sum_times(ops, summary, groups, keys=["name"]), described, by_name).with_columns(
        bytes_per_s=share(pl.col("total_bytes").cast(pl.Float64) * NS_PER_S, "total_ns")
    )


COPY_TABLE = _define(
    _build_copies,
    name="copies",
    title="Memory copies and sets",
    columns=(
        *TIME_COLUMNS,
        Column("total_bytes", pl.Int64, "sum of their sizes; null where none is recorded"),
        Column("mean_bytes", pl.Float64, "mean size"),
        Column("median_bytes", pl.Float64, "median size"),
        Column("max_bytes", pl.Int64, "largest size"),
        Column("bytes_per_s", pl.Float64, "all bytes over the sum of durations"),
        Column("name", pl.String, "direction of the copy, or kind of memory that is set"),
    ),
    caption=(
        "Durations of memory copies and sets on GPUs, summed, and their sizes: concurrent ones all count, "
        "so the bandwidth is that of a single one. Shares are of the sum of their durations."
    ),
    needs=("copies", "sets"),
    totals=(*TIME_TOTALS, "total_bytes"),
    sort="total_ns",
)


def _build_ranges(summary: Summary, groups: Groups) -> pl.DataFrame:
    keys = ["style", "name"]
    domain, text = pl.col("domain").cast(pl.String), pl.col("name").cast(pl.String).fill_null(NO_NAME)
    ranges = (
        summary.frames["item_aggregates"]
        .filter(pl.col("item") == "range")
        .with_columns(
            pl.col("style").cast(pl.String),
            name=pl.when(domain.is_null()).then(text).otherwise(domain + ":" + text),
        )
    )
    named = add_groups(ranges, summary, groups)
    rows = sum_times(ranges.filter(pl.col("measure") == "host"), summary, groups, keys=keys)
    for measure, column in (("gpu", "gpu_total_ns"), ("span", "gpu_span_ns")):
        sums = sum_by(
            named.filter(pl.col("measure") == measure), [*groups, *keys], **{column: pl.col("total").sum()}
        )
        rows = rows.join(sums, on=[*groups, *keys], how="full", coalesce=True, nulls_equal=True)
    return rows


RANGE_TABLE = _define(
    _build_ranges,
    name="ranges",
    title="NVTX ranges",
    columns=(
        *TIME_COLUMNS,
        Column(
            "gpu_total_ns",
            pl.Int64,
            "sum of the durations of their operations on GPUs; null without operations",
        ),
        Column(
            "gpu_span_ns",
            pl.Int64,
            "sum of the times from the first start to the last end of their operations",
        ),
        Column("style", pl.String, "push/pop or start/end"),
        Column("name", pl.String, "domain and text", is_name=True),
    ),
    caption=(
        "Durations of ranges on the CPU, summed by name; a range inside another counts in both. On GPUs: "
        "durations of the operations that were launched inside, summed, and the time from their first start "
        "to their last end."
    ),
    needs=("ranges",),
    totals=TIME_TOTALS,
    sort="total_ns",
)


_COLUMNS_CALLS = (*TIME_COLUMNS, Column("name", pl.String, "name of the call", is_symbol=True))


def _sum_calls(summary: Summary, groups: Groups, api: str) -> pl.DataFrame:
    calls = summary.frames["call_aggregates"].filter(pl.col("api") == api)
    return sum_times(calls, summary, groups, keys=["name"])


CUDA_TABLE = _define(
    lambda summary, groups: _sum_calls(summary, groups, "cuda"),
    name="cuda",
    title="CUDA API calls",
    columns=_COLUMNS_CALLS,
    caption=(
        "Time in calls of the CUDA runtime and driver on the CPU, summed over threads: concurrent calls of "
        "several threads all count, and so does a call inside a call. Shares are of this sum."
    ),
    needs=("api_calls",),
    totals=TIME_TOTALS,
    sort="total_ns",
)
OS_TABLE = _define(
    lambda summary, groups: _sum_calls(summary, groups, "os"),
    name="os",
    title="OS runtime calls",
    columns=_COLUMNS_CALLS,
    caption=(
        "Time in traced calls of the operating system, mostly waiting, summed over threads: concurrent "
        "calls of several threads all count. Shares are of this sum."
    ),
    needs=("os_calls",),
    totals=TIME_TOTALS,
    sort="total_ns",
)


def _build_sync(summary: Summary, groups: Groups) -> pl.DataFrame:
    calls = (
        summary.frames["call_aggregates"]
        .filter(pl.col("api") == "cuda", pl.col("name").cast(pl.String).str.contains(WAITING_CALL))
        .with_columns(pl.col("name").cast(pl.String))
    )
    hosts = add_groups(summary.frames["host_times"], summary, groups)
    unions = hosts.filter((pl.col("activity") == "sync") & (pl.col("count") > 0)).with_columns(
        name=pl.lit("any of them")
    )
    union = sum_by(unions, [*groups, "name"], count=pl.col("count").sum(), total_ns=pl.col("union_ns").sum())
    union = add_ranks(union, unions, summary, groups=groups, keys=["name"], value="union_ns")
    rows = pl.concat([sum_times(calls, summary, groups, keys=["name"]), union], how="diagonal")
    spans = sum_by(hosts.filter(pl.col("activity") == "span"), groups, span_ns=pl.col("union_ns").sum())
    return join_by(rows, spans, groups).with_columns(fraction=share("total_ns", "span_ns"))


SYNC_TABLE = _define(
    _build_sync,
    name="sync",
    title="Waiting for the GPU",
    columns=(
        *(
            Column("fraction", pl.Float64, "share of the span on the CPU")
            if column.name == "fraction"
            else column
            for column in TIME_COLUMNS
        ),
        Column("name", pl.String, "name of the call"),
    ),
    caption=(
        "CUDA calls that wait for the GPU, summed over threads: synchronisation, and synchronous copies "
        "from or to the CPU; and the time in which any thread of a process was in such a call. Shares are "
        "of the span on the CPU, summed over processes."
    ),
    needs=("api_calls",),
    sort="total_ns",
)


# As nccl-tests defines them (doc/PERFORMANCE.md). Of calls on the parts of all ranks, NCCL records one part.
_OF_PARTS = ("allgather", "reducescatter", "alltoall", "gather", "scatter")
_OF_WHOLE = ("broadcast", "reduce", "send", "recv")


def _build_communication(summary: Summary, groups: Groups) -> pl.DataFrame:
    frame = summary.frames["collective_aggregates"].with_columns(pl.col("call").fill_null("unknown"))
    rows = sum_times(frame, summary, groups, keys=["call", "size_bytes", "rank_count"])
    # bytes of a call, and those that a link transfers for it; null where unknown
    call = pl.col("call").str.to_lowercase()
    size, ranks = pl.col("size_bytes").cast(pl.Float64), pl.col("rank_count")
    whole = (
        pl.when(call.is_in(_OF_PARTS))
        .then(size * ranks)
        .when(call.is_in([*_OF_WHOLE, "allreduce"]))
        .then(size)
    )
    factor = (
        pl.when(call == "allreduce")
        .then(2 * (ranks - 1) / ranks)
        .when(call.is_in(_OF_PARTS))
        .then((ranks - 1) / ranks)
        .when(call.is_in(_OF_WHOLE))
        .then(1.0)
    )
    return rows.with_columns(
        **{
            f"{best}{name}_bytes_per_s": share(moved * NS_PER_S, duration)
            for best, duration in (("", "median_ns"), ("best_", "min_ns"))
            for name, moved in (("algorithm", whole), ("bus", whole * factor))
        }
    )


COMMUNICATION_TABLE = _define(
    _build_communication,
    name="communication",
    title="Communication by call and size",
    columns=(
        Column(
            "size_bytes",
            pl.Int64,
            "message size that NCCL recorded: one rank's part; null where not recorded",
        ),
        Column("rank_count", pl.Int64, "ranks of the communicator; null where not recorded"),
        *TIME_COLUMNS,
        Column("algorithm_bytes_per_s", pl.Float64, "bytes of the call over the median duration"),
        Column("bus_bytes_per_s", pl.Float64, "bytes that a link transfers for it, over the median duration"),
        Column("best_algorithm_bytes_per_s", pl.Float64, "bytes of the call over the shortest duration"),
        Column(
            "best_bus_bytes_per_s",
            pl.Float64,
            "bytes that a link transfers for it, over the shortest duration",
        ),
        Column("call", pl.String, 'name of the NCCL call; "unknown" where not recorded'),
    ),
    caption=(
        "Durations of communication kernels, summed; they include waiting for late ranks. Bandwidths by the "
        "median are those that the program achieved, bandwidths by the shortest duration come closest to "
        "those of the links. They require sizes and, for collectives, the number of ranks, which NCCL "
        "records if the communicator was created during the capture."
    ),
    needs=("kernels",),
    totals=TIME_TOTALS,
    sort="total_ns",
)


_COUNTS = ("short_count", "slow_call_count", "late_count")


def _build_launches(summary: Summary, groups: Groups) -> pl.DataFrame:
    frame, times = (
        add_groups(summary.frames[name], summary, groups) for name in ("launch_aggregates", "gpu_times")
    )
    delays = describe_distributions(merge_distributions(frame, groups))
    queues = sum_by(
        frame,
        groups,
        queued_ns=pl.col("queued_ns").sum(),
        max_queue_count=pl.col("queue_most").max(),
        **{name: pl.col(name).sum() for name in _COUNTS},
    )
    return join_by(
        join_by(delays, queues, groups), sum_by(times, groups, span_ns=pl.col("span_ns").sum()), groups
    ).with_columns(mean_queue_count=share("queued_ns", "span_ns"))


LAUNCH_TABLE = _define(
    _build_launches,
    order=["_order"],
    of_processes=True,
    name="launches",
    title="Launches",
    columns=(
        Column("count", pl.Int64, "kernels and graphs with a known launch"),
        Column("mean_ns", pl.Float64, "mean delay from the start of the call to the start of the kernel"),
        Column("median_ns", pl.Float64, "median delay"),
        Column("min_ns", pl.Int64, "shortest delay"),
        Column("max_ns", pl.Int64, "longest delay"),
        Column(
            "mean_queue_count", pl.Float64, "kernels that are launched and not finished, mean over the span"
        ),
        Column("max_queue_count", pl.Int64, "kernels that are launched and not finished, at most"),
        Column("short_count", pl.Int64, "kernels shorter than the call that launched them"),
        Column(
            "slow_call_count",
            pl.Int64,
            f"kernels whose call lasted longer than {SLOW_CALL_NS // NS_PER_US} us",
        ),
        Column(
            "late_count",
            pl.Int64,
            f"kernels that started later than {LATE_NS // NS_PER_US} us after the call",
        ),
        Column("label", pl.String, "rank, or machine and GPU"),
    ),
    caption=(
        "From the start of the call that launched a kernel (or a graph) to its start. Long delays and a "
        "full queue: the CPU is ahead of the GPU, as it should be; short delays and an empty queue: the GPU "
        "waits for the CPU. The mean queue is over the span."
    ),
    needs=("api_calls",),
    totals=("count", *_COUNTS),
    empty="no kernel has a known launch, or the clock of its GPU is off (`nsys-pp check`)",
)


_CAUSES = {
    "edges": "nothing before, or nothing after",
    "host_late": "launched too late",
    "kernel_wait": "from kernel to kernel",
    "other": "launched in time, but waited",
    "unknown": "unknown launch, or the clock of the GPU is off",
}


def _build_idle(summary: Summary, groups: Groups) -> pl.DataFrame:
    frame = add_groups(summary.frames["idle_times"], summary, groups)
    spans = sum_by(
        add_groups(summary.frames["gpu_times"], summary, groups),
        [*dict.fromkeys(["process", *groups])],
        span_ns=pl.col("span_ns").sum(),
    )
    by_stream = [*groups, "stream_id"]
    own_spans = join_by(frame.select("process", *by_stream).unique(), spans, ["process", *groups])
    whole = sum_by(own_spans, by_stream, span_ns=pl.col("span_ns").sum())
    rows = sum_by(
        frame,
        [*by_stream, "cause"],
        count=pl.col("count").sum(),
        total_ns=pl.col("total_ns").sum(),
        max_ns=pl.col("most_ns").max(),
    )
    where = pl.when(pl.col("stream_id").is_null()).then(pl.lit("device"))
    return join_by(rows, whole, by_stream).with_columns(
        pl.col("cause").cast(pl.String).replace(_CAUSES),
        fraction=share("total_ns", "span_ns"),
        mean_ns=share("total_ns", "count"),
        where=where.otherwise(pl.format("stream {}", "stream_id")),
        _stream=pl.col("stream_id").fill_null(-1),
    )


IDLE_TABLE = _define(
    _build_idle,
    order=["_stream"],
    name="idle",
    title="Idle time of GPUs",
    columns=(
        Column("where", pl.String, "the GPU as a whole, or one of its streams", is_group=True),
        Column("count", pl.Int64, "number of gaps"),
        Column("total_ns", pl.Int64, "sum of their lengths"),
        Column("fraction", pl.Float64, "share of the span of the GPUs that have such a stream"),
        Column("mean_ns", pl.Float64, "mean length"),
        Column("max_ns", pl.Int64, "greatest length"),
        Column("cause", pl.String, "reason why nothing ran"),
    ),
    caption=(
        "Gaps in which a GPU, or a stream of it, ran nothing; streams with the same number are summed. "
        "Launched too late:"
        " the call began after the gap had begun; from kernel to kernel: below"
        f" {KERNEL_WAIT_NS} ns; waited: for a stream, an event or another process."
    ),
    needs=("kernels", "copies", "sets", "graphs"),
    sort="total_ns",
)


_COUNTS_MEMORY = ("allocation_count", "free_count", "allocated_bytes", "freed_bytes")


def _build_memory(summary: Summary, groups: Groups) -> pl.DataFrame:
    by_kind = [*groups, "kind"]
    name = pl.coalesce(
        pl.col("job").cast(pl.String), pl.col("name").cast(pl.String), pl.lit("outside all ranges")
    )
    frame = add_groups(summary.frames["memory_aggregates"], summary, groups).with_columns(name=_INDENT + name)
    sums = {name: pl.col(name).sum() for name in _COUNTS_MEMORY}
    increased = {"increased_bytes": (pl.col("allocated_bytes") - pl.col("freed_bytes")).sum()}
    callers = sum_by(frame, [*by_kind, "name"], **sums, **increased)
    of_jobs = add_groups(summary.frames["job_memory_peaks"], summary, groups).with_columns(
        name=_INDENT + pl.col("job").cast(pl.String)
    )
    of_jobs = sum_by(of_jobs, [*by_kind, "name"], peak_bytes=pl.col("peak_bytes").max())
    callers = callers.join(
        of_jobs, on=[*by_kind, "name"], how="full", coalesce=True, nulls_equal=True
    ).with_columns(pl.col(*_COUNTS_MEMORY, "increased_bytes").fill_null(0), is_caller=pl.lit(True))
    peaks = sum_by(
        add_groups(summary.frames["memory_peaks"], summary, groups),
        by_kind,
        peak_bytes=pl.col("peak_bytes").max(),
    )
    kinds = (
        sum_by(frame, by_kind, **sums, **increased)
        .join(peaks, on=by_kind, how="full", coalesce=True, nulls_equal=True)
        .with_columns(is_caller=pl.lit(False), name=pl.lit("all"))
    )
    return pl.concat([kinds, callers], how="diagonal")


MEMORY_TABLE = _define(
    _build_memory,
    order=["kind", "is_caller"],
    name="memory",
    title="Memory",
    columns=(
        Column("kind", pl.String, "kind of memory", is_group=True),
        Column("allocation_count", pl.Int64, "allocations"),
        Column("free_count", pl.Int64, "releases"),
        Column("allocated_bytes", pl.Int64, "sum of the sizes of allocations"),
        Column("freed_bytes", pl.Int64, "sum of the sizes of releases"),
        Column("increased_bytes", pl.Int64, "allocated less freed"),
        Column(
            "peak_bytes",
            pl.Int64,
            "most memory in use on a single GPU, of allocations during the capture; of a job: while the "
            "host was in it",
        ),
        Column(
            "name",
            pl.String,
            "kind of the innermost job around the call, else the name of its innermost range",
        ),
    ),
    caption=(
        "Allocations and releases by CUDA itself, which frameworks keep and reuse: memory that is reserved, "
        "not used. The peak is that of the GPU with the largest one."
    ),
    needs=("gpu_memory",),
    is_nested=True,
    sort="increased_bytes",
)


def _build_devices(summary: Summary, groups: Groups) -> pl.DataFrame:
    times = add_groups(summary.frames["gpu_times"], summary, groups)
    hosts = add_groups(repeat_hosts(summary), summary, groups)
    names = ["span_ns", "kernel_ns", "compute_ns", "busy_ns"]
    gpu = sum_by(times, groups, **{name: pl.col(name).sum() for name in names})
    is_cpu = pl.col("activity") == "cpu"
    host = sum_by(
        hosts,
        groups,
        host_ns=pl.col("union_ns").filter(pl.col("activity") == "span").sum(),
        cpu_ns=pl.when(is_cpu.any()).then(pl.col("union_ns").filter(is_cpu).sum()),
    )
    return gpu.join(host, on=groups, how="full", coalesce=True, nulls_equal=True).with_columns(
        span_ns=pl.coalesce("span_ns", "host_ns"),
        cpu_fraction=share("cpu_ns", "host_ns"),
        kernel_fraction=share("kernel_ns", "span_ns"),
        compute_fraction=share("compute_ns", "span_ns"),
        busy_fraction=share("busy_ns", "span_ns"),
    )


DEVICE_TABLE = _define(
    _build_devices,
    order=["_order"],
    of_processes=True,
    name="device",
    title="Devices",
    columns=(
        Column("span_ns", pl.Int64, "span of the GPU's operations; of the process where it used no GPU"),
        Column("cpu_fraction", pl.Float64, "CPU time of the process over its span on the CPU; may exceed 1"),
        Column("kernel_fraction", pl.Float64, "share of the span in which a kernel ran"),
        Column(
            "compute_fraction", pl.Float64, "share of the span in which a kernel other than communication ran"
        ),
        Column(
            "busy_fraction",
            pl.Float64,
            "share of the span in which any operation ran, copies and sets included",
        ),
        Column("label", pl.String, "rank, or machine and GPU"),
    ),
    caption=(
        "Share of the span in which a GPU ran a kernel, a computing kernel, or any operation; and CPU time "
        "of the process over its span, which may exceed 100 %."
    ),
    needs=("kernels", "copies", "sets", "graphs", "thread_switches"),
)


_STEP, _OUTSIDE = "step", "outside phases"
_ORDER = [*dict.fromkeys([_STEP, "data", *JOB_KINDS]), _OUTSIDE]


def _build_model(summary: Summary, groups: Groups) -> pl.DataFrame:
    items = summary.frames["item_aggregates"].filter(pl.col("item") == "phase")
    is_step, on_gpu = pl.col("name") == _STEP, pl.col("measure") == "gpu"
    # Phases outside the steps are left out, and so are those on a GPU of the process that has no steps.
    keys = ["report", "process_key"]
    items = items.join(summary.processes.select("process", *keys), on="process", maintain_order="left")
    has_steps, has_own = is_step.any().over(keys), (is_step & on_gpu).any().over("process")
    items = (
        items.with_columns(
            is_timed=(is_step & ~on_gpu).any().over(*keys, "step"), phase=pl.col("name").cast(pl.String)
        )
        .filter(~has_steps | (pl.col("step").is_not_null() & (has_own | ~on_gpu)))
        .drop(keys)
    )
    named = add_groups(items, summary, groups)
    # Steps of a process may have no range on the CPU: its phases there are in no step of the other processes.
    named = named.filter(on_gpu | pl.col("is_timed") | ~pl.col("is_timed").any())
    rows = describe_items(named, summary, groups, keys=["phase"])
    is_step = pl.col("phase") == _STEP
    # Without phases, a step that covers the whole capture holds no information.
    rows = rows.filter((~is_step | pl.col("host_total_ns").is_not_null()).any())
    rows = pl.concat([rows.filter(pl.col("phase") != ALL_JOBS), _find_outside(rows, groups)], how="diagonal")
    for side in ("host", "gpu"):
        total = pl.col(f"{side}_total_ns")
        whole = over(total.filter(is_step).sum(), groups)
        rows = rows.with_columns(share(total, whole).alias(f"{side}_fraction"))
    order = pl.col("phase").replace_strict(_ORDER, range(len(_ORDER)), return_dtype=pl.Int64)
    name = pl.when(is_step).then("phase").otherwise(_INDENT + pl.col("phase"))
    return rows.with_columns(name.alias("phase"), _order=order)


def _find_outside(rows: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    left = {
        f"{side}_total_ns": pl.col(f"{side}_total_ns").filter(pl.col("phase") == _STEP).first()
        - pl.col(f"{side}_total_ns").filter(pl.col("phase") == ALL_JOBS).sum()
        for side in ("host", "gpu")
    }
    return (
        sum_by(rows.filter(over((pl.col("phase") != _STEP).any(), groups)), groups, **left)
        .with_columns(phase=pl.lit(_OUTSIDE))
        .filter(pl.any_horizontal(pl.col(name).is_not_null() for name in left))
    )


MODEL_TABLE = _define(
    _build_model,
    order=["_order"],
    name="model",
    title="Phases of training",
    columns=(
        *item_columns("share of the time of steps on the CPU", "share of the GPU time of steps"),
        Column("phase", pl.String, "phase of the step"),
    ),
    caption=(
        "Times of phases on the CPU, and durations of the operations that they launched, summed. A phase "
        "inside another counts in both; outside phases: steps less all outermost phases. Phases outside of "
        "steps are left out."
    ),
    needs=("ranges",),
    is_fixed=True,
    is_nested=True,
)


def _build_families(summary: Summary, groups: Groups) -> pl.DataFrame:
    ops = add_groups(classify_operations(summary.frames["op_aggregates"]), summary, groups)
    families = _sum_rows(ops, summary, groups, ["family"]).with_columns(folded_name=pl.lit(None, pl.String))
    rows = pl.concat([families, _sum_rows(ops, summary, groups, ["family", "folded_name"])], how="diagonal")
    whole = over(pl.col("total_ns").filter(pl.col("folded_name").is_null()).sum(), groups)
    is_kernel = pl.col("folded_name").is_not_null()
    # families by total, and the kernels of each below it
    return (
        rows.with_columns(
            fraction=share("total_ns", whole),
            name=pl.when(is_kernel)
            .then(_INDENT + pl.col("folded_name"))
            .otherwise(pl.col("family").cast(pl.String)),
        )
        .sort(
            pl.col("total_ns").filter(~is_kernel).first().over(*groups, "family"),
            "family",
            is_kernel,
            "total_ns",
            "folded_name",
            descending=[True, False, False, True, False],
            nulls_last=True,
        )
        .with_row_index("_order")
    )


def _sum_rows(
    ops: pl.DataFrame, summary: Summary, groups: Sequence[str], keys: Sequence[str]
) -> pl.DataFrame:
    """Sum operations by group and keys: times, shares of tensor cores, and library."""
    by = [*groups, *keys]
    total = pl.col("total")
    shown = ops.group_by(by).agg(
        duration=total.sum(),
        **sum_tensor_cores(total),
        library=pl.when(pl.col("library").n_unique() == 1).then(pl.col("library").first()),
    )
    rows = (
        describe_distributions(merge_distributions(ops, by))
        .join(shown, on=by, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(**share_tensor_cores(pl.col("duration")))
    )
    return add_ranks(rows, ops, summary, groups=groups, keys=keys, value="total")


FAMILY_TABLE = _define(
    _build_families,
    order=["_order"],
    name="families",
    title="Families of kernels",
    columns=(
        *TIME_COLUMNS,
        *TENSOR_CORE_COLUMNS,
        Column("library", pl.String, "library of the kernels; null: several, or unknown", priority=3),
        Column(
            "name", pl.String, "family; below it its kernels, without template arguments, sizes and hashes"
        ),
    ),
    caption=(
        "Durations of operations, summed, by families that the names of kernels show; unknown: no rule "
        "matches the name. Tensor cores: share of the durations of products, by names."
    ),
    needs=("kernels", "copies", "sets", "graphs"),
    sort="total_ns",
    is_nested=True,
)


def _build_operators(summary: Summary, groups: Groups) -> pl.DataFrame:
    items = summary.frames["item_aggregates"].filter(pl.col("item") == "operator")
    named = add_groups(items, summary, groups).with_columns(
        operator=pl.col("name").cast(pl.String),
        inner=pl.col("inner").cast(pl.String),
        kernel=pl.col("kernel").cast(pl.String),
    )
    rows = describe_items(named, summary, groups, keys=["operator", "inner", "kernel"])
    is_inner, is_kernel = pl.col("inner").is_not_null(), pl.col("kernel").is_not_null()
    is_top = ~is_inner & ~is_kernel
    of_operator, of_inner = [*groups, "operator"], [*groups, "operator", "inner"]
    for side in ("host", "gpu"):
        total = pl.col(f"{side}_total_ns")
        whole = over(total.filter(is_top).sum(), groups)
        operator = total.filter(is_top).first().over(of_operator)
        inner = total.filter(~is_kernel).first().over(of_inner)
        parent = pl.when(is_top).then(whole).when(is_kernel).then(inner).otherwise(operator)
        rows = rows.with_columns(share(total, parent).alias(f"{side}_fraction"))
    value = pl.col("host_total_ns")
    return (
        rows.with_columns(
            name=pl.when(is_kernel)
            .then(2 * _INDENT + pl.col("kernel"))
            .when(is_inner)
            .then(_INDENT + pl.col("inner"))
            .otherwise("operator")
        )
        .sort(
            value.filter(is_top).first().over(of_operator),
            "operator",
            # own kernels come first: below an inner operator they would look like kernels of that one
            is_inner,
            value.filter(~is_kernel).first().over(of_inner),
            "inner",
            is_kernel,
            "gpu_total_ns",
            "kernel",
            descending=[True, False, False, True, False, False, True, False],
            nulls_last=True,
        )
        .with_row_index("_order")
    )


OPERATOR_TABLE = _define(
    _build_operators,
    order=["_order"],
    name="operators",
    title="Operators of the framework",
    columns=(
        *item_columns(
            "share of all operators on the CPU, or of the operator around it",
            "share of all operators on GPUs, or of the operator around it",
        ),
        Column(
            "name",
            pl.String,
            "operator; below it its kernels, then the operators inside it with theirs",
            is_symbol=True,
        ),
    ),
    caption=(
        "Times of operators on the CPU, and durations of the operations that they launched, summed. Below "
        "an operator: the kernels that it launched itself, and operators directly inside it; their shares "
        "are of the row that they are part of."
    ),
    needs=("ranges",),
    sort="host_total_ns",
    is_nested=True,
)
