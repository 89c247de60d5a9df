"""Sums of a report by item: ranges, operators, phases, operations, calls, collectives, memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.times import DEVICE, step_on_device, step_on_host
from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    gather,
    gather_rows,
    has_value,
    index_rows,
    is_among,
    keep_rows,
    list_distinct,
    numbers,
    pack,
    select_rows,
)
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.intervals import find_innermost, has_marked_line
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.names import list_names
from nsys_pp.arrays.search import find_last, find_rows, number_keys, running_maximum, sort_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.aggregates import (
    ALL_JOBS,
    CALL_AGGREGATES,
    CALL_API,
    COLLECTIVE_AGGREGATES,
    COPY_SIZES,
    ITEM_AGGREGATES,
    JOB_MEMORY_PEAKS,
    MEMORY_AGGREGATES,
    MEMORY_PEAKS,
    OP_AGGREGATES,
)
from nsys_pp.frames.conform import NAME, conform, conform_part
from nsys_pp.frames.report import COUNTERS, KERNEL_KINDS, OpDetails
from nsys_pp.frames.training import JOB_KINDS


def sum_instances(instances: pl.DataFrame, *, item: str, measure: str) -> pl.DataFrame:
    """Add up instances of one kind of item by one measure.

    Args:
        instances: `value_ns`, and any columns of `ITEM_AGGREGATES` except item, measure and `DISTRIBUTION`.
        item: As in `ITEM_AGGREGATES`.
        measure: As in `ITEM_AGGREGATES`.

    Returns:
        `ITEM_AGGREGATES`: one row per combination of values, with counts added up. Missing columns are null.
            Empty in, empty out.
    """
    counts = [column for column in ("call_count",) if column in instances.columns]
    keys = [column for column in instances.columns if column not in (*counts, "value_ns")]
    sums = build_distributions(instances, keys, "value_ns", counts=counts)
    return sums.with_columns(
        item=pl.lit(item, ITEM_AGGREGATES["item"]), measure=pl.lit(measure, ITEM_AGGREGATES["measure"])
    ).pipe(conform_part, ITEM_AGGREGATES)


# Limit of distinct names; above it, numbers in names are folded: "step 12" becomes "step #".
MOST_NAMES = 10_000
_NUMBER = r"[0-9]+([^0-9A-Za-z]|$)"  # not a digit within a word, as in `conv2d`


def sum_ranges(
    ranges: pl.DataFrame, projections: pl.DataFrame, steps: pl.DataFrame, *, most_names: int = MOST_NAMES
) -> pl.DataFrame:
    """Add up ranges by style, domain and name, as `nvtx_sum` and `nvtx_gpu_proj_sum` of `nsys stats` do.

    Args:
        ranges: `RANGES`, all domains.
        projections: `PROJECTIONS` of them, one row per range and device; a range on several
            devices counts on each.
        steps: `STEPS`.
        most_names: Maximum number of distinct names; above it, each number in a name is replaced by "#".

    Returns:
        `ITEM_AGGREGATES` of item "range", all measures. Open ranges end at the end of the capture. Empty in,
        empty out.
    """
    instances = ranges[["process_key"]].hstack(
        [
            step_on_host(ranges, steps),
            ranges["domain"],
            ranges["kind"].alias("style"),
            _fold(ranges["name"], most_names).alias("name"),
        ]
    )
    # Ranges are in order of range_id, and projections are of some of them.
    row = np.searchsorted(numbers(ranges["range_id"]), numbers(projections["range_id"]))
    projected = projections[["device_id", "call_count"]].hstack(index_rows(instances, row))
    measured = {
        "host": (instances, ranges["end_ns"] - ranges["start_ns"]),
        "span": (projected, projections["gpu_end_ns"] - projections["gpu_start_ns"]),
        "gpu": (projected, projections["total_ns"]),
    }
    return pl.concat(
        sum_instances(rows.hstack([values.alias("value_ns")]), item="range", measure=measure)
        for measure, (rows, values) in measured.items()
    )


def _fold(names: pl.Series, most_names: int) -> pl.Series:
    """Replace numbers in names by "#" if there are more than `most_names` names."""
    distinct = list_names(names)
    if distinct.texts.count() <= most_names:
        return names
    return gather(distinct.texts.str.replace_all(_NUMBER, "#${1}").cast(NAME), distinct.row)


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
        `ITEM_AGGREGATES` of item "phase", measures "host" and "gpu". "host" counts a job or step once,
        however many devices it reached; "gpu" of a step adds up the operations that began in it. Calls are
        not counted.
    """
    on_host = numbers(step_on_host(jobs, steps, time="host_start_ns"))
    step = numbers(jobs["step"])
    jobs = jobs.with_columns(as_numbers("step", np.where(step == NEVER, on_host, step)))
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
    chosen = {
        measure: index_rows(jobs[keys].hstack([values.alias("value_ns")]), row[at]).hstack([names[phase[at]]])
        for measure, (at, keys, values) in measured.items()
    }
    return [sum_instances(rows, item="phase", measure=measure) for measure, rows in chosen.items()]


