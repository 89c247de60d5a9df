"""Metrics of GPUs and of the network that nsys samples, one record per metric: samples are many, and have no column of texts."""

from __future__ import annotations

import re

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema

METRIC_VALUES = build_schema(
    {  # one row per sample, by time_ns; a value is valid until the next sample
        "time_ns": pl.Int64,
        "value": pl.Float64,
    },
    name="METRIC_VALUES",
)

_UNIT = re.compile(r"\s*\[([^\]]*)\]\s*$")  # "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"
_OVERVIEW = (
    re.compile(r"SMs? Active\b"),
    re.compile(r"Tensor Active\b"),
    re.compile(r"DRAM Read\b"),
    re.compile(r"DRAM Write\b"),
)
_CLOCK = re.compile(r"GPC Clock\b")


class SampledMetric(Struct, frozen=True, kw_only=True):
    """Samples of one metric of one GPU, network card or switch.

    Attributes:
        process_key: First process that uses the GPU; None: a metric of the system.
        device_id: CUDA ordinal in that process; None: a metric of the system.
        gpu: "GPU 0", numbered among the GPUs of the report; None: not of a GPU.
        bus: Bus location of the GPU, in lower case; None: unknown.
        metric: Name as recorded: "SMs Active [Throughput %]", "IB: Bytes sent".
        name: Name of its row: with its GPU, card or switch, if that is not the owner of the row.
        unit: "%", "MHz", "B/ms", ...; "" where unknown.
        samples: `METRIC_VALUES`.
        ends_ns: End of the interval of each sample; None: each is valid until the next one.
        source: "network card", "IB switch" or "SoC"; "": a GPU.
        owner: Name of the card or switch; "": a GPU, or the system on a chip.
        port: Number of its port; "": not recorded.
    """

    process_key: int | None = None
    device_id: int | None = None
    gpu: str | None = None
    bus: str | None = None
    metric: str
    name: str
    unit: str
    samples: pl.DataFrame
    ends_ns: pl.Series | None = None
    source: str = ""
    owner: str = ""
    port: str = ""


def parse_unit(metric: str) -> str:
    """Return the unit in brackets at the end of the name of a metric; a share of the peak throughput is in percent.

    >>> parse_unit("SMs Active [Throughput %]"), parse_unit("GPC Clock Frequency [MHz]"), parse_unit("SM Active")
    ('%', 'MHz', '')
    """
    match = _UNIT.search(metric)
    unit = match[1] if match else ""
    return "%" if unit.endswith("%") else unit


def drop_unit(metric: str) -> str:
    """Return the name of a metric without its unit.

    >>> drop_unit("DRAM Read Bandwidth [Throughput %]")
    'DRAM Read Bandwidth'
    """
    return _UNIT.sub("", metric)


def is_of_overview(metric: str) -> bool:
    """Return whether a metric is in the overview of utilisation: shares of active SMs, of tensor cores and of memory bandwidth.

    >>> is_of_overview("Tensor Active / FP16 Active [Throughput %]"), is_of_overview("SM Issue [Throughput %]")
    (True, False)
    """
    return parse_unit(metric) in ("%", "") and any(pattern.match(metric) for pattern in _OVERVIEW)


def rank_metric(metric: str) -> int:
    """Return the rank of a metric in tables: metrics of the overview come first, then clocks, then all others.

    >>> rank_metric("SM Active"), rank_metric("DRAM Read Bandwidth [Throughput %]"), rank_metric("SM Issue")
    (0, 2, 5)
    """
    first = (*_OVERVIEW, _CLOCK)
    return next((rank for rank, pattern in enumerate(first) if pattern.match(metric)), len(first))


def is_clock(metric: str) -> bool:
    """Return whether a metric is the clock of the SMs.

    >>> is_clock("GPC Clock Frequency [MHz]"), is_clock("SYS Clock Frequency [MHz]")
    (True, False)
    """
    return _CLOCK.match(metric) is not None
