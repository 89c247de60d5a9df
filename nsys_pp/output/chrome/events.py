"""Events of Chrome's JSON format, encoded as text by expressions over columns."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.output.trace.colors import chrome_names
from nsys_pp.output.trace.columns import intern
from nsys_pp.output.trace.drawing import MARK_POINTS, SLICES, is_flow


class Destination(Struct, frozen=True, kw_only=True):
    """Process and thread of the events of a subtrack, and the shift of their times."""

    process: int
    thread: int
    name: str  # of the counter
    unit: str | None  # of the counter
    shift_ns: int  # added to all times


class ArrowEnds(Struct, frozen=True, kw_only=True):
    """Ends of arrows at the slices of a subtrack; one item per slice."""

    numbers: NDArray[np.uint32]  # number of the arrow; 0 without an arrow
    enters: NDArray[np.bool_]  # an arrow ends at the slice
    leaves: NDArray[np.bool_]  # an arrow begins at the slice

    def slice(self, first: int, count: int) -> ArrowEnds:
        """Return the ends of `count` slices from `first` on."""
        end = first + count
        return ArrowEnds(
            numbers=self.numbers[first:end], enters=self.enters[first:end], leaves=self.leaves[first:end]
        )


def encode_slices(slices: pl.DataFrame, destination: Destination, ends: ArrowEnds | None) -> pl.Series:
    """Encode slices as complete events (X), one JSON object per row."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    return _collect(
        slices,
        pl.lit(f'{{"ph":"X","pid":{destination.process},"tid":{destination.thread},"ts":'),
        _microseconds(pl.col("start_ns") + destination.shift_ns),
        pl.lit(',"dur":'),
        _microseconds(duration),
        *_encode_fields(slices, SLICES),
        *(_arrows(ends) if ends else ()),
        pl.lit("}"),
    )


def encode_arrows(ends: pl.DataFrame, destination: Destination) -> pl.Series:
    """Encode ends of arrows as flow events (s, f), one JSON object per row.

    Args:
        ends: time_ns (start of the slice), number (of the arrow), is_begin.
        destination: Process and thread of the slices.
    """
    phase = pl.when("is_begin").then(pl.lit('"s"')).otherwise(pl.lit('"f","bp":"e"'))
    return _collect(
        ends,
        pl.lit('{"ph":'),
        phase,
        pl.lit(
            f',"cat":"arrow","name":"arrow","pid":{destination.process},"tid":{destination.thread},"id":"0x'
        ),
        pl.col("number").cast(pl.String),
        pl.lit('","ts":'),
        _microseconds(pl.col("time_ns") + destination.shift_ns),
        pl.lit("}"),
    )


def encode_marks(marks: pl.DataFrame, destination: Destination) -> pl.Series:
    """Encode marks as instant events (i) of their thread, one JSON object per row."""
    return _collect(
        marks,
        pl.lit(f'{{"ph":"i","s":"t","pid":{destination.process},"tid":{destination.thread},"ts":'),
        _microseconds(pl.col("time_ns") + destination.shift_ns),
        *_encode_fields(marks, MARK_POINTS),
        pl.lit("}"),
    )


def encode_counters(samples: pl.DataFrame, destination: Destination) -> pl.Series:
    """Encode samples as counter events (C), one JSON object per row; infinite values and NaN become 0."""
    value = pl.when(pl.col("value").is_finite()).then("value").otherwise(0.0)
    series = json.dumps(destination.unit or "value", ensure_ascii=False)
    return _collect(
        samples,
        pl.lit(f'{{"ph":"C","pid":{destination.process},"ts":'),
        _microseconds(pl.col("time_ns") + destination.shift_ns),
        pl.lit(f',"name":{json.dumps(destination.name, ensure_ascii=False)},"args":{{{series}:'),
        value.cast(pl.String),
        pl.lit("}}"),
    )


def encode_texts(texts: pl.Series) -> pl.Series:
    r"""Encode strings as JSON strings, with quotes; polars escapes them.

    >>> encode_texts(pl.Series(['a "b"', "\n"])).to_list()
    ['"a \\"b\\""', '"\\n"']
    """
    wrapped = pl.struct(x=pl.lit(texts)).struct.json_encode()
    encoded = wrapped.str.strip_prefix('{"x":').str.strip_suffix("}")
    # Perfetto v52 reads a quote after an escaped backslash as an escaped quote.
    return pl.select(encoded.str.replace(r'\\\\"$', r"\u005c" + '"')).to_series()


def _collect(rows: pl.DataFrame, *parts: pl.Expr) -> pl.Series:
    return rows.select(pl.concat_str(parts)).to_series()


def _microseconds(ns: pl.Expr) -> pl.Expr:
    """Format nanoseconds as microseconds with three decimals, without rounding; times must not be negative."""
    return pl.concat_str((ns // 1000).cast(pl.String), pl.lit("."), (ns % 1000).cast(pl.String).str.zfill(3))


def _encode_fields(rows: pl.DataFrame, schema: pl.Schema) -> list[pl.Expr]:
    """Encode the name, the color and the arguments of each row; null fields are omitted."""
    names = _optional(',"name":', pl.lit(_texts(rows["name"])))
    color_keys, numbers = intern(rows["color"])
    colors = _look_up(encode_texts(chrome_names(color_keys)), numbers, rows["color"])
    arguments = [column for column in rows.columns if column not in schema and not is_flow(column)]
    parts = [names, _optional(',"cname":', pl.lit(colors))]
    if arguments:
        written = [_optional(f",{json.dumps(column)}:", _value(rows[column])) for column in arguments]
        parts += [pl.lit(',"args":{'), pl.concat_str(written).str.strip_prefix(","), pl.lit("}")]
    return parts


def _arrows(ends: ArrowEnds) -> list[pl.Expr]:
    number = pl.lit(pl.Series(ends.numbers))
    leaves, enters = pl.lit(pl.Series(ends.leaves)), pl.lit(pl.Series(ends.enters))
    bind = pl.concat_str(pl.lit(',"bind_id":"0x'), number.cast(pl.String), pl.lit('"'))
    return [
        pl.when(leaves | enters).then(bind).otherwise(pl.lit("")),
        pl.when(leaves).then(pl.lit(',"flow_out":true')).otherwise(pl.lit("")),
        pl.when(enters).then(pl.lit(',"flow_in":true')).otherwise(pl.lit("")),
    ]


def _optional(key: str, value: pl.Expr) -> pl.Expr:
    return pl.concat_str(pl.lit(key), value).fill_null("")


def _value(column: pl.Series) -> pl.Expr:
    """Encode the values of an argument as JSON; nulls, infinite values and NaN are null, so they are omitted."""
    if column.dtype.is_float():
        values = pl.lit(column.cast(pl.Float64))
        return pl.when(values.is_finite()).then(values.cast(pl.String))
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return pl.lit(column).cast(pl.String)
    return pl.lit(_texts(column))


def _texts(column: pl.Series) -> pl.Series:
    """Encode a categorical column as JSON strings, each distinct string once."""
    texts, numbers = intern(column)
    return _look_up(encode_texts(texts), numbers, column)


def _look_up(texts: pl.Series, numbers: NDArray[np.uint32], column: pl.Series) -> pl.Series:
    if texts.is_empty():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    rows = texts.gather(np.maximum(numbers, 1) - 1)
    if not column.null_count():
        return rows
    return pl.select(pl.when(pl.lit(column.is_not_null())).then(pl.lit(rows))).to_series()
