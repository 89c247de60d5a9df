"""Metrics of GPUs, of the network and of systems on a chip, sampled by nsys -> `SampledMetric`.

GPU metrics have had two layouts. Since nsys 2023 a table has one row per sample and metric, and another one the names of
metrics; before, a sample was one generic event, its values an object of JSON. In both, the low 8 bits of the type of an
event are the id of its GPU, as in NVIDIA's own recipe `gpu_metric_util_map` of 2023.4. Metrics of systems on a chip have the newer one.

Clocks have the unit MHz in their names, by the files of metric sets of nsys 2024.2, and yet tables have Hz.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator

import polars as pl

from nsys_pp.arrays.columns import find_distinct, numbers, pack
from nsys_pp.arrays.order import list_groups
from nsys_pp.arrays.scratch import move_columns
from nsys_pp.arrays.types import Floats
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.sampled_metrics import SampledMetric, is_clock, is_of_overview, parse_unit
from nsys_pp.model.generic_events import list_metrics
from nsys_pp.model.network_metrics import build_network_metrics
from nsys_pp.units import HERTZ_PER_MEGAHERTZ

_GPU_MASK = 0xFF
_FASTEST_MHZ = 100_000  # of a clock; more is in Hz
_FRAMES = ("gpu_metrics", "soc_metrics", "generic_events", "network_metrics")
_SOC = "SoC"

_WHOLE = {"show_metrics", "metric_sums"}  # groups with all metrics
_OF_GPUS = _WHOLE | {"overview"}

_Wanted = Callable[[str], bool]


def build_sampled_metrics(
    raw: RawReport, gpus: pl.DataFrame, devices: pl.DataFrame
) -> tuple[SampledMetric, ...]:
    """Build all sampled metrics that were read: of GPUs by name, then of the system on a chip, and of the network by name and unit.

    A metric of a GPU is one of the first process that uses the GPU; of an unused GPU, and of the network, one of the system:
    without process and device, and named after the GPU or the network card. For the overview alone, only its metrics
    and clocks are built.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.devices.number_gpus`.
        devices: `DEVICES`.
    """
    if all(raw[name].is_empty() for name in _FRAMES):
        return ()  # usual: they are read on request, or for the overview
    wanted = _is_of_default if raw.groups.isdisjoint(_WHOLE) else _is_any
    used: dict[str, tuple[int, int]] = {}
    for process, device, bus in devices.select("process_key", "device_id", "bus_location").iter_rows():
        if bus is not None:
            used.setdefault(bus.lower(), (process, device))
    listed = {
        int(gpu): (bus, f"GPU {number}")
        for gpu, bus, number in reversed(gpus.select("id", "bus_location", "number").drop_nulls("id").rows())
    }
    metrics: dict[tuple[str, str], SampledMetric] = {}
    for gpu, metric, samples in [*_read_typed(raw, "gpu", wanted), *_read_generic(raw, wanted)]:
        bus, label = listed.get(gpu, (None, f"GPU {gpu}"))
        bus = None if bus is None else bus.lower()
        process, device = used.get(bus or "", (None, None))
        before = metrics.get((label, metric))
        if before is not None:  # of two types of event
            samples = pl.concat([before.samples, samples])
        metrics[label, metric] = SampledMetric(
            process_key=process,
            device_id=device,
            gpu=label,
            bus=bus,
            metric=metric,
            name=metric if process is not None else f"{label}: {metric}",
            unit=parse_unit(metric),
            samples=samples
            if samples["time_ns"].is_sorted()
            else samples.sort("time_ns", maintain_order=True),
        )
    of_gpus = sorted(metrics.values(), key=lambda metric: metric.name)
    return (*of_gpus, *_build_soc(raw), *build_network_metrics(raw))


def _is_any(_: str) -> bool:
    return True


def _is_of_default(metric: str) -> bool:
    return is_of_overview(metric) or is_clock(metric)


def _build_soc(raw: RawReport) -> list[SampledMetric]:
    """Build the metrics of the system on a chip, by name."""
    metrics = [
        SampledMetric(
            metric=name,
            name=f"{_SOC}: {name}",
            unit=parse_unit(name),
            samples=samples
            if samples["time_ns"].is_sorted()
            else samples.sort("time_ns", maintain_order=True),
            source=_SOC,
        )
        for _, name, samples in _read_typed(raw, "soc", _is_any)
    ]
    return sorted(metrics, key=lambda metric: metric.name)


def _read_typed(raw: RawReport, of: str, wanted: _Wanted) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Yield the GPU, the name and the samples of each wanted metric that has one row per value."""
    rows = raw[f"{of}_metrics"]
    if rows.is_empty():
        return
    names = {
        (kind, metric): name
        for kind, metric, name in raw[f"{of}_metric_names"].select("type", "metric", "name").iter_rows()
    }
    first, code = find_distinct(pack(numbers(rows["type"]), numbers(rows["metric"])))
    listed = rows[first].select("type", "metric").rows()
    for (kind, metric), at in zip(listed, list_groups(code, len(first)), strict=True):
        name = names.get((kind, metric)) or f"metric {metric}"
        if not wanted(name):
            continue
        values = _scale(name, rows["value"].to_numpy()[at])
        samples = pl.DataFrame({"time_ns": numbers(rows["time"])[at], "value": values})
        yield kind & _GPU_MASK, name, move_columns(samples)


def _scale(name: str, values: Floats) -> Floats:
    """Convert clocks in Hz to the unit of their names."""
    if parse_unit(name) == "MHz" and len(values) and values.max() > _FASTEST_MHZ:
        scaled: Floats = values / HERTZ_PER_MEGAHERTZ
        return scaled
    return values


def _read_generic(raw: RawReport, wanted: _Wanted) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Yield the same of metrics whose samples are objects of values."""
    events = raw["generic_events"]
    if events.is_empty() or raw.groups.isdisjoint(_OF_GPUS):
        return
    metrics = list_metrics(raw)
    for kind, names in metrics.items():
        rows = events.filter(type=kind)
        for name in filter(wanted, names):
            found = pl.col("text").str.json_path_match(f"$[{json.dumps(name)}]")
            samples = rows.select(time_ns="time", value=found.cast(pl.Float64, strict=False))
            if len(samples := samples.drop_nulls("value")):
                values = _scale(name, samples["value"].to_numpy())
                yield kind & _GPU_MASK, name, samples.with_columns(value=values)
    is_metric = events["type"].is_in([*metrics])
    if "show_other" not in raw.groups and not is_metric.all():
        left_out = raw.keep("generic_events", is_metric, "of other kinds than GPU metrics")
        if "show_metrics" in raw.groups:
            warnings.warn(
                f"`{raw.path}`: left out {left_out:,} generic events of other kinds than GPU metrics: `--show other` draws them",
                stacklevel=6,
            )
