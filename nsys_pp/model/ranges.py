"""NVTX events -> RANGES and MARKS."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    are_among,
    as_numbers,
    gather,
    has_value,
    index_rows,
    is_among,
    keep_rows,
    numbers,
    pack,
)
from nsys_pp.arrays.search import number_keys
from nsys_pp.frames.conform import NAME, build_nulls, conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import MARKS, RANGE_KIND, RANGES
from nsys_pp.model.names import Structures, format_payloads, resolve

_ALPHA = 0xFF00_0000


def split_events(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split the events of `name_events` into ranges and marks."""
    is_range, is_mark = are_among(events["kind"], RANGE_KIND.categories.to_list(), ["mark"])
    return keep_rows(events, is_range), keep_rows(events, is_mark)


def build_ranges(ranges: pl.DataFrame, capture_end_ns: int | None) -> pl.DataFrame:
    """Build the ranges; ranges that are open at the end of the capture end there.

    nsys writes the end of the capture as their end, or no end (older versions, imported reports); as in
    NVIDIA's reports, they then end with the last event of any range.

    Args:
        ranges: From `split_events`.
        capture_end_ns: End of the capture on the report's clock; None: unknown.

    Returns:
        `RANGES` in order of `range_id`.
    """
    last = max(
        (time for time in (ranges["start"].max(), ranges["end"].max()) if isinstance(time, int)), default=0
    )
    end, other_thread = numbers(ranges["end"]), ranges["end_thread"]
    if other_thread.null_count() < len(ranges):
        thread = numbers(other_thread)
        other_thread = as_numbers("", np.where(thread == numbers(ranges["thread"]), NEVER, thread))
    is_open = end == NEVER
    if capture_end_ns is not None:
        is_open |= end == capture_end_ns
    return ranges.select(
        range_id="row",
        kind=pl.col("kind").cast(RANGE_KIND),
        process_key="process_key",
        thread_key="thread",
        end_thread_key=other_thread,
        start_ns="start",
        end_ns=pl.col("end").fill_null(last),
        is_open=pl.Series(is_open),
        domain="domain_name",
        name="name",
        category="category_name",
        color_argb="color_argb",
        payload="payload",
    ).pipe(conform, RANGES)


def build_marks(marks: pl.DataFrame) -> pl.DataFrame:
    """Build the marks.

    Args:
        marks: From `split_events`.

    Returns:
        `MARKS` in order of `mark_id`.
    """
    return marks.select(
        mark_id="row",
        process_key="process_key",
        thread_key="thread",
        time_ns="start",
        domain="domain_name",
        name="name",
        category="category_name",
        color_argb="color_argb",
        payload="payload",
    ).pipe(conform, MARKS)


def name_events(raw: RawReport, structures: Sequence[Structures]) -> pl.DataFrame:
    """Resolve the names, domains, categories, colors and payloads of NVTX events.

    Each process numbers its own domains and categories. A domain without a recorded name (it was created
    before the capture) is named `domain 3`, a category without a name `7`.

    Returns:
        The events of `raw`, by `row`, with `process_key`, `name`, `domain_name`,
        `category_name`, `color_argb` and `payload`.
    """
    is_naming = is_among(raw["nvtx"]["kind"], ["domain", "category"])
    events = keep_rows(raw["nvtx"], ~is_naming)
    if not events["row"].is_sorted():
        events = events.sort("row")
    events = _key(events, _message(events, raw, NAME))
    naming = keep_rows(raw["nvtx"], is_naming)
    naming = _key(naming, _message(naming, raw, pl.String()))
    events = _name_by(events, naming, ["process_key", "domain"])
    events = _name_by(events, naming, ["process_key", "domain", "category"])
    if events["color"].null_count() < events.height:
        color = pl.col("color").cast(pl.UInt32, strict=False)
        has_alpha = color & _ALPHA != 0  # Python's nvtx writes 0
        events = events.with_columns(color_argb=pl.when(has_alpha).then(color).otherwise(color | _ALPHA))
    else:
        events = _add_nulls(events, "color_argb", pl.UInt32())
    payloads = format_payloads(raw, structures)
    if payloads.is_empty():
        return _add_nulls(events, "payload", pl.String())
    return events.join(payloads, on="row", how="left", maintain_order="left")


def _add_nulls(events: pl.DataFrame, name: str, dtype: pl.DataType) -> pl.DataFrame:
    # needs no memory
    return events.hstack([build_nulls(name, dtype, events.height)])


def _key(events: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    return events.with_columns(
        pl.col("domain").fill_null(0),  # the default domain
        process_key=process_key(events["thread"]),
        name=names,
    )


def _message(events: pl.DataFrame, raw: RawReport, dtype: pl.DataType) -> pl.Series:
    text, is_named_apart = events["text"], events["text"].null_count() < events.height
    registered = resolve(events["text_id"], raw["strings"], dtype=dtype)
    if not is_named_apart or not registered.null_count():
        return registered

    if text.dtype != dtype:
        text = text.cast(pl.String).cast(dtype)
    if registered.null_count() == len(registered):
        return text.alias(registered.name)
    return registered.zip_with(pl.Series("", has_value(registered)), text)


def _name_by(events: pl.DataFrame, naming: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add the name of the last key, `domain_name` or `category_name`; null where that key is 0."""
    number, column = keys[-1], f"{keys[-1]}_name"
    if not (events[number] != 0).any():
        return _add_nulls(events, column, NAME)
    columns = [numbers(events[key]) for key in keys]
    different = [column for column in columns if (column != column[0]).any()] or columns[:1]
    first, value = number_keys(different[0] if len(different) == 1 else pack(*different))
    rows = naming.filter(pl.col("kind") == number)[["name", *keys]].rows()
    name_of: dict[tuple[object, ...], str | None] = {tuple(of): text for text, *of in reversed(rows)}
    prefix = "domain " if number == "domain" else ""
    names: list[str | None] = []
    for key in index_rows(events[keys], first).iter_rows():
        name = name_of.get(key)
        unnamed = f"{prefix}{key[-1]}" if key[-1] else None
        names.append(unnamed if name is None or unnamed is None else name)
    return events.hstack([gather(pl.Series(column, names, NAME), value)])
