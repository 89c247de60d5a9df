"""Bytes of network cards and switches by step and machine, from frames that parts keep or from reports read once more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.part import METRIC_FRAMES, NETWORK_COLLECTIVES, NETWORK_WINDOWS
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Report, SampledMetric
from nsys_pp.frames.requested import NETWORK_SUMS
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_part, read_report
from nsys_pp.run.report_training import Links, find_links
from nsys_pp.run.run import Run
from nsys_pp.training.sums import NETWORK_RATES, list_machine_steps, sum_bytes
from nsys_pp.units import NS_PER_MS, NS_PER_S

MOST_WINDOWS = 100_000  # of all cards and switches of a part
_FEWEST_WINDOWS = 1_000  # of one port
# "IB: Bytes sent", "Eth: Bytes received"; the bytes of "IPoIB: ..." are also in those of its card
_BYTES = re.compile(r"(?!IPoIB)(?:\w+: )?Bytes (sent|received)$")
_MESSAGES = ("Send", "Recv")


def summarise_network(report: Report, links: Links) -> dict[str, pl.DataFrame]:
    """Build the frames of a part with the network metrics of a report (of `METRIC_FRAMES`); none without bytes.

    Args:
        report: Read with group "network_sums".
        links: Its requests of communication.
    """
    windows = list_windows(report.sampled_metrics, most=MOST_WINDOWS)
    if windows.is_empty():
        return {}
    return {"network_windows": windows, "network_collectives": list_collectives(report, links)}


def list_windows(metrics: Iterable[SampledMetric], *, most: int | None) -> pl.DataFrame:
    """List the bytes that cards and switches sent and received (`NETWORK_WINDOWS`).

    Args:
        metrics: Of a report; others than bytes of the network are left out.
        most: Largest number of rows, about: more samples are joined into windows, with the same bytes. None: no limit.
    """
    of_bytes = [metric for metric in metrics if metric.ends_ns is not None and _BYTES.match(metric.metric)]
    parts = [NETWORK_WINDOWS.to_frame()]
    own = None if most is None else max(most // max(len(of_bytes), 1), _FEWEST_WINDOWS)
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
        if own is not None and len(rates) > own:
            rates = _join_samples(rates, own)
        parts.append(
            rates.with_columns(
                source=pl.lit(metric.source),
                owner=pl.lit(metric.owner),
                port=pl.lit(metric.port),
                direction=pl.lit(metric.metric.rpartition(" ")[2]),
            ).pipe(conform, NETWORK_WINDOWS)
        )
    return pl.concat(parts)


def _join_samples(rates: pl.DataFrame, most: int) -> pl.DataFrame:
    """Join successive samples into as many windows as are allowed; their bytes are kept."""
    window = np.arange(len(rates)) * most // len(rates)
    length = pl.col("end_ns") - pl.col("start_ns")
    joined = rates.group_by(pl.Series("window", window), maintain_order=True).agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        total=(pl.col("bytes_per_ns") * length).sum(),
        peak_bytes_per_ns=pl.col("peak_bytes_per_ns").max(),
    )
    return joined.with_columns(bytes_per_ns=pl.col("total") / length)


def list_collectives(report: Report, links: Links) -> pl.DataFrame:
    """List the collectives of a report whose size is known (`NETWORK_COLLECTIVES`)."""
    requests = links.requests.filter(~pl.col("call").is_in(_MESSAGES)).drop_nulls("size_bytes")
    starts = report.gpu_ops.select("op_id", "start_ns")
    found = requests.select("op_id", "size_bytes").join(starts, on="op_id", how="inner")
    return found.sort("start_ns").pipe(conform, NETWORK_COLLECTIVES)


_GROUPS: frozenset[Group] = frozenset({"show_network", "ranges", "ops", "communication"})
_CARDS = "network cards"
_CARD = "network card"
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
    """Read the network metrics of all machines, and sum their bytes by step (`NETWORK_SUMS`).

    Metrics of a card that several reports of a machine have are those of the first one.
    """
    machines = dict(run.roster.select("report", "machine").unique("report").iter_rows())
    steps = training.steps.join(training.lanes.select("lane", "machine"), on="lane")
    of_machine = {
        machine: list_machine_steps(steps.filter(machine=machine)) for machine in set(machines.values())
    }
    wanted: dict[Path, pl.DataFrame] = {}
    for at, recorded in enumerate(run.inputs):
        if machines.get(at) is not None:
            clock, frame = run.clocks.clocks[at], of_machine[machines[at]]
            wanted[recorded.path] = frame.with_columns(
                pl.Series(name, clock.to_report_times(frame[name].to_numpy()))
                for name in ("start_ns", "end_ns")
            )
    work = partial(_sum_path, nsys=run.batch.nsys)
    read = run.batch.map("reading network metrics", list(wanted), work, wanted)
    parts = [NETWORK_SUMS.to_frame()]
    for machine in sorted(of_machine):
        sums = [
            read[recorded.path]
            for at, recorded in enumerate(run.inputs)
            if machines.get(at) == machine and recorded.path in read
        ]
        parts.append(_join(machine, sums))
    return pl.concat(parts).sort("step", "machine", "source")


def _sum_path(path: Path, steps: pl.DataFrame, *, nsys: str | None) -> _Sums:
    """Sum the bytes of cards and switches, and of collectives whose kernels start in a step, by step."""
    if is_part(path):
        frames = read_part(path, (), version=version("nsys-pp"), optional=METRIC_FRAMES).frames
        windows = frames.get("network_windows", NETWORK_WINDOWS.to_frame())
        collectives = frames.get("network_collectives", NETWORK_COLLECTIVES.to_frame())
    else:
        report = build_report(read_report(path, need=_GROUPS, nsys=nsys), is_last_use=True)
        windows = list_windows(report.sampled_metrics, most=None)
        collectives = list_collectives(report, find_links(report))
    devices = [_DEVICE_BYTES.to_frame()]
    keys = ["source", "owner", "port", "direction"]
    by_port = windows.partition_by(keys, as_dict=True, maintain_order=True)
    for (source, owner, _, direction), rates in by_port.items():
        sums = sum_bytes(conform(rates, NETWORK_RATES), steps).with_columns(
            source=pl.lit(_CARDS if source == _CARD else owner),
            owner=pl.lit(owner),
            direction=pl.lit(direction),
        )
        devices.append(conform(sums, _DEVICE_BYTES))
    in_steps = (
        collectives.select(at="start_ns", size="size_bytes")
        .sort("at")
        .join_asof(steps.sort("start_ns"), left_on="at", right_on="start_ns")
        .filter(pl.col("at") < pl.col("end_ns"))
    )
    of_step = in_steps.group_by("step").agg(collective_bytes=pl.col("size").sum())
    return _Sums(pl.concat(devices), conform(of_step, _COLLECTIVES))


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
