"""Frames of a part with metrics of GPUs and of the network: samples or means of windows, of bounded number, and sums by family of kernels.

Parts of reports without these metrics have no such frames.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.frames.conform import build_schema

METRIC_WINDOWS = build_schema(
    {  # one row per window, by GPU and metric, then time_ns; a value is valid until the next row
        "process_key": pl.Int64,  # first process that uses the GPU; null: none
        "device_id": pl.Int32,
        "gpu": pl.String,  # of `SampledMetric`
        "bus": pl.String,
        "metric": pl.String,
        "time_ns": pl.Int64,  # on the report's clock
        "value": pl.Float64,  # mean of the window
        "peak": pl.Float64,  # largest sample in it
    },
    name="METRIC_WINDOWS",
)

METRIC_FAMILIES = build_schema(
    {  # one row per device, metric, step and family of kernels, of the samples of the report; any order
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "metric": pl.String,
        "family": pl.String,
        "step_start_ns": pl.Int64,  # of `STEPS`
        "integral": pl.Float64,
        "time_ns": pl.Int64,
        "peak": pl.Float64,
    },
    name="METRIC_FAMILIES",
)

NETWORK_WINDOWS = build_schema(
    {  # bytes that network cards and switches sent and received; one row per window, by source, owner, port and direction, then start_ns
        "source": pl.String,  # of `SampledMetric`, and likewise owner and port
        "owner": pl.String,
        "port": pl.String,
        "direction": pl.String,  # "sent" or "received"
        "start_ns": pl.Int64,  # on the report's clock
        "end_ns": pl.Int64,
        "bytes_per_ns": pl.Float64,  # mean
        "peak_bytes_per_ns": pl.Float64,  # of the largest sample
    },
    name="NETWORK_WINDOWS",
)

NETWORK_COLLECTIVES = build_schema(
    {  # one row per collective of known size, of reports with network metrics; by start_ns
        "start_ns": pl.Int64,  # of its kernel, on the report's clock
        "size_bytes": pl.Int64,
    },
    name="NETWORK_COLLECTIVES",
)

METRIC_FRAMES: Mapping[str, pl.Schema] = {
    "metric_windows": METRIC_WINDOWS,
    "metric_families": METRIC_FAMILIES,
    "network_windows": NETWORK_WINDOWS,
    "network_collectives": NETWORK_COLLECTIVES,
}
"""Frames by name, which a part may lack."""
