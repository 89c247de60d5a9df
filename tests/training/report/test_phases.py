"""Phases of steps: ranges directly inside them, with names that most steps have."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.report import RANGES
from nsys_pp.training.jobs import find_phases
from nsys_pp.training.names import NAMED_JOBS, NAMED_STEPS
from tests.training.scheduled_runs import fill_columns

Row = tuple[str, int, int]


def ranges_of(rows: list[Row]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["name", "start_ns", "end_ns"], orient="row").with_row_index("range_id")
    return fill_columns(frame.with_columns(process_key=1, thread_key=5, is_open=False), RANGES)


def phases_of(rows: list[Row], *, jobs: pl.DataFrame | None = None) -> list[str]:
    """List the names of the phases, where ranges called "step" are the steps."""
    ranges = ranges_of(rows)
    steps = fill_columns(ranges.filter(pl.col("name").cast(pl.String) == "step"), NAMED_STEPS)
    found = find_phases(ranges, steps, NAMED_JOBS.to_frame() if jobs is None else jobs)
    assert found.schema == NAMED_JOBS
    assert set(found["kind"]) <= {"other"}
    return found["name"].cast(pl.String).to_list()


def test_ranges_directly_inside_most_steps_are_phases() -> None:
    first: list[Row] = [
        ("step", 0, 100),
        ("load 1", 0, 20),
        ("solve", 20, 90),
        ("inner", 30, 40),
        ("log", 90, 95),
    ]
    later: list[Row] = [
        (name if name != "load 1" else f"load {number}", start + 100 * number, end + 100 * number)
        for number in (2, 3)
        for name, start, end in first
        if name != "log"
    ]
    assert phases_of([*first, *later]) == ["load 1", "solve", "load 2", "solve", "load 3", "solve"]


def test_a_single_range_in_each_step_gives_way_to_those_inside_it() -> None:
    rows: list[Row] = [
        row
        for start in (0, 100, 200)
        for row in [
            ("step", start, start + 100),
            ("train", start + 1, start + 99),
            ("a", start + 5, start + 40),
            ("b", start + 40, start + 90),
        ]
    ]
    assert phases_of(rows) == ["a", "b"] * 3


def test_operators_are_no_phases() -> None:
    assert phases_of([("step", 0, 1000), *(("op", 10 * at, 10 * at + 5) for at in range(90))]) == []


def test_where_forwards_are_known_there_are_no_phases() -> None:
    rows: list[Row] = [("step", 0, 100), ("a", 0, 20), ("F", 20, 40)]
    forward = ranges_of(rows).filter(pl.col("name").cast(pl.String) == "F")
    jobs = fill_columns(forward.with_columns(kind=pl.lit("forward")), NAMED_JOBS)
    assert phases_of(rows) == ["a", "F"]
    assert phases_of(rows, jobs=jobs) == []
    assert phases_of([("a", 0, 20)]) == []
