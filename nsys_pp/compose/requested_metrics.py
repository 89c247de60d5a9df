"""Sums of GPU metrics over the training of a run: reports are read once more, with metrics and names of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.memory import map_large_arrays
from nsys_pp.arrays.scratch import open_scratch
from nsys_pp.compose.metric_lanes import LaneTimes, ReportSums, list_family_times
from nsys_pp.compose.part_metrics import sum_part
from nsys_pp.compose.run import Run
from nsys_pp.frames.groups import Group
from nsys_pp.frames.part_metrics import METRIC_FRAMES
from nsys_pp.frames.requested import FAMILY_TIMES, MEASURED_TIMES, METRIC_SUMS
from nsys_pp.frames.sampled_metrics import is_clock
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_part, read_report
from nsys_pp.training.run.metric_sums import list_measured, measure_families, sum_metrics

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
    with open_scratch(None):
        map_large_arrays()
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
