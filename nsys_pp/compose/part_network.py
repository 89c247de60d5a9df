"""Bytes of network cards and switches in parts: frames of bounded size."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import polars as pl

from nsys_pp.compose.report_training import Links
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part_metrics import NETWORK_COLLECTIVES, NETWORK_WINDOWS
from nsys_pp.frames.report import Report
from nsys_pp.frames.sampled_metrics import SampledMetric
from nsys_pp.units import NS_PER_MS

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
        match = _BYTES.match(metric.metric)
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
                direction=pl.lit(match[1] if match else ""),
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
