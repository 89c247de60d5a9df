"""Tables on request: their data, read from all reports and parts of a run, and why a table has no rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.search import group_pairs
from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import is_clock
from nsys_pp.frames.table import Absence
from nsys_pp.frames.training import (
    FAMILY_TIMES,
    HOST_CAUSES,
    HOST_TIMES,
    MEASURED_TIMES,
    METRIC_SUMS,
    NETWORK_SUMS,
    Explanations,
    Training,
)
from nsys_pp.model.contents import name_option
from nsys_pp.read import is_part
from nsys_pp.run.report_sums import (
    CARDS,
    CLOCKS_ALONE,
    COLLECTIVE_BYTES,
    DEVICE_BYTES,
    METRICS,
    LaneTimes,
    list_kernels,
    read_bubble_hosts,
    sum_lanes,
    sum_network,
)
from nsys_pp.run.run import Run
from nsys_pp.training.numbering import renumber_steps
from nsys_pp.training.sums import (
    list_machine_steps,
    list_measured,
)
from nsys_pp.units import NS_PER_S

_DEVICE = ["process_key", "device_id"]
_SPAN = ("start_ns", "end_ns")


def read_metric_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the GPU metrics of all lanes, and sum them over the training (`METRIC_SUMS`).

    A GPU's metrics may be in the report of another process of its machine; those of its own report come
    first.
    """
    return _read_sums(run, [*_list_lanes(run, training)], [recorded.path for recorded in run.inputs], METRICS)


def read_clock_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the clocks of the SMs during the kernels of each step (`METRIC_SUMS`), and no other table.

    Only reports with a table of GPU metrics are read, which nsys writes since 2023.4; parts as in
    `read_metric_sums`.
    """
    paths = [
        recorded.path
        for recorded in run.inputs
        if is_part(recorded.path) or "gpu_metrics" in recorded.part.facts.recorded
    ]
    if not paths:
        return METRIC_SUMS.to_frame()
    lanes = [
        replace(lane, measured=lane.measured.filter(group="compute"), families=FAMILY_TIMES.to_frame())
        for lane in _list_lanes(run, training)
    ]
    sums = _read_sums(run, lanes, paths, CLOCKS_ALONE)
    clocks = [name for name in sums["metric"].unique() if is_clock(name)]
    return sums.filter(pl.col("metric").is_in(clocks), group="compute")


def _read_sums(
    run: Run, lanes: Sequence[LaneTimes], paths: Sequence[Path], need: frozenset[Group]
) -> pl.DataFrame:
    """Read some inputs, and sum the metrics of lanes.

    Of their own reports, else of others of their machines.
    """
    machines = dict(run.roster.select("report", "machine").unique("report").iter_rows())
    work = partial(sum_lanes, nsys=run.batch.nsys, need=need)
    own = {
        recorded.path: [_move(run, lane, at) for lane in lanes if lane.report == at]
        for at, recorded in enumerate(run.inputs)
    }
    read = run.batch.map("reading metrics", paths, work, own)
    done = {lane for sums, _ in read.values() for lane in sums["lane"].unique()}
    elsewhere: dict[int, list[LaneTimes]] = {}
    for lane in (lane for lane in lanes if lane.lane not in done):
        for at, recorded in enumerate(run.inputs):
            is_near = at != lane.report and machines.get(at) == machines.get(lane.report)
            if is_near and recorded.path in read and any(map(lane.has, read[recorded.path][1])):
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
    return pl.concat([METRIC_SUMS.to_frame(), *(sums for sums, _ in (*read.values(), *found.values()))])


def _list_lanes(run: Run, training: Training) -> Iterator[LaneTimes]:
    """Yield the lanes of a run in each of their reports, with intervals on the trace's clock."""
    keys = ["report", "process_key", "device_id"]
    measured = list_measured(training).partition_by("lane", as_dict=True)
    bus = run.roster.select(*keys, bus=pl.col("bus_location").str.to_lowercase()).unique(keys, keep="first")
    lanes = training.lanes.join(bus, on=keys, how="left", maintain_order="left")
    for row in lanes.select(*keys, "lane", "gpu", "bus").iter_rows(named=True):
        times = measured.get((row["lane"],), MEASURED_TIMES.to_frame())
        for report in run.captures.list_reports(row["report"]):
            since, until = run.capture_windows[report]
            of_report = times.filter((pl.col("start_ns") >= since) & (pl.col("start_ns") < until))
            key, device = run.captures.find_process(report, row["process_key"], row["device_id"])
            own = {**row, "report": report, "process_key": key, "device_id": device}
            yield LaneTimes(**own, measured=of_report)


