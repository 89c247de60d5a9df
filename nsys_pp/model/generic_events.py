"""Generic events of the system, such as ftrace and ETW events -> ACTIVITIES.

nsys exports them as JSON, with their types: a type is an object with the name of the event as `Name`, as in the queries of
NVIDIA's user guide of 2024.2 ("Fetching Generic Events in JSON Format"). Since 2025 the name of a type is a string id, JSON may be
absent, and values are rows of their own. Before 2023, samples of GPU metrics were generic events, too: objects of values by metric.
They are counters (`nsys_pp.model.sampled_metrics`).
"""

from __future__ import annotations

import json

import polars as pl

from nsys_pp.frames.activities import ACTIVITIES
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.names import NAME
from nsys_pp.frames.raw import RawReport
from nsys_pp.model.names import resolve

ROW = "generic events"
# beginnings of names of GPU metrics; other generic events have none of them
_OF_GPUS = ("GPC Clock", "SYS Clock", "GR Active", "SM Active", "SMs Active", "SM Issue", "DRAM ")


def list_metrics(raw: RawReport) -> dict[int, list[str]]:
    """List the names of metrics by type of event, of types whose events are samples of GPU metrics."""
    texts = raw["generic_events"].drop_nulls("text")
    first = texts.unique("type", keep="first", maintain_order=True)
    keys = {kind: _list_keys(text) for kind, text in first.select("type", "text").iter_rows()}
    return {kind: names for kind, names in keys.items() if any(name.startswith(_OF_GPUS) for name in names)}


def build_generic_events(raw: RawReport) -> pl.DataFrame:
    """Build an instant of the system, or of the thread, for each event that is no sample of GPU metrics.

    Returns:
        `ACTIVITIES`: `detail` is the event's own text, or its values as JSON. Empty where they were not asked for.
    """
    if "show_other" not in raw.groups or raw["generic_events"].is_empty():
        return ACTIVITIES.to_frame()
    others = raw["generic_events"].filter(~pl.col("type").is_in([*list_metrics(raw)]))
    types = raw["generic_event_types"].unique("type", keep="last", maintain_order=True)
    own_name = resolve(types["name_id"], raw["strings"], dtype=pl.String())
    of_json = types["text"].map_elements(_find_name, return_dtype=pl.String)
    named = types.select("type", name=pl.coalesce(own_name, of_json))
    joined = others.join(named, on="type", how="left", maintain_order="left")
    if joined["text"].null_count():
        texts = _write_values(raw, joined.select("id", "type"))
        joined = joined.join(texts, on="id", how="left", maintain_order="left").with_columns(
            text=pl.coalesce("text", "of_values")
        )
    return joined.select(
        row=pl.lit(ROW).cast(pl.Categorical()),
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="time",
        name=pl.col("name").fill_null(pl.format("type {}", "type")).cast(NAME),
        detail=pl.col("text").cast(NAME),
    )


def _write_values(raw: RawReport, events: pl.DataFrame) -> pl.DataFrame:
    """Write the values of events as objects of JSON: `id` and `of_values`, one row per event with values."""
    fields = raw["generic_fields"].unique(["type", "field"], keep="last", maintain_order=True)
    names = resolve(fields["name_id"], raw["strings"], dtype=pl.String())
    own = raw["generic_values"].join(
        events.drop_nulls("id").unique("id"), on="id", how="inner", maintain_order="left"
    )
    found = own.join(
        fields.select("type", "field", name=names), on=["type", "field"], how="left", maintain_order="left"
    )
    name = pl.coalesce("name", pl.format("field {}", pl.col("field").fill_null(0)))
    value = pl.coalesce(pl.col("integer", "unsigned", "float", "double").cast(pl.String), pl.lit("null"))
    entries = found.sort("id", "field", maintain_order=True).select(
        "id", entry=pl.format('"{}": {}', name.str.replace_all('"', "'", literal=True), value)
    )
    texts = entries.group_by("id", maintain_order=True).agg(pl.col("entry").str.join(", "))
    return texts.select("id", of_values=pl.format("{{{}}}", "entry"))


def _list_keys(text: str) -> list[str]:
    values = _parse(text)
    return [key for key in values if '"' not in key] if isinstance(values, dict) else []


def _find_name(text: str) -> str | None:
    values = _parse(text)
    name = values.get("Name") if isinstance(values, dict) else None
    return name if isinstance(name, str) and name else None


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