def _sum_steps(gpu_ops: pl.DataFrame, is_counted: Bools, steps: pl.DataFrame) -> list[pl.DataFrame]:
    name = pl.lit("step", NAME)
    ops = keep_rows(gpu_ops, is_counted)
    on_device = steps.select(*_STEP, name=name).join(
        ops.select(*DEVICE, step=step_on_device(ops, steps), value_ns=pl.col("end_ns") - pl.col("start_ns"))
        .group_by(_STEP)
        .agg(pl.col("value_ns").sum()),
        on=_STEP,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    # that of a range which reached several devices once
    on_host = steps.unique(
        ["process_key", "step", "host_start_ns", "host_end_ns"], maintain_order=True
    ).select("process_key", "step", value_ns=pl.col("host_end_ns") - pl.col("host_start_ns"))
    measured = {
        "host": on_host.with_columns(name=name),
        "gpu": on_device.with_columns(pl.col("value_ns").fill_null(0)),
    }
    return [sum_instances(rows, item="phase", measure=measure) for measure, rows in measured.items()]


def _is_inside_its_kind(jobs: pl.DataFrame) -> Bools:
    """Return the mask of jobs inside a job of the same kind, on any level."""
    ids, outer_ids, kinds = (numbers(jobs[name]) for name in ("range_id", "outer_id", "kind"))
    first, number = number_keys(ids)
    kind = kinds[first]
    outer = find_rows(ids[first], outer_ids[first])
    is_inside = np.zeros(len(first), dtype=np.bool_)
    for code in list_distinct(kind):
        is_inside |= (kind == code) & ((outer >= 0) & has_marked_line(outer, kind == code)[outer])
    return is_inside[number]


_CALL = ("thread_key", "start_ns", "end_ns")


def sum_operators(
    ranges: pl.DataFrame,
    operators: pl.DataFrame,
    *,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    steps: pl.DataFrame,
) -> pl.DataFrame:
    """Add up operators: the outermost ones, the operators directly inside them, and their GPU operations.

    An operation belongs to the operators around the call that launched it, on the thread of the call; if
    several calls did, to the earliest one. Operations of all kinds count.

    Args:
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS`; rows without a name are not operators. Ranges that end on another
            thread are skipped.
        gpu_ops: `GPU_OPS`, in order of op_id.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.
        steps: `STEPS`.

    Returns:
        `ITEM_AGGREGATES` of item "operator", measures "host" and "gpu". Rows with a `kernel` hold single
        operations, each in one row: `inner` is the inner operator around its call, null without one.
        Empty in, empty out.
    """
    named = keep_rows(operators, has_value(operators["name"]))
    instances = _list_instances(ranges, numbers(named["range_id"]))
    if not len(instances.row):
        return ITEM_AGGREGATES.to_frame()
    is_contained = _is_contained(instances)
    outer, rest = select_rows(instances, ~is_contained), select_rows(instances, is_contained)
    inner = select_rows(rest, ~_is_contained(rest))
    outer_name, inner_name = (gather(named["name"], level.named) for level in (outer, inner))

    around = _find_around(inner, outer)
    names = ([outer_name.alias("name")], [gather(outer_name, around), inner_name.alias("inner")])
    levels, parts = [], []
    for level, own in zip((outer, inner), names, strict=True):
        chosen = index_rows(ranges[["process_key", "start_ns"]], level.row)
        facts = chosen[["process_key"]].hstack([step_on_host(chosen, steps), *own])
        levels.append(facts)
        length = pl.Series("value_ns", level.end - level.start)
        parts.append(sum_instances(facts.hstack([length]), item="operator", measure="host"))
    ops = _list_ops(gpu_ops, api_calls, launches)
    in_outer, in_inner = _find_around(ops, outer), _find_around(ops, inner)
    is_inside = in_outer >= 0
    ops, in_outer, in_inner = select_rows(ops, is_inside), in_outer[is_inside], in_inner[is_inside]
    facts = index_rows(gpu_ops[["process_key", "device_id", "name", "start_ns"]], ops.row)
    parts += [
        _sum_gpu(level, ops, facts["device_id"], at)
        for level, at in zip(levels, (in_outer, in_inner), strict=True)
    ]
    kernels = facts[["process_key", "device_id"]].hstack(
        [
            step_on_device(facts, steps),
            gather(outer_name, in_outer).alias("name"),
            gather_rows(inner_name.to_frame(), ["name"], in_inner)["name"].alias("inner"),
            facts["name"].alias("kernel"),
            pl.Series("value_ns", ops.duration),
        ]
    )
    return pl.concat([*parts, sum_instances(kernels, item="operator", measure="gpu")])


class _Instances(Struct, frozen=True):
    """Operators of ranges, by thread and start, longest first.

    Of equal ranges, the first is the outer range.
    """

    row: Int64s  # of `RANGES`
    named: Int64s  # row of the named operators
    thread: Int64s
    start: Int64s
    end: Int64s


class _Ops(Struct, frozen=True):
    # with a known call
    row: Int64s  # of `GPU_OPS`
    call: Int64s  # row of `API_CALLS`
    duration: Int64s
    thread: Int64s  # of the call
    start: Int64s
    end: Int64s


def _list_instances(ranges: pl.DataFrame, range_id: Int64s) -> _Instances:
    # operators that end on their thread; `range_id`: of the operators
    named = find_rows(range_id, numbers(ranges["range_id"]))
    row = np.flatnonzero((named >= 0) & ~has_value(ranges["end_thread_key"]))
    thread, start, end = (numbers(ranges[name])[row] for name in _CALL)
    return select_rows(_Instances(row, named[row], thread, start, end), sort_rows(thread, start, -end))


def _sum_gpu(facts: pl.DataFrame, ops: _Ops, device: pl.Series, at: Int64s) -> pl.DataFrame:
    """Add up the operations of each instance on each device; instances without operations are dropped.

    Args:
        facts: process_key, step and names of the instances.
        ops: Operations.
        device: Device of each operation.
        at: Row of the instance around the call of each operation; -1 without one.
    """
    inside = np.flatnonzero(at >= 0)
    instance, call = at[inside], ops.call[inside]
    first, number = number_keys(pack(instance, numbers(device)[inside]))
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, number, ops.duration[inside])
    distinct, _ = number_keys(pack(number.astype(np.int64), call))
    columns = [
        gather(device, inside[first]),
        pl.Series("value_ns", total),
        pl.Series("call_count", np.bincount(number[distinct], minlength=len(first)), dtype=pl.Int64),
    ]
    return sum_instances(index_rows(facts, instance[first]).hstack(columns), item="operator", measure="gpu")


