"""GPU metrics of a run: sums over the training, from frames of bounded size that parts keep or from reports read once more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.sample_windows import average_windows, find_peaks
from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.part import METRIC_FAMILIES, METRIC_FRAMES, METRIC_WINDOWS
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import KERNEL_KINDS, Report, SampledMetric, is_clock, parse_unit
from nsys_pp.frames.requested import FAMILY_TIMES, MEASURED_TIMES, METRIC_SUMS
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_part, read_report
from nsys_pp.run.run import Run
from nsys_pp.training.sums import list_measured, measure_families, sum_metrics


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
        """Return whether a metric of the machine is of the lane's GPU: by bus location, where both are known."""
        if metric.bus is not None and self.bus is not None:
            return metric.bus == self.bus
        return metric.gpu == self.gpu


class ReportSums(Struct, frozen=True):
    """Sums of the metrics of one report, and its GPUs with metrics, each by one of them, without samples."""

    sums: pl.DataFrame
    gpus: list[SampledMetric]


def list_family_times(report: Report, process_key: int, device_id: int) -> pl.DataFrame:
    """List the kernels of a device of a report with their families (`FAMILY_TIMES`).

    Args:
        report: Read with operations and names of kernels.
        process_key: The process.
        device_id: The CUDA ordinal in it.
    """
    is_own = (pl.col("process_key") == process_key) & (pl.col("device_id") == device_id)
    ops = report.gpu_ops.filter(is_own, pl.col("kind").cast(pl.String).is_in(KERNEL_KINDS))
    if len(report.op_details.row):
        full_name = report.op_details.gather("full_name", ops["op_id"])
        ops = ops.with_columns(name=pl.coalesce(full_name, "name"))
    families = classify_operations(ops.select("kind", "name", "is_communication", "start_ns", "end_ns"))
    return families.with_columns(pl.col("family").cast(pl.String)).pipe(conform, FAMILY_TIMES)


MOST_WINDOWS = 200_000  # of all metrics of a part; they take some MB
_FEWEST_WINDOWS = 100  # of a metric
_OWNER = ("process_key", "device_id", "gpu", "bus", "metric")
_DEVICE = ("process_key", "device_id")
_VALUES = build_schema(
    {"time_ns": pl.Int64, "value": pl.Float64, "peak": pl.Float64}, name="WINDOWS_OF_A_METRIC"
)


