"""Definition of tables: columns with unit, meaning and heading, and a function that builds the rows.

`nsys_pp.tables` defines tables and `nsys_pp.output.tables` renders them; neither imports the other, so they
share this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, ParamSpec, TypeAlias

import polars as pl
from msgspec import Struct, field
from msgspec.structs import force_setattr

from nsys_pp.frames.conform import build_schema, conform

Source = ParamSpec("Source")

_UNITS = ("ns", "bytes_per_s", "per_s", "fraction", "ppm", "bytes")  # endings of names
_UNITS_ALONE = {
    "ns": "time",
    "bytes": "size",
    "bytes_per_s": "bandwidth",
    "per_s": "rate",
    "fraction": "share",
}
_WORDS = {"host": "CPU", "gpu": "GPU", "cpu": "CPU", "std": "std dev", "op": "operation", "os": "OS"}
_PLURALS = {  # nouns before `_count`; other words, such as `late`, are not changed
    **{
        word: f"{word}s"
        for word in (
            *("call", "rank", "step", "allocation", "free", "device", "gap", "range"),
            *("lane", "stage", "chunk", "job", "message", "segment", "sample"),
        )
    },
    "op": "operations",
    "launch": "launches",
    "micro batch": "micro-batches",
}
# Words in names of values of a single call, kernel or message, as opposed to totals.
_SINGLE = {"mean", "median", "min", "max", "std", "least", "most", "shortest", "longest", "p95"}


_OF_NAME = "of the name"


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes:
        name: Name in data formats. Its ending is the unit: `_ns`, `_bytes`, `_fraction` (0..1), `_count`,
            `_per_s`, `_ppm`.
        dtype: Type of its values.
        meaning: Description of its values, for documentation; null values included.
        heading: Heading in text formats, without the unit. Default: the words of the name.
        display_unit: Unit in text formats; times are converted to it ("ms"). Default: chosen by the values.
        decimals: Digits after the point in text formats. Default: chosen by the unit and the values.
        priority: Columns of the lowest priority are dropped first where a terminal is narrow.
            Default: by the name: standard deviations first, totals last.
        note: Sentence added to the table's caption where the column is shown.
        is_group: Rows with equal values form a group, if all columns before it are group columns, too.
        is_optional: Text formats omit it if all rows have the same value.
        is_signed: Positive values have a plus sign.
        is_symbol: Values are names of functions: a terminal may cut parameters, then the middle.
        is_name: Values are names of any length, chosen by programs: a terminal may cut their middle.
        is_file: Values are labels of reports: text formats cut a long beginning that all share, and note it.
        null_text: Text of nulls in text formats; with it, the column is shown even if all its values are
            null.
        unit: Unit of the values; "" without one. Default: that in the name.
    """

    name: str
    dtype: pl.DataType | type[pl.DataType]
    meaning: str
    heading: str = ""
    display_unit: str = ""
    decimals: int | None = None
    priority: int = -1
    note: str = ""
    is_group: bool = False
    is_optional: bool = False
    is_signed: bool = False
    is_symbol: bool = False
    is_name: bool = False
    is_file: bool = False
    null_text: str = ""
    unit: str = _OF_NAME

    def __post_init__(self) -> None:
        stem, unit = split_unit(self.name)
        if self.unit == _OF_NAME:
            force_setattr(self, "unit", unit)
        if not self.heading:
            force_setattr(self, "heading", _write_heading(stem))
        if self.priority < 0:
            force_setattr(self, "priority", _rank_column(self.name))

    @property
    def is_count(self) -> bool:
        """Whether its values are counts, whose thousands are marked; other plain integers are identifiers."""
        return self.name == "count" or self.name.endswith("_count")

    @property
    def is_single(self) -> bool:
        """Whether its values describe a single call, kernel or message, not a total."""
        words = self.name.split("_")
        return "total" not in words and not _is_of_ranks(self.name) and not _SINGLE.isdisjoint(words)


# Mask of all rows.
ALL_ROWS = pl.lit(value=True)