def _move(run: Run, lane: LaneTimes, at: int) -> LaneTimes:
    """Map the intervals of a lane from the trace's clock to the clock of a report."""
    return replace(
        lane,
        measured=_to_report(run, lane.measured, at),
        families=None if lane.families is None else _to_report(run, lane.families, at),
    )


def _to_report(run: Run, frame: pl.DataFrame, at: int) -> pl.DataFrame:
    """Map intervals from the trace's clock to the clock of a report."""
    clock = run.clocks.clocks[at]
    return frame.with_columns(
        pl.Series(name, clock.to_report_times(frame[name].to_numpy())) for name in _SPAN
    )


def _read_kernels(run: Run, lanes: Sequence[LaneTimes]) -> dict[tuple[int, int], pl.DataFrame]:
    """Read the kernels of lanes from their own reports, on the trace's clock (`FAMILY_TIMES`).

    Lanes with families need none, and parts have none.
    """
    own = group_pairs((run.inputs[lane.report].path, lane) for lane in lanes if lane.families is None)
    reports = [path for path in own if not is_part(path)]
    read = run.batch.map("reading kernels", reports, partial(list_kernels, nsys=run.batch.nsys), own)
    kernels = {}
    for path, of_path in own.items():
        for number, lane in enumerate(of_path):
            frame = read[path][number] if path in read else FAMILY_TIMES.to_frame()
            clock = run.clocks.clocks[lane.report]
            moved = [pl.Series(name, clock.to_trace(frame[name].to_numpy())) for name in _SPAN]
            kernels[lane.report, lane.lane] = frame.with_columns(moved)
    return kernels


