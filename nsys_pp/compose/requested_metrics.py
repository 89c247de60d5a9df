"""Sums of GPU metrics over the training of a run: reports are read once more, with metrics and names of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.memory import map_large_arrays
from nsys_pp.arrays.scratch import open_scratch
from nsys_pp.compose.run import Run
from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import KERNEL_KINDS, Report
from nsys_pp.frames.requested import MEASURED_TIMES, METRIC_SUMS
from nsys_pp.frames.sampled_metrics import SampledMetric
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_report
from nsys_pp.training.run.metric_sums import list_measured, select_in_steps, sum_metrics

_KERNELS: frozenset[Group] = frozenset({"ops", "kernel_names"})
_METRICS: frozenset[Group] = _KERNELS | {"show_metrics"}
_SPAN = ("start_ns", "end_ns")
FAMILY_TIMES = build_schema(
    {"family": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64},  # one row per kernel, any order
    name="FAMILY_TIMES",
)


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


def read_metric_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the GPU metrics of all lanes, and sum them over the training (`METRIC_SUMS`).

    A GPU's metrics may be in the report of another process of its machine; those of its own report come first.
    """
    reports = [recorded.path for recorded in run.inputs if not is_part(recorded.path)]
    lanes = _list_lanes(run, training)
    own = {
        path: [_move(run, lane, at) for own_at, lane in lanes if own_at == at] for at, path in _number(run)
    }
    nsys = run.batch.nsys
    read = run.batch.map("reading metrics", reports, partial(_sum_report, lanes=own, nsys=nsys))
    sums = [report.sums for report in read.values()]
    done = {lane for frame in sums for lane in frame["lane"].unique()}
    elsewhere = _find_elsewhere(run, [(at, lane) for at, lane in lanes if lane.lane not in done], read)
    if elsewhere:
        with_kernels = {at for of_report in elsewhere.values() for at, _ in of_report}
        paths = [path for at, path in _number(run) if at in with_kernels and path in reports]
        devices = {path: [lane for at, lane in lanes if run.inputs[at].path == path] for path in paths}
        kernels = run.batch.map("reading kernels", paths, partial(_read_families, lanes=devices, nsys=nsys))
        families = {lane: frame for of_report in kernels.values() for lane, frame in of_report.items()}
        wanted = {
            path: [
                _add_families(run, lane, families.get(lane.lane), own_at, path) for own_at, lane in of_report
            ]
            for path, of_report in elsewhere.items()
        }
        again = run.batch.map("reading metrics", list(wanted), partial(_sum_report, lanes=wanted, nsys=nsys))
        sums += [report.sums for report in again.values()]
    return pl.concat([METRIC_SUMS.to_frame(), *sums])


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
            row["report"],
            LaneTimes(
                **{name: row[name] for name in names},
                measured=measured.get((row["lane"],), MEASURED_TIMES.to_frame()),
            ),
        )
        for row in lanes.iter_rows(named=True)
    ]


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


def _sum_report(path: Path, lanes: Mapping[Path, Sequence[LaneTimes]], nsys: str | None) -> ReportSums:
    """Sum the metrics of a report over the intervals of lanes; of lanes without `families`, its own kernels are used."""
    with open_scratch(None):
        map_large_arrays()
        report = build_report(read_report(path, need=_METRICS, nsys=nsys), is_last_use=True)
        metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None]
        sums = [METRIC_SUMS.to_frame()]
        for lane in lanes[path] if metrics else ():
            own = {metric.metric: metric.samples for metric in metrics if lane.has(metric)}
            if not own:
                continue
            families = list_family_times(report, lane) if lane.families is None else lane.families
            measured = pl.concat([lane.measured, _measure_families(lane, families)])
            sums.append(sum_metrics(measured, own, lane=lane.lane))
        gpus = {metric.gpu: replace(metric, samples=metric.samples.clear()) for metric in metrics}
        return ReportSums(pl.concat(sums), list(gpus.values()))


def _read_families(
    path: Path, lanes: Mapping[Path, Sequence[LaneTimes]], nsys: str | None
) -> dict[int, pl.DataFrame]:
    """Read the kernels of the lanes of a report, by lane (`FAMILY_TIMES`)."""
    report = build_report(read_report(path, need=_KERNELS, nsys=nsys), is_last_use=True)
    return {lane.lane: list_family_times(report, lane) for lane in lanes[path]}


def list_family_times(report: Report, lane: LaneTimes) -> pl.DataFrame:
    """List the kernels of a lane of a report with their families (`FAMILY_TIMES`)."""
    is_own = (pl.col("process_key") == lane.process_key) & (pl.col("device_id") == lane.device_id)
    ops = report.gpu_ops.filter(is_own, pl.col("kind").cast(pl.String).is_in(KERNEL_KINDS))
    if len(report.op_details.row):
        full_name = report.op_details.gather("full_name", ops["op_id"])
        ops = ops.with_columns(name=pl.coalesce(full_name, "name"))
    families = classify_operations(ops.select("kind", "name", "is_communication", *_SPAN))
    return families.with_columns(pl.col("family").cast(pl.String)).pipe(conform, FAMILY_TIMES)


def _measure_families(lane: LaneTimes, families: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels in the steps of a lane as `MEASURED_TIMES`."""
    steps = lane.measured.filter(group="steps")
    return (
        select_in_steps(families, steps)
        .with_columns(
            lane=pl.lit(lane.lane, pl.UInt32),
            group=pl.lit("families"),
            item="family",
            step=pl.lit(None, pl.Int64),
        )
        .pipe(conform, MEASURED_TIMES)
    )
