"""Metrics of network cards and switches, sampled by nsys -> `SampledMetric`."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.sampled_metrics import METRIC_VALUES, SampledMetric

_KEYS = ("owner", "port", "metric", "unit", "source")


def build_network_metrics(raw: RawReport) -> list[SampledMetric]:
    """Build the metrics of each port of network cards and switches, by name and unit: a value is of the interval that begins at its time.

    Samples name a port since 2025. The port is in the name of a metric where the card or switch has several with samples.
    """
    samples = raw["network_metrics"]
    if samples.is_empty():
        return []
    names = raw["network_metric_names"].unique(["list", "index"], keep="last", maintain_order=True)
    found = samples.join(names, on=["list", "index"], how="left", maintain_order="left").join(
        _list_cards(raw), on="device", how="left", maintain_order="left"
    )
    owner = pl.coalesce("of_card", pl.format("{} {}", "source", pl.col("device").fill_null(0)))
    named = found.select(
        "start",
        "end",
        "value",
        "source",
        "port",
        metric=pl.coalesce("name", pl.format("metric {}", pl.col("index").fill_null(0))),
        owner=owner,
        unit=pl.col("unit").fill_null(""),
    ).sort("start", maintain_order=True)
    ports = named.group_by("owner").agg(count=pl.col("port").n_unique())
    several = set(ports.filter(pl.col("count") > 1)["owner"])
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
