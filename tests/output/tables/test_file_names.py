from __future__ import annotations

import polars as pl
import pytest

from nsys_pp.frames.table import Column, FilledTable, Table, build_table_schema
from nsys_pp.output.tables.formats import format_tables
from nsys_pp.output.tables.text import arrange_table

COLUMNS = (Column("report", pl.String, "label", is_file=True), Column("name", pl.String, "other"))


def arrange(*labels: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shown = arrange_table(fill(*labels))
    return shown.columns[0].texts, shown.notes


def fill(*labels: str) -> FilledTable:
    frame = pl.DataFrame(
        [(label, label) for label in labels], schema=build_table_schema(COLUMNS), orient="row"
    )
    table = Table(name="x", title="X", columns=COLUMNS, caption="", build=lambda: frame)
    return FilledTable(table=table, frame=frame)


def test_a_long_beginning_is_cut_at_a_word_and_noted() -> None:
    texts, notes = arrange("profile_of_training_rank10", "profile_of_training_rank11")
    assert texts == ("…rank10", "…rank11")
    assert notes == ("…: `profile_of_training_`, with which the name of each report begins",)


@pytest.mark.parametrize(
    "labels",
    [
        ("node1/rank0", "node1/rank1"),
        ("profile_of_training_rank0",),
        ("profile_of_training_rank0", "profile_of_training_rank0"),
        ("profileoftrainingrank0", "profileoftrainingrank1"),
        ("a_long_name_of_a_report", "b_long_name_of_a_report"),
    ],
)
def test_other_labels_stay(labels: tuple[str, ...]) -> None:
    assert arrange(*labels) == (labels, ())


def test_other_columns_and_data_formats_are_whole() -> None:
    filled = fill("profile_of_training_rank10", "profile_of_training_rank11")
    assert arrange_table(filled).columns[1].texts[0] == "profile_of_training_rank10"
    assert "…" not in format_tables([filled], format="json")
