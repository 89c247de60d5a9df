"""Sampled values -> COUNTERS and SAMPLED_METRICS.

To draw a table of nsys as counters, map it to a raw frame in `nsys_pp.read` and `nsys_pp.frames.raw`, write a
function that builds `COUNTERS` from it, and call it in `build_counters`. Traces draw all counters.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from itertools import chain

import polars as pl

from nsys_pp.arrays.columns import find_distinct, numbers, pack
from nsys_pp.arrays.search import list_groups
from nsys_pp.arrays.types import Floats
from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import COUNTERS, METRIC_VALUES, SampledMetric, is_clock, is_of_overview, parse_unit
from nsys_pp.model.activities import list_metrics
from nsys_pp.units import HERTZ_PER_MEGAHERTZ

_POOL = ("process", "device", "address")


def build_memory_pools(raw: RawReport) -> pl.DataFrame:
    """Build the counters of each pool of memory: its size, and the part in use.

    Both are 0 after it is destroyed.

    An allocation from a pool has the sizes of the pool, too. Pools of a GPU and process are numbered in order
    of their first operations, where there are several.

    Returns:
        `COUNTERS` in bytes; operations without sizes (on pools of other processes) have no sample.
    """
    rows = raw["memory_pools"].filter(pl.col("address") != 0)
    if rows.is_empty():
        return COUNTERS.to_frame()
    is_end = pl.col("is_end").fill_null(value=False)
    sizes = [pl.when(is_end).then(0).otherwise(name).alias(name) for name in ("size", "used")]
    rows = rows.with_columns(pl.col("device").fill_null(0), *sizes).sort("time", maintain_order=True)
    pools = rows.select(_POOL).unique(maintain_order=True)
    owner = ["process", "device"]
    pools = pools.with_columns(
        number=pl.int_range(1, pl.len() + 1).over(owner), several=pl.len().over(owner) > 1
    )
    rows = rows.join(pools, on=_POOL, how="left", maintain_order="left")
    name = pl.when("several").then(pl.format("memory pool {}", "number")).otherwise(pl.lit("memory pool"))
    parts = [
        rows.drop_nulls(column)
        .unique([*_POOL, "time"], keep="last", maintain_order=True)
        .select(
            process_key="process",
            device_id="device",
            name=pl.format(f"{{}} {noun}", name),
            unit=pl.lit("bytes"),
            time_ns="time",
            value=pl.col(column).cast(pl.Float64),
        )
        for column, noun in (("size", "size"), ("used", "in use"))
    ]
    return conform(pl.concat(parts), COUNTERS)


def build_processor_counters(raw: RawReport) -> pl.DataFrame:
    """Build a counter of the system for each event of each processor, cluster or component.

    Returns:
        `COUNTERS`, named like "CPU 3: instructions". Intervals without a value have no sample.
    """
    counts = raw["processor_counts"]
    if counts.is_empty():
        return COUNTERS.to_frame()
    alone = counts.filter(pl.col("set").is_null())
    joined = (
        counts.drop("event", "value")
        .drop_nulls("set")
        .join(raw["processor_values"].drop("table"), on=["source", "set"], how="inner", maintain_order="left")
    )
    names = (
        raw["processor_counter_names"]
        .drop("table")
        .unique(["source", "event"], keep="first", maintain_order=True)
    )
    # the instance of a component is added where several share a name
    listed = (
        raw["processor_components"]
        .unique("unit", keep="first", maintain_order=True)
        .drop_nulls(["unit", "name"])
    )
    with_instance = pl.format("{} {}", "name", "instance")
    is_shared = (pl.len().over("name") > 1) & pl.col("instance").is_not_null()
    rows = (
        pl.concat([alone, joined], how="diagonal")
        .drop_nulls("value")
        .join(names, on=["source", "event"], how="left", maintain_order="left")
        .join(
            listed.select(
                "unit",
                source=pl.lit("component"),
                component=pl.when(is_shared).then(with_instance).otherwise("name"),
            ),
            on=["source", "unit"],
            how="left",
            maintain_order="left",
        )
    )
    owner = pl.coalesce("component", pl.format("{} {}", "source", pl.col("unit").fill_null(0)))
    event = pl.coalesce("label", "name", pl.format("event {}", pl.col("event").fill_null(0)))
    return rows.select(
        process_key=pl.lit(None, pl.Int64),
        device_id=pl.lit(None, pl.Int32),
        name=pl.format("{}: {}", owner, event),
        unit=pl.coalesce("measure", pl.lit("count")),
        time_ns="start",
        value="value",
    ).pipe(conform, COUNTERS)


def build_counters(raw: RawReport) -> pl.DataFrame:
    """Build the counters of a report.

    Returns:
        `COUNTERS`, by name and time; empty if no table with counters was recorded.
    """
    counters = pl.concat([build_processor_counters(raw), build_memory_pools(raw)])
    return counters.sort("name", "unit", "process_key", "device_id", "time_ns", maintain_order=True)


_GPU_MASK = 0xFF
_FASTEST_MHZ = 100_000  # of a clock; more is in Hz
_SOC = "SoC"

_WHOLE = {"show_metrics", "metric_sums"}  # groups with all metrics
_OF_GPUS = _WHOLE | {"overview"}

_Wanted = Callable[[str], bool]


def build_sampled_metrics(
    raw: RawReport, gpus: pl.DataFrame, devices: pl.DataFrame
) -> tuple[SampledMetric, ...]:
    """Build all sampled metrics that were read.

    Of GPUs by name, then of the system on a chip, and of the network by name and unit.

    A metric of a GPU is one of the first process that uses the GPU; of an unused GPU, and of the network, one
    of the system: without process and device, and named after the GPU or the network card. For the overview
    alone, only its metrics and clocks are built.

    Args:
        raw: The report.
        gpus: From `nsys_pp.model.identity.number_gpus`.
        devices: `DEVICES`.
    """
    if all(
        raw[name].is_empty() for name in ("gpu_metrics", "soc_metrics", "generic_events", "network_metrics")
    ):
        return ()  # usual: they are read on request, or for the overview
    is_wanted: _Wanted = (
        (lambda metric: is_of_overview(metric) or is_clock(metric))
        if raw.groups.isdisjoint(_WHOLE)
        else (lambda _: True)
    )
    on_bus = devices.select("bus_location", "process_key", "device_id").drop_nulls("bus_location")
    used = {bus.lower(): tuple(first) for bus, *first in reversed(on_bus.rows())}
    listed = {
        int(gpu): (bus, f"GPU {number}")
        for gpu, bus, number in reversed(gpus.select("id", "bus_location", "number").drop_nulls("id").rows())
    }
    metrics: dict[tuple[str, str], SampledMetric] = {}
    for gpu, metric, samples in [*_read_typed(raw, "gpu", is_wanted), *_read_generic(raw, is_wanted)]:
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
            samples=samples.sort("time_ns", maintain_order=True),
        )
    of_soc = [
        SampledMetric(
            metric=name,
            name=f"{_SOC}: {name}",
            unit=parse_unit(name),
            samples=samples.sort("time_ns", maintain_order=True),
            source=_SOC,
        )
        for _, name, samples in _read_typed(raw, "soc", lambda _: True)
    ]
    by_name = (sorted(own, key=lambda metric: metric.name) for own in (metrics.values(), of_soc))
    return (*chain.from_iterable(by_name), *build_network_metrics(raw))


def _read_typed(raw: RawReport, of: str, wanted: _Wanted) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Yield the GPU, the name and the samples of each wanted metric that has one row per value."""
    rows = raw[f"{of}_metrics"]
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
        samples = pl.DataFrame(
            {"time_ns": numbers(rows["time"])[at], "value": _scale(name, rows["value"].to_numpy()[at])}
        )
        yield kind & _GPU_MASK, name, samples


