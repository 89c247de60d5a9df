"""Tables in the layout of Paddle's Profiler: its titles, columns, names and cells (seeds.md, 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.frames.table import FilledTable
from nsys_pp.output.tables.text import ShownTable, arrange_table
from nsys_pp.tables.registry import PADDLE_LAYOUTS, PADDLE_TABLES
from nsys_pp.tables.registry import SUMMARY_TABLES as TABLES

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"
CELL = "Total / Avg / Max / Min / Ratio(%)"
HEADINGS = {
    "device": ("Device Summary", ["Device", "Utilization (%)"]),
    "overview": ("Overview Summary", ["Side", "Event Type", "Calls", "Time", "Ratio (%)"]),
    "model": ("Model Summary", ["Name", "Calls", f"CPU {CELL}", f"GPU {CELL}"]),
    "distribution": ("Distribution Summary", ["Name", "Total Time", "Ratio (%)"]),
    "operators": ("Operator Summary", []),  # the fixtures have none
    "kernels": ("Kernel Summary", ["Name", "Calls", f"GPU {CELL}"]),
    "copies": ("Memory Manipulation Summary", ["Name", "Calls", f"CPU {CELL}", f"GPU {CELL}"]),
    "ranges": ("UserDefined Summary", ["Name", "Calls", f"CPU {CELL}", f"GPU {CELL}"]),
    "memory": ("Memory Summary", []),
}


@pytest.fixture(scope="module")
def summary() -> nsys_pp.SummaryResult:
    return nsys_pp.summarise([PIPELINE], paddle_compat=True)


def shown(summary: nsys_pp.SummaryResult, name: str) -> ShownTable:
    return arrange_table(FilledTable(table=PADDLE_TABLES[name], frame=summary.tables[name]))


def rows_of(table: ShownTable) -> list[tuple[str, ...]]:
    rows = zip(*(column.texts for column in table.columns), strict=True)
    return [row for row, kind in zip(rows, table.kinds, strict=True) if kind == "row"]


@pytest.mark.parametrize("name", HEADINGS)
def test_titles_and_columns_are_those_of_paddle(summary: nsys_pp.SummaryResult, name: str) -> None:
    title, headings = HEADINGS[name]
    assert PADDLE_TABLES[name].title == title
    if name in summary.tables and headings:
        assert [column.heading for column in shown(summary, name).columns] == headings


def test_other_tables_are_as_ever() -> None:
    assert [*HEADINGS] == [*PADDLE_LAYOUTS]
    for name in set(TABLES) - set(PADDLE_LAYOUTS):
        assert PADDLE_TABLES[name] is TABLES[name]


def test_a_cell_holds_five_values_with_two_decimals(summary: nsys_pp.SummaryResult) -> None:
    frame = summary.tables["kernels"]
    for row, (name, calls, cell) in zip(
        frame.iter_rows(named=True), rows_of(shown(summary, "kernels")), strict=True
    ):
        times = (row["total_ns"], row["mean_ns"], row["max_ns"], row["min_ns"])
        values = [float(value) for value in cell.split(" / ")]
        assert values == [
            *(pytest.approx(time / 1e6, abs=0.00501) for time in times),
            pytest.approx(100 * row["fraction"], abs=0.00501),
        ]
        assert all(len(value.partition(".")[2]) == 2 for value in cell.split(" / "))
        assert int(calls.replace(",", "")) == row["count"]
        assert len(name) <= 90


def test_phases_have_names_of_paddle_and_are_indented(summary: nsys_pp.SummaryResult) -> None:
    names = [row[0] for row in rows_of(shown(summary, "model"))]
    assert names[0] == "ProfileStep"
    assert set(names[1:]) >= {"  Forward", "  Backward", "  Optimization", "  Others"}
    (others,) = (row for row in rows_of(shown(summary, "model")) if row[0] == "  Others")
    total, *rest = others[-1].split(" / ")
    assert float(total) >= 0
    assert rest[:3] == ["-", "-", "-"]


def test_copies_have_no_time_on_the_cpu(summary: nsys_pp.SummaryResult) -> None:
    for row in rows_of(shown(summary, "copies")):
        assert row[2] == "- / - / - / - / -"


def test_each_gpu_has_a_row_for_its_process(summary: nsys_pp.SummaryResult) -> None:
    rows = rows_of(shown(summary, "device"))
    assert len(rows) == 2 * len(summary.tables["device"])
    for (process, _), (gpu, ratio), row in zip(
        rows[::2], rows[1::2], summary.tables["device"].iter_rows(named=True), strict=True
    ):
        assert process == f"CPU(Process) of {row['label']}"
        assert gpu == f"GPU of {row['label']}"
        assert float(ratio) == pytest.approx(100 * row["kernel_fraction"], abs=0.00501)
