"""Schemas of frames, the type of names, `conform`, and the `repr` of dataclasses that hold frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

_MOST_NAMES = 6
_MOST_CHARACTERS = 60
_MOST_LINES = 4
_EMPTY = ("None", "False", "<none>", "{}")


class ShortRepr:
    """Base of dataclasses (with `repr=False`) whose `repr` has counts, not contents, and the verdict."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the class with its public fields that are not empty, and four lines of its verdict."""
        own = [field.name for field in fields(self) if field.repr]  # type: ignore[arg-type]  # of subclasses
        values = {name: getattr(self, name) for name in own if not name.startswith("_")}
        verdict = values.pop("verdict", None)
        texts = {name: describe_value(value) for name, value in values.items()}
        shown = ", ".join(f"{name}={text}" for name, text in texts.items() if text not in _EMPTY)
        return "\n".join(
            [f"{type(self).__name__}({shown})", *(verdict.lines[:_MOST_LINES] if verdict else [])]
        )


def describe_value(value: Any) -> str:
    """Return a value in a few characters: the size of a frame or a list, the keys of a mapping.

    >>> frame, words = pl.DataFrame({"a": [1, 2]}), ["x"] * 100
    >>> describe_value(frame), describe_value(words), describe_value({"a": 1, "b": 2})
    ('<2 rows>', '<100 items>', '{a, b}')
    """
    if isinstance(value, pl.DataFrame):
        return f"<{value.height:,} rows>"
    if isinstance(value, Mapping):
        names = [str(key) for key in value]
        more = [f"and {len(names) - _MOST_NAMES} more"] * (len(names) > _MOST_NAMES)
        return "{" + ", ".join([*names[:_MOST_NAMES], *more]) + "}"
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes)):
        return f"<{len(value):,} items>" if value else "<none>"
    if isinstance(value, ShortRepr):
        return f"<{type(value).__name__}>"
    if isinstance(value, Path):
        return repr(str(value))
    if type(value) is int:
        return f"{value:,}"
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."


DataTypes = Mapping[str, pl.DataType | type[pl.DataType]]


class Schema(pl.Schema):
    """Columns and types of a frame, with the name of the contract for messages."""

    name: str

    def __init__(self, columns: DataTypes | None = None, *, name: str = "frame") -> None:
        """Build a schema; `pl.Schema` alone hides from mypy that types and their classes are mixed."""
        super().__init__(columns)
        self.name = name

    def to_frame(self, *, eager: bool = True) -> pl.DataFrame:  # type: ignore[override]  # never lazy
        """Build an empty frame."""
        return super().to_frame()


def build_schema(columns: DataTypes, *, name: str = "frame") -> Schema:
    """Build a schema of columns and types.

    Args:
        columns: Type of each column, in order.
        name: Of the contract, for the messages of `conform`: that of the constant.
    """
    return Schema(columns, name=name)


def extend_schema(
    schema: pl.Schema, columns: DataTypes, *, name: str, without: tuple[str, ...] = ()
) -> Schema:
    """Build the schema of a frame that has further columns, or lacks some.

    Args:
        schema: The schema to start from.
        columns: The further columns, added at the end.
        name: Of the new contract.
        without: Columns to leave out.

    >>> jobs = build_schema({"device_id": pl.Int32, "kind": pl.String}, name="JOBS")
    >>> extend_schema(jobs, {"lane": pl.UInt32}, name="LANE_JOBS", without=("device_id",)).names()
    ['kind', 'lane']
    """
    kept = {column: dtype for column, dtype in schema.items() if column not in without}
    return Schema({**kept, **columns}, name=name)


def conform(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return `frame` with exactly the columns of `schema`, in order, cast to its types.

    Args:
        frame: Any frame that has at least the columns of `schema`.
        schema: The contract.

    Returns:
        The frame with the schema's columns; extra columns are dropped, an empty frame stays empty.

    Raises:
        ValueError: Columns are missing, or cannot be cast; the contract and all of them are named.

    >>> conform(pl.DataFrame({"b": [1], "a": [2], "c": [3]}), pl.Schema({"a": pl.Int32, "b": pl.Int64}))
    shape: (1, 2)
    ┌─────┬─────┐
    │ a   ┆ b   │
    │ --- ┆ --- │
    │ i32 ┆ i64 │
    ╞═════╪═════╡
    │ 2   ┆ 1   │
    └─────┴─────┘
    >>> steps = build_schema({"step": pl.Int64, "name": pl.String}, name="STEPS")
    >>> conform(pl.DataFrame({"step": ["first"]}), steps)
    Traceback (most recent call last):
        ...
    ValueError: STEPS: missing column `name` (String); column `step` is String, expected Int64
    """
    if not schema.keys() <= {*frame.columns}:
        raise ValueError(_describe_mismatch(frame, schema))
    names = schema.names()
    fitted = frame.clone() if frame.columns == names else frame[names]
    try:
        # columns of one value stay without memory
        for position, (of_frame, dtype) in enumerate(zip(fitted.dtypes, schema.values(), strict=True)):
            if of_frame != dtype:
                fitted.replace_column(position, fitted.to_series(position).cast(dtype))
    except pl.exceptions.PolarsError:
        raise ValueError(_describe_mismatch(frame, schema)) from None
    return fitted


def conform_part(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Conform a frame that has some columns of a contract; the others are null.

    >>> conform_part(pl.DataFrame({"b": [1]}), pl.Schema({"a": pl.Int32, "b": pl.Int64})).rows()
    [(None, 1)]
    """
    columns = {*frame.columns}
    absent = [build_nulls(name, dtype, frame.height) for name, dtype in schema.items() if name not in columns]
    return conform(frame.hstack(absent), schema)


def _describe_mismatch(frame: pl.DataFrame, schema: pl.Schema) -> str:
    missing = [f"`{column}` ({dtype})" for column, dtype in schema.items() if column not in frame.columns]
    wrong = [
        f"column `{column}` is {frame.schema[column]}, expected {dtype}"
        for column, dtype in schema.items()
        if column in frame.columns and not _is_castable(frame[column], dtype)
    ]
    missing = [f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}"] * bool(missing)
    name = schema.name if isinstance(schema, Schema) else "frame"
    return f"{name}: {'; '.join([*missing, *wrong])}"


def _is_castable(column: pl.Series, dtype: pl.DataType) -> bool:
    try:
        column.cast(dtype)
    except pl.exceptions.PolarsError:
        return False
    return True


def build_frame(columns: Iterable[pl.Series]) -> pl.DataFrame:
    """Build a frame of columns with names, at least one: equal to `pl.DataFrame(columns)`, which is slower.

    >>> build_frame([pl.Series("rows", [2, 0])]).rows()
    [(2,), (0,)]
    """
    first, *others = columns
    return first.to_frame().hstack(others)


def build_nulls(name: str, dtype: pl.DataType | type[pl.DataType], count: int) -> pl.Series:
    """Build a column of nulls, which needs no memory.

    >>> build_nulls("step", pl.Int64, 2).to_list()
    [None, None]
    """
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, count)


# Each string is stored once, and writers use its code.
NAME = pl.Categorical()

# Name of events without a name, where they are drawn.
NO_NAME = "(no name)"