class View(Struct, frozen=True, kw_only=True):
    """The columns and rows of a table in text formats: on a terminal and in Markdown.

    Attributes:
        columns: Names of columns of the table, and columns that `derive` adds.
        derive: Function that adds columns of text to the rows, such as causes.
        only: Mask of the rows that a terminal shows; the others are counted below the table.
        hidden: Sentence on the rows that are not shown; "{}" is replaced by "all 10", or "7 of 10".
        notes: Function that builds lines below the table, from all its rows.
        lines: Function that builds lines in place of the rows, from all of them.
    """

    columns: tuple[Column | str, ...]
    derive: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows
    only: pl.Expr = ALL_ROWS
    hidden: str = ""
    notes: Callable[[pl.DataFrame], list[str]] = lambda rows: []
    lines: Callable[[pl.DataFrame], list[str]] | None = None


class Table(Struct, Generic[Source], frozen=True, kw_only=True):
    """A table that can be built from a source; an empty source results in an empty table.

    Attributes:
        name: Name in options, in names of files, and in SQLite.
        title: Line above the table.
        columns: Its columns, in order; the last one is the name of the row.
        caption: Computation of its numbers, and rows that overlap.
        rows: Function that builds its sorted rows from a training, a summary, or two trainings;
            columns that are not of the table are left out.
        needs: Kinds of records (`nsys_pp.model.contents`), of which at least one must be recorded; (): none.
        totals: Columns that may be added up; () if rows overlap.
        sort: Column that sorts the rows within their group, descending; "" if they have a fixed order.
        is_fixed: It has the same few rows for all reports, so no limit applies.
        is_nested: Leading blanks in the last column are indentation: such a row is part of the row above it.
        extra_columns: Columns that an option adds, such as those of the groups that a summary is split by.
        empty: Line that replaces a table without rows.
        view: The columns and rows in text formats; None: all.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    caption: str
    rows: Callable[Source, pl.DataFrame]
    needs: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    sort: str = ""
    is_fixed: bool = False
    is_nested: bool = False
    extra_columns: tuple[Column, ...] = ()
    empty: str = "no such events were recorded"
    view: View | None = None

    def build(self, *source: Source.args, **options: Source.kwargs) -> pl.DataFrame:
        """Build the rows from a source: added groups come first, other added columns before the last one."""
        rows = self.rows(*source, **options)
        added = [column for column in self.extra_columns if column.name in rows.columns]
        *own, last = self.columns
        columns = (
            *(column for column in added if column.is_group),
            *own,
            *(column for column in added if not column.is_group),
            last,
        )
        return conform(rows, build_table_schema(columns))


AnyTable: TypeAlias = "Table[...]"


class Absence(Struct, frozen=True):
    """Why something has no rows.

    Attributes:
        why: The reason.
        record_with: Options of `nsys profile` that record its data, any of them; (): none does.
    """

    why: str
    record_with: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The reason with the options, as a part of a sentence."""
        options = " or ".join(f"`{option}`" for option in self.record_with)
        return f"{self.why}: profile with {options}" if options else self.why


class FilledTable(Struct, frozen=True, kw_only=True):
    """A table with its rows, to be written.

    Attributes:
        table: The table.
        frame: Its rows; without columns if it could not be built.
        absence: Why it has no rows; None: it has some, or its `empty` says why.
    """

    table: AnyTable
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)
    absence: Absence | None = None

    @property
    def why_empty(self) -> Absence:
        """Why it has no rows."""
        return self.absence or Absence(self.table.empty)


def fill_tables(
    tables: Mapping[str, Table[Source]],
    frames: Mapping[str, pl.DataFrame],
    absences: Mapping[str, Absence] | None = None,
) -> list[FilledTable]:
    """Pair tables with their rows, in the order of the registry `tables`.

    Args:
        tables: Tables by name; tables that are neither in `frames` nor in `absences` are left out.
        frames: Rows by name; tables that could not be built have none.
        absences: Reasons why tables have no rows, by name.
    """
    absences = absences or {}
    return [
        FilledTable(table=table, frame=frames.get(name, pl.DataFrame()), absence=absences.get(name))
        for name, table in tables.items()
        if name in frames or name in absences
    ]


