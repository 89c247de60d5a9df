"""When the steps of a training began and ended on each device.

A step begins with the first thing that its computing streams do for it, and lasts until the next one does:

    CPU        [ step_1                  )     [ step_2                 )
    stream 7         [ set )[ gemm ) ... [ adam )    [ set )[ gemm ) ...
    stream 20    [ copy of the next batch )
    step 1           [                               )
"""

from __future__ import annotations

import polars as pl

from nsys_pp.pipeline.report.jobs import assign_steps
from nsys_pp.pipeline.report.launched import find_first_calls
from nsys_pp.schema import NAME, build_schema, conform
from nsys_pp.training import STEPS

_DEVICE = ["process_key", "device_id"]
_WORK = ("forward", "backward", "weight_gradient", "recompute", "forward_backward", "optimizer")
_FORWARDS = ("forward", "forward_backward")
_RECEIVES = ("receive", "send_receive")
_BETWEEN_STEPS = ("receive", "data", "other")  # what comes before the first forward of a step
_FOUND = build_schema(
    {  # steps, before it is known where their edges are
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # null where the name has no number
        "name": NAME,
        "source": pl.String,
        "host_start_ns": pl.Int64,
        "host_end_ns": pl.Int64,
        "first_ns": pl.Int64,  # its first kernel that is not communication
        "is_partial": pl.Boolean,
    }
)
_AS_FOUND = [pl.col(name).cast(dtype) for name, dtype in _FOUND.items()]