def _list_ops(gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> _Ops:
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    row = np.flatnonzero(call >= 0)
    call = call[row]
    start, end = (numbers(gpu_ops[name])[row] for name in ("start_ns", "end_ns"))
    return _Ops(row, call, end - start, *(numbers(api_calls[name])[call] for name in _CALL))


def _is_contained(ranges: _Instances) -> Bools:
    thread, end = ranges.thread, ranges.end
    is_contained = np.zeros(len(end), dtype=np.bool_)
    if len(end):
        is_same = thread[1:] == thread[:-1]
        reached = running_maximum(np.cumsum(np.append(False, ~is_same)), end)
        is_contained[1:] = is_same & (reached[:-1] >= end[1:])
    return is_contained


def _find_around(items: _Instances | _Ops, ranges: _Instances) -> Int64s:
    """Find the range around each item, on its thread; of two crossing ranges, the later one.

    As no range lies inside another, the last range to start is also the last to end: if it does not
    contain the item, no range does.

    Args:
        items: Ranges, or operations with their calls.
        ranges: Ranges of which none lies inside another.

    Returns:
        Row of `ranges`, -1 without any.
    """
    at = find_last(items.thread, items.start, ranges.thread, ranges.start)
    if len(ranges.end):
        at[items.end > ranges.end[at]] = -1
    return at


def sum_items(
    *,
    ranges: pl.DataFrame,
    projections: pl.DataFrame,
    operators: pl.DataFrame,
    jobs: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    steps: pl.DataFrame,
    kinds: Sequence[str] = KERNEL_KINDS,
    most_names: int = MOST_NAMES,
) -> pl.DataFrame:
    """Add up the times of NVTX ranges, operators and phases, by name.

    Ranges, jobs and operators are in the step in which they start on the CPU, in all measures; operations on
    a GPU are in the step in which they start on their device. Items of one kind may lie inside each other
    (ranges do), and all three kinds overlap: times of different rows must not be added up.

    Args:
        ranges: `RANGES`.
        projections: `PROJECTIONS`, one row per range and device.
        operators: `NAMED_OPERATORS`.
        jobs: `JOBS`.
        gpu_ops: `GPU_OPS`, in order of op_id.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.
        steps: `STEPS`.
        kinds: Kinds of operation that count in `projections`, `jobs` and steps.
        most_names: Limit of distinct names of ranges.

    Returns:
        `ITEM_AGGREGATES`. Empty in, empty out.
    """
    return pl.concat(
        [
            sum_ranges(ranges, projections, steps, most_names=most_names),
            sum_operators(
                ranges, operators, gpu_ops=gpu_ops, api_calls=api_calls, launches=launches, steps=steps
            ),
            sum_phases(jobs, gpu_ops, steps, kinds=kinds),
        ]
    ).pipe(conform, ITEM_AGGREGATES)


def sum_ops(gpu_ops: pl.DataFrame, op_details: OpDetails, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up durations of operations by name.

    Args:
        gpu_ops: `GPU_OPS`.
        op_details: With the demangled names of kernels; if empty, short names are used.
        steps: `STEPS`.

    Returns:
        `OP_AGGREGATES`, in order of the first operation of each row. Kernels of one short name that differ in
        template arguments or parameters are rows of their own, as in `cuda_gpu_kern_sum` of `nsys stats`.
        Empty in, empty out.
    """
    name, full_name = gpu_ops["name"], op_details.gather("full_name", gpu_ops["op_id"])
    is_short = ~has_value(full_name)
    if is_short.any():
        full_name = name if is_short.all() else name.zip_with(pl.Series(is_short), full_name)
    ops = gpu_ops[[*DEVICE, "kind", "is_communication"]].hstack(
        [
            step_on_device(gpu_ops, steps),
            full_name.alias("name"),
            gpu_ops["name"].alias("base_name"),
            (gpu_ops["end_ns"] - gpu_ops["start_ns"]).alias("duration_ns"),
        ]
    )
    keys = [*_STEP, "kind", "name", "base_name", "is_communication"]
    return conform(build_distributions(ops, keys, "duration_ns"), OP_AGGREGATES)


def sum_copy_sizes(gpu_ops: pl.DataFrame, op_details: OpDetails, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up bytes of copies and sets by name.

    Args:
        gpu_ops: `GPU_OPS`.
        op_details: If empty, no size is known.
        steps: `STEPS`.

    Returns:
        `COPY_SIZES`, in order of the first operation of each row; operations without a recorded size are
        skipped. Empty in, empty out.
    """
    size = op_details.gather("size_bytes", gpu_ops["op_id"]).alias("size_bytes")
    is_sized = has_value(size)
    if not is_sized.any():
        return COPY_SIZES.to_frame()
    sized = keep_rows(gpu_ops.hstack([size]), is_sized)
    ops = sized.hstack([step_on_device(sized, steps)])
    return conform(build_distributions(ops, [*_STEP, "kind", "name"], "size_bytes"), COPY_SIZES)


def sum_calls(api_calls: pl.DataFrame, os_calls: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up durations of calls by name.

    Args:
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        steps: `STEPS`.

    Returns:
        `CALL_AGGREGATES`: CUDA calls first, then calls of the operating system, each in order of the first
            call of a
        row. A call inside another one counts in both rows. Empty in, empty out.
    """
    return pl.concat([_sum(api_calls, "cuda", steps), _sum(os_calls, "os", steps)])


def _sum(calls: pl.DataFrame, api: str, steps: pl.DataFrame) -> pl.DataFrame:
    duration = (calls["end_ns"] - calls["start_ns"]).alias("duration_ns")
    timed = calls[["process_key", "name"]].hstack([step_on_host(calls, steps), duration])
    sums = build_distributions(timed, ["process_key", "step", "name"], "duration_ns")
    of_all = pl.Series("api", [api], dtype=CALL_API).new_from_index(0, len(sums))
    return conform(sums.hstack([of_all]), CALL_AGGREGATES)


# "AllReduce" in ncclDevKernel_AllReduce_Sum_bf16_RING_LL, ncclKernel_AllReduce_RING_LL_Sum_half and
# ncclAllReduceRingLLKernel_sum_f16; a name with several has them in this order.
_NAMED_CALL = (
    r"(?i:nccl|rccl|hccl)\w*?"
    r"(AllReduce|AllGather|AllToAll|ReduceScatter|SendRecv|Broadcast|Reduce|Gather|Scatter)"
)


def sum_collectives(
    gpu_ops: pl.DataFrame, requests: pl.DataFrame, nccl_calls: pl.DataFrame, steps: pl.DataFrame
) -> pl.DataFrame:
    """Add up durations of the kernels of communication by call, size, and size of the communicator.

    A kernel counts once. A kernel of several requests (a group of NCCL) has the sum of their bytes, and as
    call their common name; requests with different names are joined by "+" in alphabetical order, except
    sends with receives, which are "SendRecv". Without requests the call is parsed from the name of the
    kernel, and size and communicator are null.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        requests: `REQUESTS`.
        nccl_calls: `NCCL_CALLS`. The size of a communicator is known if any process of the report created it.
        steps: `STEPS`.

    Returns:
        `COLLECTIVE_AGGREGATES`, in order of the first kernel of each row. Empty in, empty out.
    """
    is_kernel = gpu_ops["is_communication"].to_numpy() & is_among(gpu_ops["kind"], KERNEL_KINDS)
    kernels = keep_rows(gpu_ops, is_kernel)
    if kernels.is_empty():
        return COLLECTIVE_AGGREGATES.to_frame()
    op_id = numbers(kernels["op_id"])
    requested = _describe_requests(
        keep_rows(requests, np.isin(numbers(requests["op_id"]), op_id)), nccl_calls
    )
    described = gather_rows(
        requested, ["call", "size_bytes", "rank_count"], find_rows(numbers(requested["op_id"]), op_id)
    )
    call = described["call"]
    if call.null_count():
        distinct = list_names(kernels["name"])
        named = gather(distinct.texts.str.extract(_NAMED_CALL), distinct.row)
        call = call.zip_with(pl.Series(has_value(call)), named)
    columns = [
        step_on_device(kernels, steps),
        call.alias("call"),
        described["size_bytes"],
        described["rank_count"],
        (kernels["end_ns"] - kernels["start_ns"]).alias("duration_ns"),
    ]
    keys = ["process_key", "device_id", "step", "call", "size_bytes", "rank_count"]
    timed = kernels[keys[:2]].hstack(columns)
    return conform(build_distributions(timed, keys, "duration_ns"), COLLECTIVE_AGGREGATES)


def _describe_requests(requests: pl.DataFrame, nccl_calls: pl.DataFrame) -> pl.DataFrame:
    """Describe each operation by its requests: op_id, call, size_bytes, rank_count.

    Null where requests disagree.
    """
    sizes = nccl_calls.drop_nulls("rank_count").group_by("communicator").agg(pl.col("rank_count").max())
    sized = requests.join(sizes, on="communicator", how="left", maintain_order="left")
    op_id = numbers(sized["op_id"])
    if (op_id[1:] != op_id[:-1]).all():  # requests of an operation follow each other, and most are alone
        return sized
    is_same = pl.col("rank_count").n_unique() == 1
    return sized.group_by("op_id").agg(
        # NCCL's name of the kernel that sends and receives
        pl.col("call").unique().sort().str.join("+").replace("Recv+Send", "SendRecv"),
        pl.when(pl.col("size_bytes").is_not_null().all()).then(pl.col("size_bytes").sum()),
        pl.when(is_same).then(pl.col("rank_count").first()),
    )


_SERIES = ["process_key", "device_id", "kind"]


def sum_memory(
    memory_events: pl.DataFrame,
    *,
    ranges: pl.DataFrame,
    jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    steps: pl.DataFrame,
) -> pl.DataFrame:
    """Count allocations and releases by kind of memory and by the surrounding job or range.

    The surrounding job, or else range, is the innermost one open on the thread of the call at that time. It
    is null if the call was not recorded.

    Args:
        memory_events: `MEMORY_EVENTS`.
        ranges: `RANGES`.
        jobs: `JOBS`.
        api_calls: `API_CALLS`.
        steps: `STEPS`.

    Returns:
        `MEMORY_AGGREGATES`, in order of their first events. A release has its recorded bytes, or else the
        bytes of its allocation. Empty in, empty out.
    """
    events = _match_releases(memory_events)
    keys = ["process_key", "correlation_id"]
    calls = (
        api_calls.select(*keys, "thread_key")
        .join(events.select(keys), on=keys, how="semi")
        .unique(keys, keep="first", maintain_order=True)
    )
    threads = events.select(keys).join(calls, on=keys, how="left", maintain_order="left")["thread_key"]
    jobs = jobs.select("thread_key", "name", "kind", start_ns="host_start_ns", end_ns="host_end_ns")
    job = _rows_around(threads, events["time_ns"], jobs)
    opened = _rows_around(threads, events["time_ns"], ranges)
    is_release = pl.col("is_release")
    return (
        events.with_columns(
            step=step_on_host(events, steps, time="time_ns"),
            name=jobs["name"].gather(job).zip_with(job.is_not_null(), ranges["name"].gather(opened)),
            job=jobs["kind"].gather(job),
        )
        .group_by(*_SERIES, "step", "name", "job", maintain_order=True)
        .agg(
            allocation_count=(~is_release).sum(),
            free_count=is_release.sum(),
            allocated_bytes=pl.col("size_bytes").filter(~is_release).sum(),
            freed_bytes=pl.col("size_bytes").filter(is_release).sum(),
        )
        .pipe(conform, MEMORY_AGGREGATES)
    )


def find_peaks(memory_events: pl.DataFrame, *, windows: pl.DataFrame) -> pl.DataFrame:
    """Find the peak of allocated memory in each step.

        allocated       3  8  5 | 5     | 9  0
        step                  1 |     2 |    3      peaks 8, 5, 9

    Args:
        memory_events: `MEMORY_EVENTS`.
        windows: `HOST_WINDOWS`.

    Returns:
        `MEMORY_PEAKS`: one row per device, kind of memory and step of the process (null: outside all steps),
            sorted by
        these. Empty in, empty out.
    """
    used = _add_up(_match_releases(memory_events))
    series = used.select("series", *_SERIES).unique("series", maintain_order=True)
    during = used.join_asof(
        windows.select("process_key", "step", "end_ns", time_ns="start_ns").sort("time_ns"),
        on="time_ns",
        by="process_key",
        check_sortedness=False,
    ).with_columns(step=pl.when(pl.col("time_ns") < pl.col("end_ns")).then("step"))
    before = (
        series.join(windows.select("process_key", "step", time_ns="start_ns"), on="process_key")
        .sort("time_ns")
        .join_asof(
            used.select("series", "time_ns", "used_bytes"),
            on="time_ns",
            by="series",
            check_sortedness=False,
        )
        .with_columns(pl.col("used_bytes").fill_null(0))
    )
    columns = ["series", *_SERIES, "step", "time_ns", "used_bytes"]
    return (
        pl.concat([before.select(columns), during.select(columns)])
        .sort("series", "time_ns")
        .group_by("series", *_SERIES, "step")
        .agg(peak_bytes=pl.col("used_bytes").max())
        .sort(*_SERIES, "step")
        .pipe(conform, MEMORY_PEAKS)
    )


def find_job_peaks(memory_events: pl.DataFrame, *, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the peak of allocated memory while the host was in a job, by kind of job.

        allocated       3  8  5 | 5     | 9  0
        jobs            [forward    ) [ backward     )     peaks 8, 9

    Args:
        memory_events: `MEMORY_EVENTS`.
        jobs: `JOBS`.

    Returns:
        `JOB_MEMORY_PEAKS`: one row per device, kind of memory, step and kind of job, sorted by these. A job
            counts for its device, or
        without one for all devices of its process. Empty in, empty out.
    """
    open_jobs = jobs.select(
        "process_key",
        "step",
        job="kind",
        job_device="device_id",
        start_ns="host_start_ns",
        end_ns="host_end_ns",
    )
    parts = [JOB_MEMORY_PEAKS.to_frame()]
    used = _add_up(_match_releases(memory_events))
    for (process, device, kind), series in used.partition_by(
        _SERIES, as_dict=True, maintain_order=True
    ).items():
        is_own = pl.col("job_device").is_null() | pl.col("job_device").eq_missing(pl.lit(device, pl.Int32))
        own = open_jobs.filter(pl.col("process_key") == process, is_own)
        peaks = _find_range_peaks(
            series["time_ns"].to_numpy(),
            series["used_bytes"].to_numpy(),
            own["start_ns"].to_numpy(),
            own["end_ns"].to_numpy(),
        )
        parts.append(
            own.with_columns(
                pl.lit(device, pl.Int32).alias("device_id"),
                pl.lit(kind, pl.String).alias("kind"),
                pl.Series("peak_bytes", peaks),
            ).pipe(conform, JOB_MEMORY_PEAKS)
        )
    keys = [*_SERIES, "step", "job"]
    return (
        pl.concat(parts)
        .group_by(keys)
        .agg(pl.col("peak_bytes").max())
        .sort(keys)
        .pipe(conform, JOB_MEMORY_PEAKS)
    )


def _find_range_peaks(time: Int64s, used: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Find the largest value in each interval, of values that are valid from their times on.

    0 before the first.
    """
    values = np.concatenate([[0], used, [0]])  # the last item ends the last range
    first = np.searchsorted(time, start, side="right")
    stop = np.maximum(np.searchsorted(time, end, side="left") + 1, first + 1)
    bounds = np.stack([first, stop], axis=1).reshape(-1)
    return np.asarray(np.maximum.reduceat(values, bounds)[::2]) if len(start) else first


def count_memory_in_use(memory_events: pl.DataFrame) -> pl.DataFrame:
    """Build the counters of allocated memory of each device, one per kind of memory.

    Args:
        memory_events: `MEMORY_EVENTS`.

    Returns:
        `COUNTERS` in bytes: what was allocated since the start of the capture and is not released. Empty in,
            empty out.
    """
    return (
        _add_up(_match_releases(memory_events))
        .select(
            "process_key",
            "device_id",
            name=pl.format("{} memory in use", pl.col("kind").fill_null("other")),
            unit=pl.lit("bytes"),
            time_ns="time_ns",
            value=pl.col("used_bytes").cast(pl.Float64),
        )
        .sort("name", "process_key", "device_id", "time_ns")
        .pipe(conform, COUNTERS)
    )


def _match_releases(memory_events: pl.DataFrame) -> pl.DataFrame:
    """Assign to releases the device, the kind and (if unknown) the bytes of their allocations.

    Returns:
        The events with `released_ns`: the time of the release of an allocation, null without one.
    """
    events = memory_events.sort("time_ns", maintain_order=True).with_row_index("order")
    # the events of an address are adjacent
    events = events.sort("process_key", "address", maintain_order=True)
    is_release, address = pl.col("is_release"), pl.struct("process_key", "address")
    has_address = pl.col("address") != 0
    is_followed = ~is_release & has_address & (address == address.shift(-1))
    is_known = is_release & has_address & (address == address.shift(1)) & ~is_release.shift(1)
    size = pl.when(pl.col("size_bytes") > 0).then("size_bytes")
    return events.with_columns(
        pl.when(is_known).then(pl.col("device_id").shift(1)).otherwise("device_id"),
        pl.when(is_known).then(pl.coalesce(pl.col("kind").shift(1), "kind")).otherwise("kind"),
        size_bytes=pl.coalesce(size, pl.when(is_known).then(size.shift(1))),
        released_ns=pl.when(is_followed).then(pl.col("time_ns").shift(-1)),
    ).sort("order")


def _add_up(events: pl.DataFrame) -> pl.DataFrame:
    """Add up the allocated memory: one row per change, with `used_bytes` after it; by time_ns.

    Events of the same nanosecond are added up first, so that their order cannot make a peak.
    """
    allocated = events.filter(~pl.col("is_release")).with_columns(pl.col("size_bytes").fill_null(0))
    released = allocated.drop_nulls("released_ns").with_columns(
        time_ns="released_ns", size_bytes=-pl.col("size_bytes")
    )
    return (
        pl.concat([allocated, released])
        .group_by(*_SERIES, "time_ns")
        .agg(change=pl.col("size_bytes").sum())
        .sort("time_ns")
        .with_columns(
            series=pl.struct(_SERIES).rank("dense"),
            used_bytes=pl.col("change").cum_sum().over(_SERIES),
        )
    )


def _rows_around(threads: pl.Series, times: pl.Series, intervals: pl.DataFrame) -> pl.Series:
    """Find the row of the innermost interval around each moment on its thread; null without any."""
    is_known = threads.is_not_null()
    rows = pl.int_range(len(intervals), eager=True)
    whole = intervals.select("thread_key", "start_ns", "end_ns", row=rows).drop_nulls()
    row = pl.Series(
        find_innermost(
            threads.filter(is_known).to_numpy(),
            times.filter(is_known).to_numpy(),
            interval_owner=whole["thread_key"].to_numpy(),
            start=whole["start_ns"].to_numpy(),
            end=whole["end_ns"].to_numpy(),
        ),
        dtype=pl.Int64,
    )
    around = whole["row"].gather(row.set(row < 0, None))
    at = is_known.arg_true()
    return pl.Series("row", [None], dtype=pl.Int64).new_from_index(0, len(times)).scatter(at, around)
