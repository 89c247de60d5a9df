"""Sums of one report or part for tables on request: sampled metrics, network bytes, activities of hosts.

A part keeps frames of bounded size; a report is read once more, with the tables that only these need. nsys
does not record for whom a call waits: that other threads hold the launching one is a guess.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import (
    as_numbers,
    index_rows,
    numbers,
)
from nsys_pp.arrays.intervals import Intervals, average_windows, find_peaks, intersect
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.conform import NAME, NO_NAME, build_schema, conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.part import (
    BUBBLE_HOSTS,
    METRIC_FAMILIES,
    METRIC_WINDOWS,
    NETWORK_COLLECTIVES,
    NETWORK_WINDOWS,
    PART_FRAMES,
)
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import KERNEL_KINDS, Report, SampledMetric, is_clock, parse_unit
from nsys_pp.frames.training import (
    FAMILY_TIMES,
    METRIC_SUMS,
)
from nsys_pp.model import add_activities, build_report
from nsys_pp.projection.launches import match_launches, match_requests
from nsys_pp.read import is_part, read_part, read_report
from nsys_pp.training.causes import cut_loading
from nsys_pp.training.gaps import find_activities
from nsys_pp.training.sums import (
    NETWORK_RATES,
    measure_families,
    sum_bytes,
    sum_metrics,
)
from nsys_pp.units import NS_PER_MS


class LaneTimes(Struct, frozen=True, kw_only=True):
    """A lane, and the intervals in which its metrics are measured.

    Attributes:
        lane: The lane.
        report: Number of the report with its kernels.
        process_key: Its process.
        device_id: Its CUDA ordinal there.
        gpu: "GPU 0", numbered among the GPUs of the machine.
        bus: Bus location of its GPU, in lower case; None: unknown.
        measured: `MEASURED_TIMES`, on the clock of the trace, or of the report with the metrics.
        families: `FAMILY_TIMES` on that clock; None: those of the kernels of that report.
    """

    lane: int
    report: int
    process_key: int
    device_id: int
    gpu: str
    bus: str | None
    measured: pl.DataFrame
    families: pl.DataFrame | None = None

    def has(self, metric: SampledMetric) -> bool:
        """Return whether a metric of the machine is of the lane's GPU.

        By bus location, where both are known.
        """
        if metric.bus is not None and self.bus is not None:
            return metric.bus == self.bus
        return metric.gpu == self.gpu


def list_family_times(report: Report, process_key: int, device_id: int) -> pl.DataFrame:
    """List the kernels of a device of a report with their families (`FAMILY_TIMES`).

    Args:
        report: Read with operations and names of kernels.
        process_key: The process.
        device_id: The CUDA ordinal in it.
    """
    is_own = (pl.col("process_key") == process_key) & (pl.col("device_id") == device_id)
    ops = report.gpu_ops.filter(is_own, pl.col("kind").cast(pl.String).is_in(KERNEL_KINDS))
    full_name = report.op_details.gather("full_name", ops["op_id"])
    ops = ops.with_columns(name=pl.coalesce(full_name, "name"))
    return (
        classify_operations(ops.select("kind", "name", "is_communication", "start_ns", "end_ns"))
        .with_columns(pl.col("family").cast(pl.String))
        .pipe(conform, FAMILY_TIMES)
    )


MOST_WINDOWS = 200_000  # of all metrics of a part, and as many of its network; they take some MB
_OWNER = ("process_key", "device_id", "gpu", "bus", "metric")
_DEVICE = ["process_key", "device_id"]
_VALUES = build_schema(
    {"time_ns": pl.Int64, "value": pl.Float64, "peak": pl.Float64}, name="WINDOWS_OF_A_METRIC"
)


def summarise_for_part(report: Report, steps: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Build the frames of a part with the GPU metrics of a report (of `PART_FRAMES`); none without metrics.

    Args:
        report: Read with group "metric_sums".
        steps: Its `STEPS`.
    """
    metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None and len(metric.samples)]
    if not metrics:
        return {}
    most = MOST_WINDOWS // len(metrics)
    windows = [
        _shorten(metric.samples, most).with_columns(
            pl.lit(getattr(metric, name), METRIC_WINDOWS[name]).alias(name) for name in _OWNER
        )
        for metric in metrics
    ]
    families = [METRIC_FAMILIES.to_frame()]
    for process, device in report.devices.select(_DEVICE).rows():
        owner = (process, device)
        own = {one.metric: one.samples for one in metrics if (one.process_key, one.device_id) == owner}
        if own:
            of_device = steps.filter(process_key=process, device_id=device).select(
                "start_ns", "end_ns", step="start_ns"
            )
            kernels = list_family_times(report, process, device)
            sums = sum_metrics(measure_families(kernels, of_device, lane=0), own, lane=0)
            families.append(
                sums.rename({"item": "family", "step": "step_start_ns"})
                .with_columns(process_key=pl.lit(process, pl.Int64), device_id=pl.lit(device, pl.Int32))
                .pipe(conform, METRIC_FAMILIES)
            )
    return {
        "metric_windows": pl.concat([conform(part, METRIC_WINDOWS) for part in windows]),
        "metric_families": pl.concat(families),
    }