def _scale(name: str, values: Floats) -> Floats:
    # from Hz to the unit of their names
    if parse_unit(name) == "MHz" and len(values) and values.max() > _FASTEST_MHZ:
        return values / HERTZ_PER_MEGAHERTZ
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
                f"`{raw.path}`: left out {left_out:,} generic events of other kinds than GPU metrics: "
                "`--show other` draws them",
                stacklevel=6,
            )


_KEYS = ("owner", "port", "metric", "unit", "source")


def build_network_metrics(raw: RawReport) -> list[SampledMetric]:
    """Build the metrics of each port of network cards and switches, by name and unit.

    A value is of the interval that begins at its time.

    Samples name a port since 2025. The port is in the name of a metric where the card or switch has several
    with samples.
    """
    names = raw["network_metric_names"].unique(["list", "index"], keep="last", maintain_order=True)
    named = (
        raw["network_metrics"]
        .join(names, on=["list", "index"], how="left", maintain_order="left")
        .join(_list_cards(raw), on="device", how="left", maintain_order="left")
        .select(
            "start",
            "end",
            "value",
            "source",
            "port",
            metric=pl.coalesce("name", pl.format("metric {}", pl.col("index").fill_null(0))),
            owner=pl.coalesce("of_card", pl.format("{} {}", "source", pl.col("device").fill_null(0))),
            unit=pl.col("unit").fill_null(""),
        )
        .sort("start", maintain_order=True)
    )
    several = set(named.group_by("owner").agg(pl.col("port").n_unique()).filter(pl.col("port") > 1)["owner"])
    metrics = []
    for key, part in named.partition_by(_KEYS, as_dict=True, maintain_order=True).items():
        facts = dict(zip(_KEYS, key, strict=True))
        port = "" if facts["port"] is None else str(facts["port"])
        place = f"{facts['owner']} port {port}" if facts["owner"] in several and port else facts["owner"]
        metrics.append(
            SampledMetric(
                metric=str(facts["metric"]),
                name=f"{place}: {facts['metric']}",
                unit=str(facts["unit"]),
                samples=part.rename({"start": "time_ns"}).pipe(conform, METRIC_VALUES),
                ends_ns=part["end"],
                source=str(facts["source"]),
                owner=str(facts["owner"]),
                port=port,
            )
        )
    return sorted(metrics, key=lambda metric: (metric.name, metric.unit))


def _list_cards(raw: RawReport) -> pl.DataFrame:
    """List the names of cards by the id that their samples have: `device` and `of_card`."""
    names = raw["network_card_names"]
    mapped = raw["network_cards"].join(names.select("card", "name"), on="card", how="inner")
    return (
        pl.concat([mapped, names.select("card", "device", "name")], how="diagonal")
        .drop_nulls(["device", "name"])
        .unique("device", keep="first", maintain_order=True)
        .select("device", of_card="name")
    )
