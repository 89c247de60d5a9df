"""Bytes of network cards and switches by step and machine: reports are read once more, with network metrics and collectives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import polars as pl
from msgspec import Struct

from nsys_pp.compose.report_training import find_links
from nsys_pp.compose.run import Run
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.groups import Group
from nsys_pp.frames.report import Report
from nsys_pp.frames.requested import NETWORK_SUMS
from nsys_pp.frames.sampled_metrics import SampledMetric
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_report
from nsys_pp.training.run.network_sums import NETWORK_RATES, list_machine_steps, sum_bytes
from nsys_pp.units import NS_PER_MS, NS_PER_S

_GROUPS: frozenset[Group] = frozenset({"show_network", "ranges", "ops", "communication"})
# "IB: Bytes sent", "Eth: Bytes received"; the bytes of "IPoIB: ..." are also in those of its card
_BYTES = re.compile(r"(?!IPoIB)(?:\w+: )?Bytes (sent|received)$")
_CARDS = "network cards"
_MESSAGES = ("Send", "Recv")
_DEVICE_BYTES = build_schema(
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
_COLLECTIVES = build_schema({"step": pl.Int64, "collective_bytes": pl.Int64}, name="COLLECTIVE_BYTES")


class _Sums(Struct, frozen=True):
    devices: pl.DataFrame  # _DEVICE_BYTES
    collectives: pl.DataFrame  # _COLLECTIVES


def read_network_sums(run: Run, training: Training) -> pl.DataFrame:
    """Read the network metrics of all machines, and sum their bytes by step (`NETWORK_SUMS`); parts have none.

    Metrics of a card that several reports of a machine have are those of the first one.
    """
    machines = dict(run.roster.select("report", "machine").unique("report").iter_rows())
    steps = training.steps.join(training.lanes.select("lane", "machine"), on="lane")
    of_machine = {
        machine: list_machine_steps(steps.filter(machine=machine)) for machine in set(machines.values())
    }
    wanted: dict[Path, pl.DataFrame] = {}
    for at, recorded in enumerate(run.inputs):
        if not is_part(recorded.path) and machines.get(at) is not None:
            clock, frame = run.clocks.clocks[at], of_machine[machines[at]]
            wanted[recorded.path] = frame.with_columns(
                pl.Series(name, clock.to_report_times(frame[name].to_numpy()))
                for name in ("start_ns", "end_ns")
            )
    read = run.batch.map(
        "reading network metrics", list(wanted), partial(_sum_report, steps=wanted, nsys=run.batch.nsys)
    )
    parts = [NETWORK_SUMS.to_frame()]
    for machine in sorted(of_machine):
        sums = [
            read[recorded.path]
            for at, recorded in enumerate(run.inputs)
            if machines.get(at) == machine and recorded.path in read
        ]
        parts.append(_join(machine, sums))
    return pl.concat(parts).sort("step", "machine", "source")


def _sum_report(path: Path, steps: Mapping[Path, pl.DataFrame], nsys: str | None) -> _Sums:
    report = build_report(read_report(path, need=_GROUPS, nsys=nsys), is_last_use=True)
    metrics = [metric for metric in report.sampled_metrics if metric.ends_ns is not None]
    parts = [_DEVICE_BYTES.to_frame(), *(_sum_metric(metric, steps[path]) for metric in metrics)]
    devices = pl.concat(parts)
    collectives = _sum_collectives(report, steps[path])
    return _Sums(devices, collectives)


def _sum_metric(metric: SampledMetric, steps: pl.DataFrame) -> pl.DataFrame:
    match = _BYTES.match(metric.metric)
    if match is None:
        return _DEVICE_BYTES.to_frame()
    rates = metric.samples.select(
        start_ns="time_ns", end_ns=metric.ends_ns, bytes_per_ns=pl.col("value") / NS_PER_MS
    ).drop_nulls()
    is_card = metric.source == "network card"
    return (
        sum_bytes(conform(rates, NETWORK_RATES), steps)
        .with_columns(
            source=pl.lit(_CARDS if is_card else metric.owner),
            owner=pl.lit(metric.owner),
            direction=pl.lit(match[1]),
        )
        .pipe(conform, _DEVICE_BYTES)
    )


def _sum_collectives(report: Report, steps: pl.DataFrame) -> pl.DataFrame:
    """Sum the data of the collectives of a report by step, in which their kernels start."""
    requests = find_links(report).requests.filter(~pl.col("call").is_in(_MESSAGES)).drop_nulls("size_bytes")
    if requests.is_empty() or steps.is_empty():
        return _COLLECTIVES.to_frame()
    starts = requests.select("op_id", "size_bytes").join(
        report.gpu_ops.select("op_id", at="start_ns"), on="op_id"
    )
    return (
        starts.sort("at")
        .join_asof(steps.sort("start_ns"), left_on="at", right_on="start_ns")
        .filter(pl.col("at") < pl.col("end_ns"))
        .group_by("step")
        .agg(collective_bytes=pl.col("size_bytes").sum())
        .pipe(conform, _COLLECTIVES)
    )


def _join(machine: str, sums: Iterable[_Sums]) -> pl.DataFrame:
    """Join the sums of the reports of a machine (`NETWORK_SUMS`)."""
    devices = [_DEVICE_BYTES.to_frame()]
    collectives = [_COLLECTIVES.to_frame()]
    seen: set[str] = set()
    for of_report in sums:
        own = of_report.devices.filter(~pl.col("owner").is_in(seen))
        devices.append(own)
        seen |= set(own["owner"])
        collectives.append(of_report.collectives)
    of_step = pl.concat(collectives).group_by("step").agg(pl.col("collective_bytes").sum())
    columns: dict[str, pl.Expr] = {}
    for direction in ("sent", "received"):
        of = pl.col("direction") == direction
        columns[f"{direction}_bytes"] = pl.when(of.any()).then(pl.col("bytes").filter(of).sum())
        columns[f"{direction}_peak_bytes_per_s"] = pl.col("peak_bytes_per_ns").filter(of).max() * NS_PER_S
    return (
        pl.concat(devices)
        .group_by("step", "source")
        .agg(**columns)
        .join(of_step, on="step", how="left")
        .with_columns(
            machine=pl.lit(machine),
            collective_bytes=pl.when(pl.col("source") == _CARDS).then("collective_bytes"),
        )
        .pipe(conform, NETWORK_SUMS)
    )
