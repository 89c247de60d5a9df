"""Metrics of GPUs and of the network, sampled by nsys -> COUNTERS.

GPU metrics have had two layouts. Since nsys 2023 a table has one row per sample and metric, and another one the names of
metrics; before, a sample was one generic event, its values an object of JSON. In both, the low 8 bits of the type of an
event are the id of its GPU, as in NVIDIA's own recipe `gpu_metric_util_map` of 2023.4.
"""

from __future__ import annotations

import json
import warnings

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import COUNTERS

_GPU_MASK = 0xFF
_UNIT = r"\[([^\]]*)\]\s*$"  # "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"
# beginnings of names of GPU metrics; other generic events have none of them
_OF_GPUS = ("GPC Clock", "SYS Clock", "GR Active", "SM Active", "SMs Active", "SM Issue", "DRAM ")
_ORDER = ["name", "unit", "process_key", "device_id", "time_ns"]


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
    parts = [_assign_gpus(list_gpu_samples(raw, gpus), devices), _build_network(raw)]
    return pl.concat(parts).sort(_ORDER, maintain_order=True)


def list_gpu_samples(raw: RawReport, gpus: pl.DataFrame) -> pl.DataFrame:
    """List the samples of GPU metrics.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.devices.number_gpus`.

    Returns:
        `bus` (bus location of the GPU in lower case; null where unknown), `label` ("GPU 0"), `name`, `unit`, `time_ns`, `value`.
    """
    listed = gpus.select(
        gpu=pl.col("id").cast(pl.Int64),
        bus=pl.col("bus_location").str.to_lowercase(),
        listed=pl.format("GPU {}", "number"),
    ).unique("gpu", keep="first", maintain_order=True)
    return (
        pl.concat([_read_typed(raw), _read_generic(raw)])
        .join(listed, on="gpu", how="left", maintain_order="left")
        .select(
            "bus",
            "name",
            "time_ns",
            "value",
            label=pl.coalesce("listed", pl.format("GPU {}", "gpu")),
            unit=_find_unit(),
        )
    )


def _read_typed(raw: RawReport) -> pl.DataFrame:
    """Return `gpu`, `name`, `time_ns` and `value` of the samples with one row per value."""
    samples = raw["gpu_metrics"].drop_nulls(["time", "type", "metric", "value"])
    names = raw["gpu_metric_names"].unique(["type", "metric"], keep="last", maintain_order=True)
    return samples.join(names, on=["type", "metric"], how="left", maintain_order="left").select(
        gpu=pl.col("type") & _GPU_MASK,
        name=pl.coalesce("name", pl.format("metric {}", "metric")),
        time_ns="time",
        value="value",
    )


def _read_generic(raw: RawReport) -> pl.DataFrame:
    """Return the same of the samples with an object of values each."""
    events = raw["generic_events"].drop_nulls()
    parts = [
        pl.DataFrame(
            schema={"gpu": pl.Int64, "name": pl.String, "time_ns": pl.Int64, "value": pl.Float64},
        )
    ]
    left_out = 0
    for (kind,), rows in events.group_by("type", maintain_order=True):
        keys = _list_keys(rows["text"][0])
        if not any(key.startswith(_OF_GPUS) for key in keys):
            left_out += len(rows)
            continue
        parts += [
            rows.select(
                gpu=pl.lit(kind, dtype=pl.Int64) & _GPU_MASK,
                name=pl.lit(key),
                time_ns="time",
                value=pl.col("text")
                .str.json_path_match(f"$[{json.dumps(key)}]")
                .cast(pl.Float64, strict=False),
            ).drop_nulls("value")
            for key in keys
        ]
    if left_out:
        warnings.warn(
            f"`{raw.path}`: left out {left_out:,} generic events of other kinds than GPU metrics",
            stacklevel=4,
        )
    return pl.concat(parts)


def _list_keys(text: str) -> list[str]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [key for key in values if '"' not in key] if isinstance(values, dict) else []


def _assign_gpus(samples: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Find the process and device of each sample's GPU; a GPU that no process uses is in the name."""
    used = (
        devices.select("process_key", "device_id", bus=pl.col("bus_location").str.to_lowercase())
        .drop_nulls("bus")
        .unique("bus", keep="first", maintain_order=True)
    )
    is_used = pl.col("process_key").is_not_null()
    return (
        samples.join(used, on="bus", how="left", maintain_order="left")
        .with_columns(name=pl.when(is_used).then("name").otherwise(pl.format("{}: {}", "label", "name")))
        .pipe(conform, COUNTERS)
    )


def _find_unit() -> pl.Expr:
    """Return the unit in brackets at the end of a name; a share of the peak throughput is in percent."""
    unit = pl.col("name").str.extract(_UNIT).fill_null("")
    return pl.when(unit.str.ends_with("%")).then(pl.lit("%")).otherwise(unit)


def _build_network(raw: RawReport) -> pl.DataFrame:
    """Build the counters of network cards and switches: a value is of the interval that begins at its time."""
    samples = raw["network_metrics"].drop_nulls(["start", "value"])
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