def _shorten(samples: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the samples, or the means and peaks of as many windows as are allowed, and the last sample."""
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    if len(times) <= most or times[0] == times[-1]:
        return samples.with_columns(peak="value").pipe(conform, _VALUES)
    first, last = int(times[0]), int(times[-1])
    width = -(-(last - first) // (most - 1))
    edges = np.append(np.arange(first, last, width), last)
    means = average_windows(times, values, edges)
    peaks = find_peaks(times, values, edges[:-1], edges[1:])
    columns = {"time_ns": edges, "value": np.append(means, values[-1]), "peak": np.append(peaks, values[-1])}
    return pl.DataFrame(columns, schema=_VALUES)


_KERNELS: frozenset[Group] = frozenset({"ops", "kernel_names"})
METRICS: frozenset[Group] = _KERNELS | {"show_metrics"}
CLOCKS_ALONE: frozenset[Group] = frozenset(
    {"overview"}
)  # rows of all metrics, of which clocks and few others are built


def list_kernels(path: Path, lanes: Sequence[LaneTimes], *, nsys: str | None) -> list[pl.DataFrame]:
    """Read the kernels of lanes from their report (`FAMILY_TIMES`)."""
    report = build_report(read_report(path, need=_KERNELS, nsys=nsys), is_last_use=True)
    return [list_family_times(report, lane.process_key, lane.device_id) for lane in lanes]


def sum_lanes(
    path: Path, lanes: Sequence[LaneTimes], *, nsys: str | None, need: frozenset[Group]
) -> tuple[pl.DataFrame, list[SampledMetric]]:
    """Sum the metrics of a report or part over the intervals of lanes.

    Sums by family are of the kernels of the report, unless lanes have families; a part has sums of its own
    kernels.

    Returns:
        `METRIC_SUMS`, and a metric of each GPU of the report, without samples.
    """
    report, families = None, METRIC_FAMILIES.to_frame()
    if is_part(path):
        families, windows = _read_frames(path, "metric_families", "metric_windows")
        metrics = [
            SampledMetric(
                **dict(zip(_OWNER, key, strict=True)),
                name=str(key[-1]),
                unit=parse_unit(str(key[-1])),
                samples=conform(of_metric, _VALUES),
            )
            for key, of_metric in windows.partition_by(_OWNER, as_dict=True, maintain_order=True).items()
        ]
    else:
        report = build_report(read_report(path, need=need, nsys=nsys), is_last_use=True)
        metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None]
    if need == CLOCKS_ALONE:
        metrics = [metric for metric in metrics if is_clock(metric.metric)]
    sums = [METRIC_SUMS.to_frame()]
    for lane in lanes:
        own = {metric.metric: metric.samples for metric in metrics if lane.has(metric)}
        if not own:
            continue
        measured, steps = lane.measured, lane.measured.filter(group="steps")
        if report is None:
            in_steps = steps.sort("start_ns").select("step", "start_ns", "end_ns")
            sums.append(
                families.filter(process_key=lane.process_key, device_id=lane.device_id)
                .sort("step_start_ns")
                .join_asof(in_steps, left_on="step_start_ns", right_on="start_ns")
                .filter(pl.col("step_start_ns") < pl.col("end_ns"))
                .with_columns(lane=pl.lit(lane.lane, pl.UInt32), group=pl.lit("families"), item="family")
                .pipe(conform, METRIC_SUMS)
            )
        else:
            kernels = (
                list_family_times(report, lane.process_key, lane.device_id)
                if lane.families is None
                else lane.families
            )
            measured = pl.concat([measured, measure_families(kernels, steps, lane=lane.lane)])
        sums.append(sum_metrics(measured, own, lane=lane.lane))
    gpus = {metric.gpu: replace(metric, samples=metric.samples.clear()) for metric in metrics}
    return pl.concat(sums), [*gpus.values()]


# "IB: Bytes sent", "Eth: Bytes received"; the bytes of "IPoIB: ..." are also in those of its card
_BYTES = re.compile(r"(?!IPoIB)(?:\w+: )?Bytes (sent|received)$")


def summarise_network(report: Report, requests: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Build the frames of a part with the network metrics of a report (of `PART_FRAMES`).

    None without bytes.

    Args:
        report: Read with group "network_sums".
        requests: `REQUESTS` of it.
    """
    windows = list_windows(report.sampled_metrics, most=MOST_WINDOWS)
    if windows.is_empty():
        return {}
    return {"network_windows": windows, "network_collectives": list_collectives(report, requests)}


def list_windows(metrics: Iterable[SampledMetric], *, most: int = sys.maxsize) -> pl.DataFrame:
    """List the bytes that cards and switches sent and received (`NETWORK_WINDOWS`).

    Args:
        metrics: Of a report; others than bytes of the network are left out.
        most: Largest number of rows, about: more samples are joined into windows, with the same bytes.
    """
    of_bytes = [metric for metric in metrics if metric.ends_ns is not None and _BYTES.match(metric.metric)]
    parts = [NETWORK_WINDOWS.to_frame()]
    own = most // max(len(of_bytes), 1)
    for metric in of_bytes:
        rate = pl.col("value") / NS_PER_MS
        rates = (
            metric.samples.select(
                start_ns="time_ns", end_ns=metric.ends_ns, bytes_per_ns=rate, peak_bytes_per_ns=rate
            )
            .drop_nulls()
            .filter(pl.col("end_ns") > pl.col("start_ns"))
            .sort("start_ns")
        )
        if len(rates) > own:
            window = pl.Series("window", np.arange(len(rates)) * own // len(rates))
            length = pl.col("end_ns") - pl.col("start_ns")
            joined = rates.group_by(window, maintain_order=True).agg(  # their bytes are kept
                pl.col("start_ns").min(),
                pl.col("end_ns").max(),
                total=(pl.col("bytes_per_ns") * length).sum(),
                peak_bytes_per_ns=pl.col("peak_bytes_per_ns").max(),
            )
            rates = joined.with_columns(bytes_per_ns=pl.col("total") / length)
        parts.append(
            rates.with_columns(
                source=pl.lit(metric.source),
                owner=pl.lit(metric.owner),
                port=pl.lit(metric.port),
                direction=pl.lit(metric.metric.rpartition(" ")[2]),
            ).pipe(conform, NETWORK_WINDOWS)
        )
    return pl.concat(parts)


def list_collectives(report: Report, requests: pl.DataFrame) -> pl.DataFrame:
    """List the collectives of a report whose size is known (`NETWORK_COLLECTIVES`)."""
    return (
        requests.filter(~pl.col("call").is_in(["Send", "Recv"]))
        .drop_nulls("size_bytes")
        .select("op_id", "size_bytes")
        .join(report.gpu_ops.select("op_id", "start_ns"), on="op_id", how="inner")
        .sort("start_ns")
        .pipe(conform, NETWORK_COLLECTIVES)
    )


CARDS = "network cards"
DEVICE_BYTES = build_schema(
    {
        "source": pl.String,  # of `NETWORK_SUMS`
        "owner": pl.String,  # the card or switch
        "direction": pl.String,  # "sent" or "received"
        "step": pl.Int64,
        "bytes": pl.Float64,
        "peak_bytes_per_ns": pl.Float64,
    },
    name="DEVICE_BYTES",
)


COLLECTIVE_BYTES = build_schema({"step": pl.Int64, "collective_bytes": pl.Int64}, name="COLLECTIVE_BYTES")


def sum_network(path: Path, steps: pl.DataFrame, *, nsys: str | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sum the bytes of cards and switches, and of collectives whose kernels start in a step, by step.

    Returns:
        `DEVICE_BYTES` and `COLLECTIVE_BYTES`.
    """
    if is_part(path):
        windows, collectives = _read_frames(path, "network_windows", "network_collectives")
    else:
        report = build_report(
            read_report(path, need=frozenset({"show_network", "ranges", "ops", "communication"}), nsys=nsys),
            is_last_use=True,
        )
        windows = list_windows(report.sampled_metrics)
        requests = match_requests(
            ranges=report.ranges,
            api_calls=report.api_calls,
            gpu_ops=report.gpu_ops,
            launches=match_launches(report.api_calls, report.gpu_ops),
            nccl_calls=report.nccl_calls,
        )
        collectives = list_collectives(report, requests)
    devices = [DEVICE_BYTES.to_frame()]
    keys = ["source", "owner", "port", "direction"]
    by_port = windows.partition_by(keys, as_dict=True, maintain_order=True)
    for (source, owner, _, direction), rates in by_port.items():
        sums = sum_bytes(conform(rates, NETWORK_RATES), steps).with_columns(
            source=pl.lit(CARDS if source == "network card" else owner),
            owner=pl.lit(owner),
            direction=pl.lit(direction),
        )
        devices.append(conform(sums, DEVICE_BYTES))
    of_step = (
        collectives.select(at="start_ns", size="size_bytes")
        .sort("at")
        .join_asof(steps.sort("start_ns"), left_on="at", right_on="start_ns")
        .filter(pl.col("at") < pl.col("end_ns"))
        .group_by("step")
        .agg(collective_bytes=pl.col("size").sum())
    )
    return pl.concat(devices), conform(of_step, COLLECTIVE_BYTES)


def sum_other_threads(report: Report, bubbles: pl.DataFrame, *, launches: pl.DataFrame) -> pl.DataFrame:
    """Sum the activities of other threads during bubbles.

    Threads of the process of the bubble count, and those of processes without a GPU; none that launches.
    Their calls of the operating system, outermost ranges, and time on a processor are listed by name of the
    thread, with digits replaced.

    Args:
        report: Read with ranges, operations, names of calls, and activities.
        bubbles: As of `list_host_bubbles`; those of a device do not overlap.
        launches: `LAUNCHES` of the report.

    Returns:
        Keys of the bubble, name ("pt_data_worker: read()"), time_ns (mean over the threads of this name with
        any activity), and count (of threads with it).
    """
    parts = [
        bubbles.clear().select(
            *_BUBBLE, name=pl.lit("", pl.String), time_ns=pl.lit(0, pl.Int64), count=pl.lit(0, pl.Int64)
        )
    ]
    items = (
        _list_items(report, launches)
        .join(
            pl.concat([report.active_threads, report.threads])
            .unique("thread_key", keep="first")
            .select("thread_key", thread=pl.col("name").str.replace_all(r"\d+", "*")),
            on="thread_key",
            how="left",
        )
        .with_columns(pl.col("thread").fill_null(NO_NAME), process_key=process_key(pl.col("thread_key")))
    )
    with_gpus = report.devices["process_key"].implode()
    for key, own in bubbles.partition_by(_DEVICE, as_dict=True, maintain_order=True).items():
        others = items.filter((pl.col("process_key") == key[0]) | ~pl.col("process_key").is_in(with_gpus))
        sizes = others.group_by("thread").agg(size=pl.col("thread_key").n_unique())
        own = own.sort("start_ns")
        zero = numbers(own["start_ns"]) * 0
        inside = intersect(
            numbers(others["start_ns"]) * 0,
            numbers(others["start_ns"]),
            numbers(others["end_ns"]),
            Intervals(owner=zero, start=numbers(own["start_ns"]), end=numbers(own["end_ns"])),
        )
        found = pl.concat(
            [others.select("thread_key", "thread", "name")[inside.row], own.select(_BUBBLE)[inside.other]],
            how="horizontal",
        ).with_columns(time_ns=pl.Series(inside.end - inside.start, dtype=pl.Int64))
        parts.append(
            found.group_by(*_BUBBLE, "thread", "name")
            .agg(pl.col("time_ns").sum(), count=pl.col("thread_key").n_unique().cast(pl.Int64))
            .join(sizes, on="thread")
            .select(
                *_BUBBLE,
                name=pl.format("{}: {}", "thread", "name"),
                time_ns=(pl.col("time_ns") // pl.col("size")).cast(pl.Int64),
                count="count",
            )
        )
    return pl.concat(parts)


def _list_items(report: Report, launches: pl.DataFrame) -> pl.DataFrame:
    """List the activities of threads that launch nothing: thread_key, start_ns, end_ns, name.

    Of ranges, those inside no other one of their thread.
    """
    launching = report.api_calls["thread_key"].gather(launches["call_row"]).unique()
    is_other = ~pl.col("thread_key").is_in(launching.implode())
    columns = ("thread_key", "start_ns", "end_ns")
    name = pl.col("name").cast(pl.String)
    activities = report.activities.drop_nulls(["thread_key", "end_ns"]).filter(is_other)
    calls = activities.filter(pl.col("row") == "OS calls")
    running = activities.filter(pl.col("row") == "states", name == "running")
    ranges = report.ranges.filter(is_other, pl.col("end_thread_key").is_null()).sort(
        "thread_key", "start_ns", -pl.col("end_ns")
    )
    reach = pl.col("end_ns").cum_max().shift(1).over("thread_key")
    outermost = ranges.filter((pl.col("start_ns") >= reach).fill_null(value=True))
    return pl.concat(
        [
            calls.select(*columns, name=pl.format("{}()", name.fill_null(NO_NAME))),
            running.select(*columns, name=name),
            outermost.select(*columns, name=pl.format("range {}", name.fill_null(NO_NAME))),
        ]
    )


MOST_ROWS = 20_000  # of a report; beyond it, the names with least time are added up as `OTHERS`
OTHERS = "(other names)"
_OF_THREADS: frozenset[Group] = frozenset({"show_os", "show_states", "show_samples"})
_HOST_GROUPS: frozenset[Group] = _OF_THREADS | {"ranges", "ops", "cpu"}
_SAMPLES = "CPU samples"
_CALLER = " < "
_MOST_FUNCTIONS = 8  # of a stack in the table
_BUBBLE = ["process_key", "device_id", "step", "cause"]


def list_bubble_hosts(
    path: Path, frames: Mapping[str, pl.DataFrame], *, nsys: str | None, report: Report | None = None
) -> pl.DataFrame:
    """List the activities of hosts in the bubbles of a report (`BUBBLE_HOSTS`).

    A report with bubbles is read once more.

    Args:
        path: The report.
        frames: Its training frames.
        nsys: Program that exports `.nsys-rep` files.
        report: The report, read with ranges, operations and communication: only its tables on request are
            read. None: it is not in memory.
    """
    bubbles = list_host_bubbles(frames)
    if bubbles.is_empty():
        return BUBBLE_HOSTS.to_frame()
    if report is None:
        report = build_report(read_report(path, need=_HOST_GROUPS, nsys=nsys), is_last_use=True)
    else:
        report = add_activities(report, read_report(path, need=_OF_THREADS, nsys=nsys))
    hosts = _bound(sum_host_times(report, bubbles))
    return hosts.sort(*_BUBBLE, "activity", "name", nulls_last=False)  # the same bytes of a part each time


def list_host_bubbles(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """List the bubbles of causes "host" and "data" of a report.

    Process_key, device_id, step, cause, start_ns, end_ns.

    As in `LANE_STATES`: loading of data by a thread with other jobs is cut out of late launches and of the
    ends of steps.
    """
    waits = (
        frames["waits"].filter(pl.col("cause").is_in(["host", "idle"])).select(*_BUBBLE, "start_ns", "end_ns")
    )
    jobs = frames["jobs"].filter(pl.col("range_id").is_not_null())
    thread = ["process_key", "thread_key"]
    working = jobs.filter(pl.col("kind") != "data").select(thread).unique()
    loading = jobs.filter(pl.col("kind") == "data").join(working, on=thread, how="semi")
    return (
        cut_loading(waits, loading, owner="process_key")
        .filter(pl.col("cause") != "idle")
        .sort("process_key", "device_id", "start_ns")
    )


def _bound(hosts: pl.DataFrame) -> pl.DataFrame:
    """Add up the names with least time, of each step, so that at most about `MOST_ROWS` are left."""
    if len(hosts) <= MOST_ROWS:
        return hosts
    names = (
        hosts.drop_nulls("name")
        .group_by("activity", "name")
        .agg(rows=pl.len(), weight=pl.coalesce(pl.col("time_ns").sum(), pl.lit(0)) + pl.col("count").sum())
        .sort("weight", "activity", "name", descending=[True, False, False])
        .with_columns(is_kept=pl.col("rows").cum_sum() <= MOST_ROWS)
    )
    return (
        hosts.join(names.select("activity", "name", "is_kept"), on=["activity", "name"], how="left")
        .with_columns(
            name=pl.when(pl.col("is_kept").fill_null(value=True)).then("name").otherwise(pl.lit(OTHERS))
        )
        .group_by([*_BUBBLE, "activity", "name"])
        .agg(
            time_ns=pl.when(pl.col("time_ns").is_not_null().any()).then(pl.col("time_ns").sum()),
            count=pl.col("count").sum(),
        )
        .pipe(conform, BUBBLE_HOSTS)
    )


def sum_host_times(report: Report, bubbles: pl.DataFrame) -> pl.DataFrame:
    """Sum the activities of launching threads in bubbles.

    Args:
        report: Read with ranges, operations, names of calls, and activities.
        bubbles: `list_host_bubbles`.

    Returns:
        `BUBBLE_HOSTS`, in any order.
    """
    launches = match_launches(report.api_calls, report.gpu_ops)
    bubbles = bubbles.with_columns(thread_key=_find_threads(report, launches, bubbles))
    length = pl.col("end_ns") - pl.col("start_ns")
    whole = bubbles.group_by(_BUBBLE).agg(time_ns=length.sum(), count=pl.len())
    parts = [whole.with_columns(activity=pl.lit(None, pl.String), name=pl.lit(None, pl.String))]
    known = bubbles.drop_nulls("thread_key")
    rows = report.activities.partition_by("row", as_dict=True)
    calls = {str(row): frame.drop_nulls("end_ns") for (row,), frame in rows.items()}
    items = {
        "range": report.ranges.filter(pl.col("end_thread_key").is_null()),
        "call": _mark_pageable(report),
        **{
            activity: calls[row]
            for activity, row in (("OS call", "OS calls"), ("state", "states"))
            if row in calls
        },
    }
    for row in filter(calls.__contains__, ("OS calls", "CUDA call stacks")):
        outlines = calls[row].with_columns(name=_outline_stacks(calls[row]["stack"]).cast(NAME))
        parts.append(_sum_times(known, outlines).drop_nulls("name").with_columns(activity=pl.lit("stack")))
    if (_SAMPLES,) in rows:
        parts += _count_samples(rows[_SAMPLES,], known)
    parts += [
        _sum_times(known, frame).with_columns(activity=pl.lit(activity)) for activity, frame in items.items()
    ]
    others = sum_other_threads(report, bubbles, launches=launches)
    parts.append(others.with_columns(activity=pl.lit("other thread")))
    is_of_activity = pl.col("activity").is_not_null()
    return pl.concat(
        part.with_columns(
            pl.col("activity").cast(BUBBLE_HOSTS["activity"]),
            pl.col("time_ns", "count").cast(pl.Int64),
            name=pl.coalesce("name", pl.when(is_of_activity).then(pl.lit(NO_NAME))),
        ).pipe(conform, BUBBLE_HOSTS)
        for part in parts
    )


def _sum_times(bubbles: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """Sum the times of calls or ranges in bubbles: keys, name, time_ns, count (of bubbles)."""
    found = find_activities(bubbles, items)
    return (
        index_rows(bubbles[_BUBBLE], numbers(found["interval"]))
        .hstack([found["name"].cast(pl.String), found["time_ns"]])
        .group_by(*_BUBBLE, "name")
        .agg(time_ns=pl.col("time_ns").sum(), count=pl.len())
    )


def _mark_pageable(report: Report) -> pl.DataFrame:
    """Return the CUDA calls; the names of copies from or to pageable memory end with this word."""
    if report.pageable_copies.is_empty():
        return report.api_calls
    keys = ["process_key", "correlation_id"]
    pageable = report.pageable_copies.with_columns(is_pageable=pl.lit(value=True))
    calls = report.api_calls.join(pageable, on=keys, how="left", maintain_order="left")
    name = pl.col("name").cast(pl.String)
    marked = pl.when("is_pageable").then(pl.format("{} pageable", name)).otherwise(name)
    return calls.with_columns(name=marked.cast(NAME))


def _outline_stacks(stacks: pl.Series) -> pl.Series:
    """Shorten stacks.

    Addresses without names differ between processes, and many functions do not fit a table.

    >>> _outline_stacks(pl.Series(["read < 0x7f1 [libc.so] < 0x7f2 [libc.so] < main(int)"])).to_list()
    ['read < [libc.so] < main']
    """
    texts = stacks.cast(pl.String).alias("stack")
    functions = pl.col("stack").str.replace_all(r"0x[0-9a-fA-F]+ \[", "[").str.split(_CALLER)
    plain = functions.list.eval(pl.element().str.replace(r"^([^(]+)\(.*$", "$1"))  # without parameters
    distinct = plain.list.eval(pl.element().filter(pl.element().ne_missing(pl.element().shift(1))))
    outline = distinct.list.head(_MOST_FUNCTIONS).list.join(_CALLER)
    is_cut = distinct.list.len() > _MOST_FUNCTIONS
    shortened = (
        texts.drop_nulls()
        .unique(maintain_order=True)
        .to_frame()
        .with_columns(outline=pl.when(is_cut).then(outline + f"{_CALLER}...").otherwise(outline))
    )
    return texts.to_frame().join(shortened, on="stack", how="left", maintain_order="left")["outline"]


def _count_samples(samples: pl.DataFrame, bubbles: pl.DataFrame) -> list[pl.DataFrame]:
    """Count the samples of launching threads inside bubbles, by innermost function and by stack."""
    samples = samples.sort("start_ns")
    samples = samples.with_columns(_outline_stacks(samples["stack"])).with_columns(
        name=pl.coalesce(pl.col("outline").str.split(_CALLER).list.first(), pl.col("name").cast(pl.String))
    )
    inside = samples.join_asof(
        bubbles.select(*_BUBBLE, "thread_key", "end_ns", start="start_ns").sort("start"),
        left_on="start_ns",
        right_on="start",
        by="thread_key",
        check_sortedness=False,
        suffix="_of_bubble",
    ).filter(pl.col("start_ns") < pl.col("end_ns_of_bubble"))
    none = pl.lit(None, pl.Int64)
    return [
        inside.drop_nulls(name)
        .group_by(*_BUBBLE, pl.col(name).cast(pl.String).alias("name"))
        .agg(count=pl.len())
        .with_columns(activity=pl.lit(activity), time_ns=none)
        for activity, name in (("sample", "name"), ("sample stack", "outline"))
    ]


def _find_threads(report: Report, launches: pl.DataFrame, bubbles: pl.DataFrame) -> pl.Series:
    """Find the thread that launched the next kernel, copy or set after each bubble; null without one."""
    following = (
        report.gpu_ops.filter(~pl.col("is_communication"))
        .select(*_DEVICE, "op_id", next_ns="start_ns")
        .sort("next_ns")
    )
    rows = bubbles.select(*_DEVICE, "end_ns").with_row_index("row")
    found = (
        rows.sort("end_ns")
        .join_asof(
            following,
            left_on="end_ns",
            right_on="next_ns",
            by=_DEVICE,
            strategy="forward",
            check_sortedness=False,
        )
        .drop_nulls("op_id")
    )
    call = find_launch_calls(
        found["op_id"], gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches
    )
    threads = as_numbers("thread_key", gather_calls(report.api_calls["thread_key"], call))
    launched = found.select("row").with_columns(threads)
    return rows.join(launched, on="row", how="left", maintain_order="left")["thread_key"]


def read_bubble_hosts(path: Path, frames: Mapping[str, pl.DataFrame], *, nsys: str | None) -> pl.DataFrame:
    """Read `BUBBLE_HOSTS` of a part, or list them for a report with these training frames."""
    if not is_part(path):
        return list_bubble_hosts(path, frames, nsys=nsys)
    return _read_frames(path, "bubble_hosts")[0]


def _read_frames(path: Path, *names: str) -> list[pl.DataFrame]:
    frames = read_part(path, (), version=version("nsys-pp"), optional=names).frames
    return [frames.get(name, PART_FRAMES[name].to_frame()) for name in names]
