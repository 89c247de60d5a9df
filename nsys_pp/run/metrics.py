"""Lanes of a run with the intervals in which their metrics are measured, and the sums of one report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from nsys_pp.frames.part import METRIC_FAMILIES, METRIC_FRAMES, METRIC_WINDOWS, Part
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
        process_key: Its process.
        device_id: Its CUDA ordinal there.
        gpu: "GPU 0", numbered among the GPUs of the machine.
        bus: Bus location of its GPU, in lower case; None: unknown.
        measured: `MEASURED_TIMES`, on the clock of the report with the metrics.
        families: `FAMILY_TIMES` on that clock; None: those of the kernels of that report.
    """

    lane: int
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
    families = [_sum_families(report, metrics, steps, *key) for key in report.devices.select(_DEVICE).rows()]
    return {
        "metric_windows": pl.concat([conform(part, METRIC_WINDOWS) for part in windows]),
        "metric_families": pl.concat([METRIC_FAMILIES.to_frame(), *families]),
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


def _sum_families(
    report: Report,
    metrics: Sequence[SampledMetric],
    steps: pl.DataFrame,
    process_key: int,
    device_id: int,
) -> pl.DataFrame:
    """Sum the metrics of a device over its kernels by family and step (`METRIC_FAMILIES`)."""
    own = {
        metric.metric: metric.samples
        for metric in metrics
        if (metric.process_key, metric.device_id) == (process_key, device_id)
    }
    if not own:
        return METRIC_FAMILIES.to_frame()
    of_device = (
        steps.filter(process_key=process_key, device_id=device_id)
        .select("start_ns", "end_ns")
        .with_columns(step=pl.col("start_ns"))
    )
    families = list_family_times(report, process_key, device_id)
    sums = sum_metrics(measure_families(families, of_device, lane=0), own, lane=0)
    return (
        sums.rename({"item": "family", "step": "step_start_ns"})
        .with_columns(
            process_key=pl.lit(process_key, pl.Int64),
            device_id=pl.lit(device_id, pl.Int32),
        )
        .pipe(conform, METRIC_FAMILIES)
    )


def sum_part(part: Part, lanes: Sequence[LaneTimes]) -> ReportSums:
    """Sum the metrics of a part over the intervals of lanes.

    Sums by family are of the kernels of the part; lanes of other reports have none.

    Args:
        part: With its frames of metrics, or without.
        lanes: Lanes, with intervals on the clock of the part's report.
    """
    if "metric_windows" not in part.frames:
        return ReportSums(METRIC_SUMS.to_frame(), [])
    windows = part.frames["metric_windows"]
    metrics = [
        SampledMetric(
            **dict(zip(_OWNER, key, strict=True)),
            name=str(key[-1]),
            unit=parse_unit(str(key[-1])),
            samples=conform(of_metric, _VALUES),
        )
        for key, of_metric in windows.partition_by(_OWNER, as_dict=True, maintain_order=True).items()
    ]
    families = part.frames["metric_families"]
    sums = [METRIC_SUMS.to_frame()]
    for lane in lanes:
        own = {metric.metric: metric.samples for metric in metrics if lane.has(metric)}
        if own:
            sums.append(sum_metrics(lane.measured, own, lane=lane.lane))
            sums.append(_number_families(families, lane))
    gpus = {str(metric.gpu): metric for metric in metrics}
    return ReportSums(pl.concat(sums), list(gpus.values()))


def _number_families(families: pl.DataFrame, lane: LaneTimes) -> pl.DataFrame:
    """Return the sums of a lane by family in the steps of the run (`METRIC_SUMS`)."""
    steps = lane.measured.filter(group="steps").sort("start_ns")
    return (
        families.filter(process_key=lane.process_key, device_id=lane.device_id)
        .sort("step_start_ns")
        .join_asof(steps.select("step", "start_ns", "end_ns"), left_on="step_start_ns", right_on="start_ns")
        .filter(pl.col("step_start_ns") < pl.col("end_ns"))
        .with_columns(lane=pl.lit(lane.lane, pl.UInt32), group=pl.lit("families"), item="family")
        .pipe(conform, METRIC_SUMS)
    )


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
    reports = [recorded.path for recorded in run.inputs if not is_part(recorded.path)]
    return _read_sums(run, _list_lanes(run, training), reports, _METRICS)


def read_clock_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the clocks of the SMs during the kernels of each step (`METRIC_SUMS`), without any other table of reports.

    Only reports are read that have a table of GPU metrics, as since nsys 2023.4; parts as in `read_metric_sums`.
    """
    reports = [
        recorded.path
        for recorded in run.inputs
        if not is_part(recorded.path) and _KIND in (recorded.part.facts.recorded or ())
    ]
    parts = any(is_part(recorded.path) for recorded in run.inputs)
    if not reports and not parts:
        return METRIC_SUMS.to_frame()
    compute = [
        (
            at,
            replace(lane, measured=lane.measured.filter(group="compute"), families=FAMILY_TIMES.to_frame()),
        )
        for at, lane in _list_lanes(run, training)
    ]
    sums = _read_sums(run, compute, reports, _CLOCKS)
    return sums.filter(
        pl.col("metric").is_in([name for name in sums["metric"].unique() if is_clock(name)]), group="compute"
    )


def _read_sums(
    run: Run, lanes: Sequence[tuple[int, LaneTimes]], reports: Sequence[Path], need: frozenset[Group]
) -> pl.DataFrame:
    """Read and sum the metrics of lanes; arguments: number of the report of each lane, reports to read, and their groups."""
    own = {
        path: [_move(run, lane, at) for own_at, lane in lanes if own_at == at] for at, path in _number(run)
    }
    nsys = run.batch.nsys
    read = run.batch.map("reading metrics", reports, partial(_sum_report, nsys=nsys, need=need), own)
    for path in own:
        if is_part(path):
            read[path] = _sum_part(path, own[path])
    sums = [report.sums for report in read.values()]
    done = {lane for frame in sums for lane in frame["lane"].unique()}
    others = _find_elsewhere(run, [(at, lane) for at, lane in lanes if lane.lane not in done], read)
    return pl.concat([METRIC_SUMS.to_frame(), *sums, *_sum_elsewhere(run, others, need)])


def _sum_elsewhere(
    run: Run, others: Mapping[Path, Sequence[tuple[int, LaneTimes]]], need: frozenset[Group]
) -> list[pl.DataFrame]:
    """Sum the metrics of lanes that are in the report of another process, with the kernels of their own reports.

    Args:
        run: The run.
        others: Number of the own report, and the lane, by the report with its metrics.
        need: Groups of data of these reports.
    """
    own: dict[Path, list[LaneTimes]] = {}
    for lanes in others.values():
        for own_at, lane in lanes:
            own.setdefault(run.inputs[own_at].path, []).append(lane)
    # lanes with families need no kernels
    reports = [path for path in own if not is_part(path) and any(lane.families is None for lane in own[path])]
    nsys = run.batch.nsys
    kernels = run.batch.map("reading kernels", reports, partial(_read_families, nsys=nsys), own)
    families = {lane: frame for of_report in kernels.values() for lane, frame in of_report.items()}
    wanted = {
        path: [_add_families(run, lane, families.get(lane.lane), own_at, path) for own_at, lane in lanes]
        for path, lanes in others.items()
    }
    reports = [path for path in wanted if not is_part(path)]
    read = run.batch.map("reading metrics", reports, partial(_sum_report, nsys=nsys, need=need), wanted)
    parts = [_sum_part(path, lanes) for path, lanes in wanted.items() if is_part(path)]
    return [report.sums for report in (*read.values(), *parts)]


def _sum_part(path: Path, lanes: Sequence[LaneTimes]) -> ReportSums:
    """Sum the metrics of a part, whose frames of metrics no other table needs."""
    return sum_part(read_part(path, (), version=version("nsys-pp"), optional=METRIC_FRAMES), lanes)


def _number(run: Run) -> list[tuple[int, Path]]:
    return [(at, recorded.path) for at, recorded in enumerate(run.inputs)]


def _list_lanes(run: Run, training: Training) -> list[tuple[int, LaneTimes]]:
    """List the reports and the lanes of a run, with intervals on the trace's clock."""
    keys = ["report", "process_key", "device_id"]
    measured = list_measured(training).partition_by("lane", as_dict=True)
    bus = run.roster.select(*keys, bus=pl.col("bus_location").str.to_lowercase()).unique(keys, keep="first")
    lanes = training.lanes.join(bus, on=keys, how="left", maintain_order="left")
    names = ("lane", "process_key", "device_id", "gpu", "bus")
    return [
        (
            report,
            LaneTimes(
                **{name: row[name] for name in names},
                measured=_select(
                    measured.get((row["lane"],), MEASURED_TIMES.to_frame()), run.capture_windows[report]
                ),
            ),
        )
        for row in lanes.iter_rows(named=True)
        for report in run.captures.list_reports(row["report"])
    ]


def _select(measured: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Select the intervals that start in the window of a capture."""
    since, until = window
    return measured.filter((pl.col("start_ns") >= since) & (pl.col("start_ns") < until))


def _move(run: Run, lane: LaneTimes, at: int) -> LaneTimes:
    """Map the intervals of a lane from the trace's clock to the clock of a report."""
    return replace(lane, measured=_to_report(run, lane.measured, at))


def _to_report(run: Run, frame: pl.DataFrame, at: int) -> pl.DataFrame:
    clock = run.clocks.clocks[at]
    return frame.with_columns(
        pl.Series(name, clock.to_report_times(frame[name].to_numpy())) for name in _SPAN
    )


def _add_families(
    run: Run, lane: LaneTimes, families: pl.DataFrame | None, own_at: int, path: Path
) -> LaneTimes:
    """Move a lane to the clock of a report, with its kernels, which are on the clock of its own report."""
    at = next(number for number, other in _number(run) if other == path)
    kernels = FAMILY_TIMES.to_frame() if families is None else families
    clock = run.clocks.clocks[own_at]
    kernels = kernels.with_columns(
        pl.Series(name, clock.to_trace(kernels[name].to_numpy())) for name in _SPAN
    )
    return replace(_move(run, lane, at), families=_to_report(run, kernels, at))


def _find_elsewhere(
    run: Run, lanes: Iterable[tuple[int, LaneTimes]], read: Mapping[Path, ReportSums]
) -> dict[Path, list[tuple[int, LaneTimes]]]:
    """Find the report of each lane whose GPU has metrics in another report of its machine: lanes with their own reports."""
    machines = dict(run.roster.select("report", "machine").unique("report").iter_rows())
    found: dict[Path, list[tuple[int, LaneTimes]]] = {}
    for own_at, lane in lanes:
        for at, path in _number(run):
            gpus = read[path].gpus if path in read and at != own_at else []
            if machines.get(at) == machines.get(own_at) and any(lane.has(gpu) for gpu in gpus):
                found.setdefault(path, []).append((own_at, lane))
                break
    return found


def _sum_report(
    path: Path, lanes: Sequence[LaneTimes], *, nsys: str | None, need: frozenset[Group]
) -> ReportSums:
    """Sum the metrics of a report over the intervals of lanes; of lanes without `families`, its own kernels are used."""
    report = build_report(read_report(path, need=need, nsys=nsys), is_last_use=True)
    metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None]
    if need == _CLOCKS:
        metrics = [metric for metric in metrics if is_clock(metric.metric)]
    sums = [METRIC_SUMS.to_frame()]
    for lane in lanes if metrics else ():
        own = {metric.metric: metric.samples for metric in metrics if lane.has(metric)}
        if not own:
            continue
        families = lane.families
        if families is None:
            families = list_family_times(report, lane.process_key, lane.device_id)
        steps = lane.measured.filter(group="steps")
        measured = pl.concat([lane.measured, measure_families(families, steps, lane=lane.lane)])
        sums.append(sum_metrics(measured, own, lane=lane.lane))
    gpus = {metric.gpu: replace(metric, samples=metric.samples.clear()) for metric in metrics}
    return ReportSums(pl.concat(sums), list(gpus.values()))


def _read_families(path: Path, lanes: Sequence[LaneTimes], *, nsys: str | None) -> dict[int, pl.DataFrame]:
    """Read the kernels of the lanes of a report, by lane (`FAMILY_TIMES`)."""
    report = build_report(read_report(path, need=_KERNELS, nsys=nsys), is_last_use=True)
    return {lane.lane: list_family_times(report, lane.process_key, lane.device_id) for lane in lanes}