def describe_columns(table: AnyTable) -> dict[str, Column]:
    """Return all columns that the table can have, by name: columns added by options come first.

    A column of the table replaces an added one of the same name.
    """
    return {column.name: column for column in (*table.extra_columns, *table.columns)}


def build_table_schema(columns: Sequence[Column]) -> pl.Schema:
    """Build the schema of a frame with these columns.

    >>> build_table_schema((Column("step", pl.Int64, "its number"),)).names()
    ['step']
    """
    return build_schema({column.name: column.dtype for column in columns})


def split_unit(name: str) -> tuple[str, str]:
    """Split the name of a column into stem and unit; a name that is only a unit has a noun as stem.

    >>> split_unit("host_total_ns"), split_unit("bytes_per_s"), split_unit("call_count")
    (('host_total', 'ns'), ('bandwidth', 'bytes_per_s'), ('call_count', ''))
    """
    if name in _UNITS_ALONE:
        return _UNITS_ALONE[name], name
    unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), "")
    return (name.removesuffix(f"_{unit}"), unit) if unit else (name, "")


def _write_heading(stem: str) -> str:
    """Format the stem of a column's name as a heading.

    >>> stems = "host_total", "op_count", "count", "late_count", "micro_batch_count"
    >>> [_write_heading(stem) for stem in stems]
    ['CPU total', 'Operations', 'Count', 'Late', 'Micro-batches']
    """
    *words, last = stem.split("_")
    if last == "count" and words:
        counted = " ".join(words)
        words, last = [], _PLURALS.get(counted, counted)
        if last == counted:
            *words, last = counted.split(" ")
            last = _PLURALS.get(last, last)
    text = " ".join(_WORDS.get(word, word) for word in (*words, last))
    return text[:1].upper() + text[1:]


def _rank_column(name: str) -> int:
    """Return the priority of a column: values of single calls and of ranks are dropped before totals."""
    words = split_unit(name)[0].split("_")
    if _is_of_ranks(name):
        return 1 if {"min", "median"} & {*words} else 3
    if "total" in words or _SINGLE.isdisjoint(words):
        return 5
    return 0 if "std" in words else 4 if "mean" in words else 2


def _is_of_ranks(name: str) -> bool:
    return (name.startswith("rank_") and not name.endswith("_count")) or name.endswith("_rank")


RANK_STEPS = build_schema(
    {  # one row per lane and step, or per lane and block of steps; by lane, step
        "lane": pl.UInt32,
        "step": pl.Int64,  # first step of a block
        "last_step": pl.Int64,  # last step of it
        "start_ns": pl.Int64,  # of the lane's step, since the start of the earliest session
        "end_ns": pl.Int64,
        # Means over the steps of a block:
        "span_ns": pl.Float64,
        "compute_ns": pl.Float64,  # kernels other than communication
        "bubble_ns": pl.Float64,
        "wait_ns": pl.Float64,  # part of it: messages and collectives, their transfers included
        "late_ns": pl.Float64,  # part of it: late launches, and loading of data
        # Own compute relative to the median of the peers for the same micro-batch, less 1; the median over
        # micro-batches, the largest one of the steps of a block. Peers are the other ranks of the stage, else
        # all other ranks. Null without peers, and in steps that are not complete.
        "excess_fraction": pl.Float64,
        # The capture cuts no rank in this step; where it cuts every step on some rank, not this one.
        "is_complete": pl.Boolean,
    },
    name="RANK_STEPS",
)


STEP_LENGTHS = build_schema(
    {  # one row per complete step, by step
        "step": pl.Int64,
        # From the start on the first lane to the end on the last one, as in the table "steps". If clocks of
        # some lanes cannot be compared, the median of the lengths on lanes, for all steps.
        "span_ns": pl.Float64,
    },
    name="STEP_LENGTHS",
)


class ShownStep(Struct, frozen=True, kw_only=True):
    """A step whose chart is shown.

    Attributes:
        step: Its number.
        role: "typical" (of median length) or "worst" (the longest).
        span_ns: Its length in `STEP_LENGTHS`.
        start_ns: Start on its first lane, since the start of the earliest session.
        end_ns: End on its last lane, likewise.
    """

    step: int
    role: str
    span_ns: float
    start_ns: int
    end_ns: int