def find_steps(
    step_ranges: pl.DataFrame,
    *,
    compute: pl.DataFrame,
    jobs: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """Find the steps of every device: by ranges, else by jobs, else the whole capture is one.

    By jobs, a step begins where the micro-batches of the first part of the model count from the start again,
    or, where forwards have no numbers, with the first forward after an optimizer.

    Args:
        step_ranges: `NAMED_STEPS`.
        compute: `PROJECTIONS` of these ranges onto kernels that are not communication.
        jobs: `JOBS`.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Returns:
        `STEPS`. Copies and sets count for the beginning and the end of steps where they are on a stream
        that computes. Partial is a step whose range, or a job in it, was open when the capture ended,
        what comes before the first range if there are jobs in it, the first step that jobs tell if none receives
        (nothing says how long the first one was waited for), and a first or last step with fewer jobs than the median of the
        steps. Devices that compute nothing have none.
    """
    ops = _computing(gpu_ops, api_calls, launches)
    ran = jobs.drop_nulls("compute_start_ns")
    by_range = _by_ranges(step_ranges, compute)
    by_range = pl.concat([_before_ranges(by_range, ran, ops), by_range])
    by_jobs = _by_jobs(ran.join(by_range, on=_DEVICE, how="anti"), jobs)
    known = pl.concat([by_range, by_jobs])
    rest = ops.join(known, on=_DEVICE, how="anti")
    steps = _find_edges(_number(pl.concat([known, _whole(rest)])), ops)
    return _mark_edges(steps, jobs).sort(*_DEVICE, "start_ns").pipe(conform, STEPS)


def _computing(gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Pick operations other than communication, of streams that have kernels of that sort.

    Returns:
        process_key, device_id, start_ns, end_ns, launch_ns (the start, where no call is known), is_kernel.
    """
    stream = [*_DEVICE, "context_id", "stream_id"]
    own = gpu_ops.select(
        *(*stream, "op_id", "start_ns", "end_ns", "is_communication"),
        is_kernel=pl.col("kind").is_in(["kernel", "graph"]),
    ).filter(~pl.col("is_communication"))
    kernels, others = own.filter("is_kernel"), own.filter(~pl.col("is_kernel"))
    streams = kernels.select(stream).unique()
    ops = pl.concat([kernels, others.join(streams, on=stream, how="semi", nulls_equal=True)])
    called = find_first_calls(ops["op_id"], api_calls=api_calls, launches=launches)
    return ops.select(
        *(*_DEVICE, "start_ns", "end_ns", "is_kernel"),
        launch_ns=called["launch_ns"].fill_null(ops["start_ns"]),
    )


def _by_ranges(step_ranges: pl.DataFrame, compute: pl.DataFrame) -> pl.DataFrame:
    """Place step ranges on devices; of those that say the same once more, the first stays."""
    placed = step_ranges.join(
        compute.select("range_id", "device_id", first_ns="gpu_start_ns"), on="range_id"
    ).sort(*_DEVICE, "start_ns", "end_ns", descending=[False, False, False, True])
    until = pl.col("end_ns").cum_max().shift().over(_DEVICE)
    is_same = (pl.col("step") == pl.col("step").shift().over(_DEVICE)) & (pl.col("start_ns") < until)
    is_again = ((pl.col("end_ns") <= until) | is_same).fill_null(value=False)
    return (
        placed.filter(~is_again)
        .rename({"start_ns": "host_start_ns", "end_ns": "host_end_ns", "is_open": "is_partial"})
        .with_columns(source=pl.lit("range"))
        .select(_AS_FOUND)
    )


def _before_ranges(by_range: pl.DataFrame, jobs: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Make a step of what comes before the first range of a device, where jobs are there."""
    first = by_range.group_by(_DEVICE).agg(pl.all().sort_by("host_start_ns").first())
    begun = jobs.filter(pl.col("kind").is_in(_WORK)).select(*_DEVICE, job_ns="host_start_ns")
    is_cut = first.join(begun, on=_DEVICE).filter(pl.col("job_ns") < pl.col("host_start_ns"))
    if is_cut.is_empty():
        return by_range.clear()
    began = ops.filter("is_kernel").group_by(_DEVICE).agg(began_ns=pl.col("start_ns").min())
    return (
        first.join(is_cut, on=_DEVICE, how="semi")
        .join(began, on=_DEVICE)
        .with_columns(
            step=pl.col("step") - 1,
            name=pl.lit(None),
            host_start_ns=pl.lit(None),
            host_end_ns=pl.lit(None),
            first_ns="began_ns",
            is_partial=pl.lit(True),
        )
        .select(_AS_FOUND)
    )


def _by_jobs(ran: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find steps from jobs that computed; devices on which all is one step have none."""
    begins = _first_forwards(ran)
    if begins.is_empty():
        return _FOUND.to_frame()
    before = (
        jobs.filter(~pl.col("kind").is_in(_BETWEEN_STEPS))
        .sort("process_key", "host_start_ns")
        .select("process_key", "host_start_ns", over_ns=pl.col("host_end_ns").cum_max().over("process_key"))
        .sort("host_start_ns")
    )
    events = begins.sort("host_start_ns").join_asof(
        before, on="host_start_ns", by="process_key", allow_exact_matches=False, check_sortedness=False
    )
    later = events.select(
        *_DEVICE, first_ns="compute_start_ns", host_start_ns=pl.min_horizontal("over_ns", "host_start_ns")
    )
    first = ran.join(begins, on=_DEVICE, how="semi").group_by(_DEVICE).agg(pl.col("compute_start_ns").min())
    host = jobs.group_by("process_key").agg(
        pl.col("host_start_ns").min(),
        last_ns=pl.col("host_end_ns").max(),
        has_receives=pl.col("kind").is_in(_RECEIVES).any(),
    )
    earliest = first.join(host, on="process_key").select(
        *_DEVICE, first_ns="compute_start_ns", host_start_ns="host_start_ns"
    )
    following = pl.col("host_start_ns").shift(-1).over(_DEVICE)
    return (
        pl.concat([earliest, later])
        .sort(*_DEVICE, "host_start_ns")
        .join(host.select("process_key", "last_ns", "has_receives"), on="process_key", maintain_order="left")
        .with_columns(
            step=pl.lit(None),
            name=pl.lit(None),
            source=pl.lit("jobs"),
            host_end_ns=following.fill_null(pl.col("last_ns")),
            is_partial=pl.col("host_start_ns").shift().over(_DEVICE).is_null() & ~pl.col("has_receives"),
        )
        .select(_AS_FOUND)
    )


def _first_forwards(ran: pl.DataFrame) -> pl.DataFrame:
    """Pick the jobs with which steps begin, but for the first step."""
    forwards = ran.filter(pl.col("kind").is_in(_FORWARDS))
    if forwards.is_empty():
        return forwards
    outer = forwards.select("process_key", outer_id="range_id")
    order = (
        ran.filter(pl.col("kind").is_in([*_FORWARDS, "optimizer"]))
        .join(outer, on=["process_key", "outer_id"], how="anti")
        .sort(*_DEVICE, "host_start_ns")
        .with_columns(part=pl.coalesce("virtual_stage", "chunk", 0), is_forward=pl.col("kind") != "optimizer")
    )
    is_counted = (pl.col("micro_batch").is_not_null() | ~pl.col("is_forward")).all().over(_DEVICE)
    starts = order.filter(is_counted, "is_forward").filter(
        pl.col("part") == pl.col("part").min().over(_DEVICE)
    )
    again = starts.filter(pl.col("micro_batch") <= pl.col("micro_batch").shift().over(_DEVICE))
    after = order.filter(~is_counted).filter("is_forward", ~pl.col("is_forward").shift().over(_DEVICE))
    return pl.concat([again, after])


def _whole(ops: pl.DataFrame) -> pl.DataFrame:
    """Make one step of all that a device computed."""
    first = ops.filter("is_kernel").group_by(_DEVICE).agg(first_ns=pl.col("start_ns").min())
    nothing = {name: pl.lit(None) for name in ("step", "name", "host_start_ns", "host_end_ns")}
    return first.with_columns(source=pl.lit("capture"), is_partial=pl.lit(False), **nothing).select(_AS_FOUND)


def _number(steps: pl.DataFrame) -> pl.DataFrame:
    """Count the steps of devices whose names do not number every one, and each differently."""
    is_numbered = pl.col("step").is_not_null().all() & ~pl.col("step").is_duplicated().any()
    place = pl.int_range(pl.len())
    return (
        steps.sort(*_DEVICE, "first_ns")
        .with_columns(is_numbered=is_numbered.over(_DEVICE), place=place.over(_DEVICE))
        .with_columns(step=pl.when("is_numbered").then("step").otherwise("place"))
    )


def _find_edges(steps: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Find when steps start and end; by device and time.

    A step starts with the first copy or set that was launched since its range began and ran before its first kernel;
    the last one ends with the last operation that was launched before its range ended.
    """
    begun = steps.with_row_index("row").sort("first_ns")
    prepared = (
        ops.filter(~pl.col("is_kernel"))
        .sort("start_ns")
        .join_asof(
            begun.select(*_DEVICE, "first_ns", "row", "host_start_ns"),
            left_on="start_ns",
            right_on="first_ns",
            by=_DEVICE,
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("launch_ns") >= pl.col("host_start_ns"))
        .group_by("row")
        .agg(prepared_ns=pl.col("start_ns").min())
    )
    started = (
        begun.join(prepared, on="row", how="left")
        .with_columns(start_ns=pl.coalesce("prepared_ns", "first_ns"))
        .sort(*_DEVICE, "start_ns")
    )
    last = started.group_by(_DEVICE).agg(pl.col("source", "host_end_ns").last())
    is_over = (pl.col("source") == "range") & (pl.col("launch_ns") > pl.col("host_end_ns"))
    is_counted = (pl.col("is_kernel") | (pl.col("source") != "capture")) & ~is_over.fill_null(value=False)
    ends = ops.join(last, on=_DEVICE).filter(is_counted).group_by(_DEVICE).agg(last_ns=pl.col("end_ns").max())
    following = pl.col("start_ns").shift(-1).over(_DEVICE)
    return started.join(ends, on=_DEVICE, how="left", maintain_order="left").with_columns(
        end_ns=following.fill_null(pl.max_horizontal("last_ns", "start_ns"))
    )


def _mark_edges(steps: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Mark steps as partial in which a job is open, and edge steps of a device in which jobs are missing."""
    facts = jobs.select(*_DEVICE, "kind", "host_start_ns", "is_open")
    counted = assign_steps(facts.filter(~pl.col("kind").is_in(["data", "other"])), steps)
    counts = counted.group_by(*_DEVICE, "step").agg(count=pl.len())
    is_open = counted.group_by("process_key", "step").agg(pl.col("is_open").any())
    place, number = pl.int_range(pl.len()).over(_DEVICE), pl.len().over(_DEVICE)
    is_edge = (place == 0) | (place == number - 1)
    is_less = pl.col("count").fill_null(0) < pl.col("count").fill_null(0).median().over(_DEVICE)
    return (
        steps.join(counts, on=[*_DEVICE, "step"], how="left", maintain_order="left")
        .join(is_open, on=["process_key", "step"], how="left", maintain_order="left")
        .with_columns(
            is_partial=pl.col("is_partial") | (is_edge & is_less) | pl.col("is_open").fill_null(value=False)
        )
    )