def read_network_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the network metrics of all machines, and sum their bytes by step (`NETWORK_SUMS`).

    Metrics of a card that several reports of a machine have are those of the first one.
    """
    machines = dict(run.roster.select("report", "machine").unique("report").iter_rows())
    steps = training.steps.join(training.lanes.select("lane", "machine"), on="lane")
    of_machine = {
        machine: list_machine_steps(steps.filter(machine=machine)) for machine in set(machines.values())
    }
    wanted = {
        recorded.path: _to_report(run, of_machine[machines[at]], at)
        for at, recorded in enumerate(run.inputs)
        if machines.get(at) is not None
    }
    work = partial(sum_network, nsys=run.batch.nsys)
    read = run.batch.map("reading network metrics", list(wanted), work, wanted)
    parts = [NETWORK_SUMS.to_frame()]
    for machine in of_machine:
        devices, collectives = [DEVICE_BYTES.to_frame()], [COLLECTIVE_BYTES.to_frame()]
        seen: set[str] = set()
        for at, recorded in enumerate(run.inputs):
            if machines.get(at) == machine and recorded.path in read:
                bytes_of, collectives_of = read[recorded.path]
                devices.append(bytes_of.filter(~pl.col("owner").is_in(seen)))
                seen |= set(bytes_of["owner"])
                collectives.append(collectives_of)
        of_step = pl.concat(collectives).group_by("step").agg(pl.col("collective_bytes").sum())
        columns: dict[str, pl.Expr] = {}
        for direction in ("sent", "received"):
            of = pl.col("direction") == direction
            columns[f"{direction}_bytes"] = pl.when(of.any()).then(pl.col("bytes").filter(of).sum())
            columns[f"{direction}_peak_bytes_per_s"] = pl.col("peak_bytes_per_ns").filter(of).max() * NS_PER_S
        parts.append(
            pl.concat(devices)
            .group_by("step", "source")
            .agg(**columns)
            .join(of_step, on="step", how="left")
            .with_columns(
                machine=pl.lit(machine),
                collective_bytes=pl.when(pl.col("source") == CARDS).then("collective_bytes"),
            )
            .pipe(conform, NETWORK_SUMS)
        )
    return pl.concat(parts).sort("step", "machine", "source")


def read_host_times(run: Run, training: Training, reports: Collection[int] | None = None) -> pl.DataFrame:
    """Read the activities of hosts in bubbles of causes "host" and "data" (`HOST_TIMES`).

    Parts keep them; reports are read once more. The launching thread of a bubble is that of the call that
    launched the next operation of the GPU. Bubbles without one have the row of the bubbles alone.

    Args:
        run: The run.
        training: Its training.
        reports: Numbers of the inputs to read; None: all.
    """
    wanted = {at: one for at, one in enumerate(run.inputs) if reports is None or at in reports}
    own = {one.path: {} if is_part(one.path) else one.part.frames for one in wanted.values()}
    read = run.batch.map("reading hosts", list(own), partial(read_bubble_hosts, nsys=run.batch.nsys), own)
    parts = [HOST_TIMES.to_frame()]
    lanes = run.numbered_steps.lanes.select("lane", "report", *_DEVICE)
    kept = training.steps.select("lane", "step")
    for at, recorded in wanted.items():
        hosts = read.get(recorded.path, parts[0])
        if len(hosts):
            placed = (
                run.captures.join(hosts.with_columns(report=pl.lit(at, pl.UInt32)))
                .join(lanes, on=["report", *_DEVICE])
                .drop("report")
            )
            numbered = renumber_steps(placed, run.numbered_steps.numbers)
            parts.append(numbered.join(kept, on=["lane", "step"], how="semi").pipe(conform, HOST_TIMES))
    return pl.concat(parts).sort("lane", "step", "cause", "activity", "name", nulls_last=False)


class Requested(Struct, frozen=True, kw_only=True):
    """Data of a table on request.

    Attributes:
        read: Reads the data of a run; tables with the same function share them.
        no_rows: Why a table without a kind has no rows.
        kind: Kind of data in reports, as in `PartFacts.recorded`; None: none that an option of nsys records.
        noun: The kind in words.
    """

    read: Callable[[Run, Training], pl.DataFrame]
    no_rows: str = ""
    kind: str | None = None
    noun: str = ""


_OF_METRICS = Requested(read=read_metric_sums, kind="gpu_metrics", noun="GPU metrics")


REQUESTED: Mapping[str, Requested] = {
    "metrics": _OF_METRICS,
    "step_metrics": _OF_METRICS,
    "network": Requested(read=read_network_sums, kind="nic_metrics", noun="network metrics"),
    "host": Requested(
        read=read_host_times,
        no_rows="no activity of the host was recorded in bubbles of cause host or data",
    ),
    "overhead": Requested(
        read=lambda run, training: training.overheads,  # read with the jobs
        no_rows="no overhead was recorded on threads that launch",
    ),
}


def explain_no_rows(run: Run, training: Training, name: str) -> Absence:
    """Explain why a table of `REQUESTED` has no rows.

    An option is spelled as in the nsys that recorded the first report.
    """
    entry = REQUESTED[name]
    if name == "host" and not training.lane_states["cause"].is_in(HOST_CAUSES).any():
        return Absence("there is no bubble of cause host or data")
    if entry.kind is None:
        return Absence(entry.no_rows)
    facts = [recorded.part.facts for recorded in run.inputs]
    if any(entry.kind in fact.recorded for fact in facts):
        return Absence(f"there are no samples of {entry.noun} in the steps of any GPU with kernels")
    option = name_option(entry.kind, nsys_version=facts[0].session.nsys_version)
    what = "the report has no" if len(facts) == 1 else f"none of the {len(facts):,} reports has"
    return Absence(f"{what} {entry.noun}", (option,))


def explain(run: Run, training: Training) -> Explanations:
    """Return the functions that read what explains findings of a verdict, only where a finding needs it."""
    return Explanations(
        read_clocks=partial(read_clock_sums, run, training),
        read_hosts=partial(_read_hosts_of_lanes, run, training),
    )


def _read_hosts_of_lanes(run: Run, training: Training, lanes: Collection[int]) -> pl.DataFrame:
    """Read the activities of the hosts of some lanes whose reports recorded any (`HOST_TIMES`)."""
    own = training.lanes.filter(pl.col("lane").is_in(list(lanes)))
    recorded = [
        report
        for first in own["report"].unique().to_list()
        for report in run.captures.list_reports(first)
        # beyond calls and ranges, which the longest gaps have already
        if {"os_calls", "cpu_samples", "thread_switches"} & {*run.inputs[report].part.facts.recorded}
    ]
    return read_host_times(run, training, recorded).filter(pl.col("lane").is_in(list(lanes)))
