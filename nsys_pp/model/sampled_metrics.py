"""Metrics of GPUs and of the network, sampled by nsys -> COUNTERS.

GPU metrics have had two layouts. Since nsys 2023 a table has one row per sample and metric, and another one the names of
metrics; before, a sample was one generic event, its values an object of JSON. In both, the low 8 bits of the type of an
event are the id of its GPU, as in NVIDIA's own recipe `gpu_metric_util_map` of 2023.4.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import COUNTERS

_GPU_MASK = 0xFF
_UNIT = re.compile(r"\[([^\]]*)\]\s*$")  # "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"
# beginnings of names of GPU metrics; other generic events have none of them
_OF_GPUS = ("GPC Clock", "SYS Clock", "GR Active", "SM Active", "SMs Active", "SM Issue", "DRAM ")


class GpuMetric(Struct, frozen=True, kw_only=True):
    """Samples of one metric of one GPU.

    Attributes:
        bus: Bus location of the GPU, in lower case; None: unknown.
        label: "GPU 0", numbered among the GPUs of the report.
        name: Of the metric, as recorded.
        samples: `time_ns` and `value`, by time.
    """

    bus: str | None
    label: str
    name: str
    samples: pl.DataFrame

    @property
    def unit(self) -> str:
        """The unit in brackets at the end of the name; a share of the peak throughput is in percent."""
        match = _UNIT.search(self.name)
        unit = match[1] if match else ""
        return "%" if unit.endswith("%") else unit


def build_sampled_metrics(raw: RawReport, gpus: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Build the counters of all sampled metrics that were read.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.devices.number_gpus`.
        devices: `DEVICES`.

    Returns:
        `COUNTERS`. A metric of a GPU is a counter of the first process that uses the GPU; of an unused GPU, and of the
        network, one of the system: without process and device, and named after the GPU or the network card.
    """
    if all(raw[name].is_empty() for name in ("gpu_metrics", "generic_events", "network_metrics")):
        return COUNTERS.to_frame()  # usual: they are read on request
    used: dict[str, tuple[int, int]] = {}
    for process, device, bus in devices.select("process_key", "device_id", "bus_location").iter_rows():
        if bus is not None:
            used.setdefault(bus.lower(), (process, device))
    parts = []
    for metric in list_gpu_metrics(raw, gpus):
        process, device = used.get(metric.bus or "", (None, None))
        name = metric.name if process is not None else f"{metric.label}: {metric.name}"
        owner = {"process_key": pl.lit(process, pl.Int64), "device_id": pl.lit(device, pl.Int32)}
        parts.append(
            metric.samples.with_columns(**owner, name=pl.lit(name), unit=pl.lit(metric.unit)).pipe(
                conform, COUNTERS
            )
        )
    parts.sort(key=lambda part: str(part["name"][0]))
    return pl.concat([*parts, _build_network(raw).sort("name", "unit", "time_ns", maintain_order=True)])


def list_gpu_metrics(raw: RawReport, gpus: pl.DataFrame) -> list[GpuMetric]:
    """List the GPU metrics that were read, by GPU and in order of their first samples.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.devices.number_gpus`.
    """
    listed = {
        int(gpu): (bus, f"GPU {number}")
        for gpu, bus, number in reversed(gpus.select("id", "bus_location", "number").drop_nulls("id").rows())
    }
    metrics = []
    for gpu, name, samples in [*_read_typed(raw), *_read_generic(raw)]:
        bus, label = listed.get(gpu, (None, f"GPU {gpu}"))
        bus = None if bus is None else bus.lower()
        samples = samples if samples["time_ns"].is_sorted() else samples.sort("time_ns", maintain_order=True)
        metrics.append(GpuMetric(bus=bus, label=label, name=name, samples=samples))
    return metrics


def _read_typed(raw: RawReport) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Yield the GPU, the name and the samples of each metric that has one row per value."""
    names = {
        (kind, metric): name
        for kind, metric, name in raw["gpu_metric_names"].select("type", "metric", "name").iter_rows()
    }
    rows = raw["gpu_metrics"]
    for (kind, metric), samples in rows.partition_by(
        "type", "metric", as_dict=True, maintain_order=True, include_key=False
    ).items():
        name = names.get((kind, metric)) or f"metric {metric}"
        yield kind & _GPU_MASK, name, samples.rename({"time": "time_ns"})


def _read_generic(raw: RawReport) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Yield the same of metrics whose samples are objects of values."""
    others = []
    for (kind,), rows in raw["generic_events"].group_by("type", maintain_order=True):
        keys = _list_keys(rows["text"][0])
        if not any(key.startswith(_OF_GPUS) for key in keys):
            others.append(kind)
            continue
        for key in keys:
            found = pl.col("text").str.json_path_match(f"$[{json.dumps(key)}]")
            samples = rows.select(time_ns="time", value=found.cast(pl.Float64, strict=False))
            if len(samples := samples.drop_nulls("value")):
                yield int(kind) & _GPU_MASK, key, samples
    if others:
        passes = ~raw["generic_events"]["type"].is_in(others)
        left_out = raw.keep("generic_events", passes, "of other kinds than GPU metrics")
        warnings.warn(
            f"`{raw.path}`: left out {left_out:,} generic events of other kinds than GPU metrics",
            stacklevel=6,
        )


def _list_keys(text: str) -> list[str]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [key for key in values if '"' not in key] if isinstance(values, dict) else []


def _build_network(raw: RawReport) -> pl.DataFrame:
    """Build the counters of network cards and switches: a value is of the interval that begins at its time."""
    samples = raw["network_metrics"]
    names = raw["network_metric_names"].unique(["list", "index"], keep="last", maintain_order=True)
    cards = (
        pl.concat(
            [
                raw["network_cards"].join(
                    raw["network_card_names"].select("card", "name"), on="card", how="inner"
                ),
                raw["network_card_names"].select("card", "device", "name"),
            ],
            how="diagonal",
        )
        .drop_nulls(["device", "name"])
        .unique("device", keep="first", maintain_order=True)
        .select("device", of_card="name")
    )
    found = samples.join(names, on=["list", "index"], how="left", maintain_order="left").join(
        cards, on="device", how="left", maintain_order="left"
    )
    owner = pl.coalesce("of_card", pl.format("{} {}", "source", pl.col("device").fill_null(0)))
    metric = pl.coalesce("name", pl.format("metric {}", pl.col("index").fill_null(0)))
    return found.select(
        process_key=pl.lit(None, dtype=pl.Int64),
        device_id=pl.lit(None, dtype=pl.Int32),
        name=pl.format("{}: {}", owner, metric),
        unit=pl.col("unit").fill_null(""),
        time_ns="start",
        value="value",
    ).pipe(conform, COUNTERS)