def summarise_for_part(report: Report, steps: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Build the frames of a part with the GPU metrics of a report (`METRIC_FRAMES`); none without metrics.

    Args:
        report: Read with group "metric_sums".
        steps: Its `STEPS`.
    """
    metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None and len(metric.samples)]
    if not metrics:
        return {}
    most = max(MOST_WINDOWS // len(metrics), _FEWEST_WINDOWS)
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
            of_device = steps.filter(process_key=process, device_id=device)
            of_device = of_device.select("start_ns", "end_ns", step="start_ns")
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
_METRICS: frozenset[Group] = _KERNELS | {"show_metrics"}
_CLOCKS: frozenset[Group] = frozenset(
    {"overview"}
)  # rows of all metrics, of which clocks and few others are built
_KIND = "gpu_metrics"
_SPAN = ("start_ns", "end_ns")


def read_metric_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the GPU metrics of all lanes, and sum them over the training (`METRIC_SUMS`).

    A GPU's metrics may be in the report of another process of its machine; those of its own report come first.
    """
    return _read_sums(run, _list_lanes(run, training), [recorded.path for recorded in run.inputs], _METRICS)


def read_clock_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the clocks of the SMs during the kernels of each step (`METRIC_SUMS`), without any other table of reports.

    Only reports are read that have a table of GPU metrics, as since nsys 2023.4; parts as in `read_metric_sums`.
    """
    paths = [
        recorded.path
        for recorded in run.inputs
        if is_part(recorded.path) or _KIND in (recorded.part.facts.recorded or ())
    ]
    if not paths:
        return METRIC_SUMS.to_frame()
    none = FAMILY_TIMES.to_frame()
    lanes = [
        replace(lane, measured=lane.measured.filter(group="compute"), families=none)
        for lane in _list_lanes(run, training)
    ]
    sums = _read_sums(run, lanes, paths, _CLOCKS)
    clocks = [name for name in sums["metric"].unique() if is_clock(name)]
    return sums.filter(pl.col("metric").is_in(clocks), group="compute")


def _read_sums(
    run: Run, lanes: Sequence[LaneTimes], paths: Sequence[Path], need: frozenset[Group]
) -> pl.DataFrame:
    """Read some inputs, and sum the metrics of lanes: of their own reports, else of others of their machines."""
    machines = dict(run.roster.select("report", "machine").unique("report").iter_rows())
    work = partial(_sum_lanes, nsys=run.batch.nsys, need=need)
    own = {
        recorded.path: [_move(run, lane, at) for lane in lanes if lane.report == at]
        for at, recorded in enumerate(run.inputs)
    }
    read = run.batch.map("reading metrics", paths, work, own)
    done = {lane for one in read.values() for lane in one.sums["lane"].unique()}
    elsewhere: dict[int, list[LaneTimes]] = {}
    for lane in (lane for lane in lanes if lane.lane not in done):
        for at, recorded in enumerate(run.inputs):
            is_near = at != lane.report and machines.get(at) == machines.get(lane.report)
            if is_near and recorded.path in read and any(map(lane.has, read[recorded.path].gpus)):
                elsewhere.setdefault(at, []).append(lane)
                break
    kernels = _read_kernels(run, [lane for own_lanes in elsewhere.values() for lane in own_lanes])
    others = {
        run.inputs[at].path: [
            _move(run, replace(lane, families=kernels.get((lane.report, lane.lane), lane.families)), at)
            for lane in own_lanes
        ]
        for at, own_lanes in elsewhere.items()
    }
    found = run.batch.map("reading metrics", list(others), work, others)
    return pl.concat([METRIC_SUMS.to_frame(), *(one.sums for one in (*read.values(), *found.values()))])


def _list_lanes(run: Run, training: Training) -> list[LaneTimes]:
    """List the lanes of a run in each of their reports, with intervals on the trace's clock."""
    keys = ["report", "process_key", "device_id"]
    measured = list_measured(training).partition_by("lane", as_dict=True)
    bus = run.roster.select(*keys, bus=pl.col("bus_location").str.to_lowercase()).unique(keys, keep="first")
    lanes = training.lanes.join(bus, on=keys, how="left", maintain_order="left")
    listed = []
    for row in lanes.select(*keys, "lane", "gpu", "bus").iter_rows(named=True):
        times = measured.get((row["lane"],), MEASURED_TIMES.to_frame())
        for report in run.captures.list_reports(row["report"]):
            since, until = run.capture_windows[report]
            of_report = times.filter((pl.col("start_ns") >= since) & (pl.col("start_ns") < until))
            listed.append(LaneTimes(**{**row, "report": report}, measured=of_report))
    return listed


def _move(run: Run, lane: LaneTimes, at: int) -> LaneTimes:
    """Map the intervals of a lane from the trace's clock to the clock of a report."""
    clock = run.clocks.clocks[at]

    def move(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(
            pl.Series(name, clock.to_report_times(frame[name].to_numpy())) for name in _SPAN
        )

    families = None if lane.families is None else move(lane.families)
    return replace(lane, measured=move(lane.measured), families=families)


def _read_kernels(run: Run, lanes: Sequence[LaneTimes]) -> dict[tuple[int, int], pl.DataFrame]:
    """Read the kernels of lanes from their own reports, on the trace's clock (`FAMILY_TIMES` by report and lane).

    Lanes with families need none, and parts have none.
    """
    own: dict[Path, list[LaneTimes]] = {}
    for lane in lanes:
        if lane.families is None:
            own.setdefault(run.inputs[lane.report].path, []).append(lane)
    reports = [path for path in own if not is_part(path)]
    read = run.batch.map("reading kernels", reports, partial(_list_kernels, nsys=run.batch.nsys), own)
    kernels = {}
    for path, of_path in own.items():
        for number, lane in enumerate(of_path):
            frame = read[path][number] if path in read else FAMILY_TIMES.to_frame()
            clock = run.clocks.clocks[lane.report]
            moved = [pl.Series(name, clock.to_trace(frame[name].to_numpy())) for name in _SPAN]
            kernels[lane.report, lane.lane] = frame.with_columns(moved)
    return kernels


def _list_kernels(path: Path, lanes: Sequence[LaneTimes], *, nsys: str | None) -> list[pl.DataFrame]:
    report = build_report(read_report(path, need=_KERNELS, nsys=nsys), is_last_use=True)
    return [list_family_times(report, lane.process_key, lane.device_id) for lane in lanes]


def _sum_lanes(
    path: Path, lanes: Sequence[LaneTimes], *, nsys: str | None, need: frozenset[Group]
) -> ReportSums:
    """Sum the metrics of a report or part over the intervals of lanes.

    Sums by family are of the kernels of the report, unless lanes have families; a part has sums of its own kernels.
    """
    report, families = None, METRIC_FAMILIES.to_frame()
    if is_part(path):
        frames = read_part(path, (), version=version("nsys-pp"), optional=METRIC_FRAMES).frames
        families = frames.get("metric_families", families)
        metrics = _restore(frames.get("metric_windows", METRIC_WINDOWS.to_frame()))
    else:
        report = build_report(read_report(path, need=need, nsys=nsys), is_last_use=True)
        metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None]
    if need == _CLOCKS:
        metrics = [metric for metric in metrics if is_clock(metric.metric)]
    sums = [METRIC_SUMS.to_frame()]
    for lane in lanes:
        own = {metric.metric: metric.samples for metric in metrics if lane.has(metric)}
        if not own:
            continue
        measured, steps = lane.measured, lane.measured.filter(group="steps")
        if report is None:
            sums.append(_number_families(families, lane, steps))
        else:
            kernels = lane.families
            if kernels is None:
                kernels = list_family_times(report, lane.process_key, lane.device_id)
            measured = pl.concat([measured, measure_families(kernels, steps, lane=lane.lane)])
        sums.append(sum_metrics(measured, own, lane=lane.lane))
    gpus = {metric.gpu: replace(metric, samples=metric.samples.clear()) for metric in metrics}
    return ReportSums(pl.concat(sums), list(gpus.values()))


def _restore(windows: pl.DataFrame) -> list[SampledMetric]:
    """Restore the metrics of a part from `METRIC_WINDOWS`."""
    return [
        SampledMetric(
            **dict(zip(_OWNER, key, strict=True)),
            name=str(key[-1]),
            unit=parse_unit(str(key[-1])),
            samples=conform(of_metric, _VALUES),
        )
        for key, of_metric in windows.partition_by(_OWNER, as_dict=True, maintain_order=True).items()
    ]


def _number_families(families: pl.DataFrame, lane: LaneTimes, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of a lane by family in the steps of the run (`METRIC_SUMS`)."""
    steps = steps.sort("start_ns").select("step", "start_ns", "end_ns")
    return (
        families.filter(process_key=lane.process_key, device_id=lane.device_id)
        .sort("step_start_ns")
        .join_asof(steps, left_on="step_start_ns", right_on="start_ns")
        .filter(pl.col("step_start_ns") < pl.col("end_ns"))
        .with_columns(lane=pl.lit(lane.lane, pl.UInt32), group=pl.lit("families"), item="family")
        .pipe(conform, METRIC_SUMS)
    )
