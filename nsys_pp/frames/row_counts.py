"""Counts of rows: read, used, and left out, with the reason. No stage drops rows of a report without counting them here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import build_schema, extend_schema

ROW_STAGE = pl.Enum(["file", "report", "projection"])
"""Stages that leave out rows.

file: rows of the file, by their numbers; only of tables whose numbers have gaps, so that rows are missing.
report: rows that were read; used are those in the frames of the report.
projection: ranges and GPU operations of the report; used are ranges with a projection, and operations with a launch.
"""

ROW_COUNTS = build_schema(
    {  # one row per stage, table and reason; the rows of a table were all read: used + left out = read
        "stage": ROW_STAGE,
        "table": pl.String,  # our name: "kernels"; in stage "projection" a frame: "ranges"
        "source": pl.String,  # name in the report; null in stage "projection"
        "reason": pl.String,  # why the rows were left out; null: they were used
        "row_count": pl.Int64,
    },
    name="ROW_COUNTS",
)

RUN_ROW_COUNTS = extend_schema(
    ROW_COUNTS,
    {"report": pl.String},  # path of the report, as named or found
    name="RUN_ROW_COUNTS",
)


class RowTally(Struct, kw_only=True):
    """Rows of the tables of a report: read, and left out so far; other rows are used.

    Attributes:
        read: Rows that were read, by table.
        sources: Name of each table in the report.
        left_out: Rows that were left out, by table and reason.
        missing: Rows that the numbers of a table's rows promise and its file lacks, by table.
    """

    read: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    left_out: dict[tuple[str, str], int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    def copy(self) -> RowTally:
        """Copy the counts."""
        return RowTally(
            read=dict(self.read),
            sources=dict(self.sources),
            left_out=dict(self.left_out),
            missing=dict(self.missing),
        )

    def leave_out(self, table: str, reason: str, count: int) -> None:
        """Count rows that are left out."""
        if count:
            self.left_out[table, reason] = self.left_out.get((table, reason), 0) + count

    def build(self) -> pl.DataFrame:
        """Build the counts of stages "file" and "report" (`ROW_COUNTS`), in the order of reading."""
        return build_row_counts([*self._list_missing(), *self._list_read()])

    def _list_missing(self) -> Iterator[tuple[str, str, str | None, str | None, int]]:
        for table, count in self.missing.items():
            yield "file", table, self.sources.get(table), None, self.read[table]
            yield "file", table, self.sources.get(table), "missing: their numbers have gaps", count

    def _list_read(self) -> Iterator[tuple[str, str, str | None, str | None, int]]:
        for table, count in self.read.items():
            reasons = {reason: rows for (name, reason), rows in self.left_out.items() if name == table}
            yield from list_counts("report", table, count, reasons, source=self.sources.get(table))


def list_counts(
    stage: str, table: str, count: int, left_out: Mapping[str, int], *, source: str | None = None
) -> Iterator[tuple[str, str, str | None, str | None, int]]:
    """Yield the rows of `ROW_COUNTS` for one table.

    Args:
        stage: Of `ROW_STAGE`.
        table: Name of the table or frame.
        count: Rows that the stage received.
        left_out: Rows that it left out, by reason; others are used.
        source: Name in the report.
    """
    yield stage, table, source, None, count - sum(left_out.values())
    for reason, rows in left_out.items():
        if rows:
            yield stage, table, source, reason, rows


def build_row_counts(rows: Iterable[tuple[str, str, str | None, str | None, int]]) -> pl.DataFrame:
    """Build `ROW_COUNTS` from its rows."""
    columns = list(zip(*rows, strict=True))
    if not columns:
        return ROW_COUNTS.to_frame()
    types = ROW_COUNTS.items()  # column by column: rows take several times as long
    return build_frame(
        [pl.Series(name, values, dtype) for (name, dtype), values in zip(types, columns, strict=True)]
    )
