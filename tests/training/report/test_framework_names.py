"""Names that frameworks emit, by their sources: every row of `framework_names.tsv` is read as it says.

Rows of a program are names that one report may have. A row has the repository, path and commit (or release) of the name;
names with numbers and classes are examples of a format. Every row was read there, but `XlaCompile:#module=`, which XLA
emits, in a reader of such recordings. Five names of PyTorch's C++ code (of
`util.cpp`, `engine.cpp`, `reducer.cpp`) were read in the compiled library of that commit, and their format in `util.cpp` of another;
`lr-0` is a job of its commit, named as the executor of a later one names jobs. Kind "none" is neither a job nor a step
(a layer, an operation, a library), nor is "phase", a range around several jobs.
"""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from nsys_pp.frames.report import RANGES
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.training.names import choose_rules, name_jobs, name_steps
from tests.training.report.test_vocabulary import ranges_of

_IDS = ("micro_batch", "chunk", "virtual_stage")


def _read_rows() -> list[dict[str, str]]:
    path = Path(__file__).with_name("framework_names.tsv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


ROWS = _read_rows()
PROGRAMS = {
    program: [row for row in ROWS if row["program"] == program]
    for program in dict.fromkeys(row["program"] for row in ROWS)
}


def _build_ranges(rows: list[dict[str, str]]) -> pl.DataFrame:
    """Build a report with each name once, one after the other."""
    domains = pl.Series([row["domain"] or None for row in rows], dtype=pl.String)
    return ranges_of(*(row["name"] for row in rows)).with_columns(domain=domains.cast(RANGES["domain"]))


def _read_names(rows: list[dict[str, str]]) -> list[dict[str, object]]:
    """Return what the package reads in the names of one report."""
    ranges = _build_ranges(rows)
    rules = choose_rules(ranges)
    read: list[dict[str, object]] = [{"kind": "none"} for _ in rows]
    jobs = name_jobs(ranges, rules)
    for at, facts in zip(jobs["range_id"], jobs.select("kind", *_IDS, "role").to_dicts(), strict=True):
        read[at] = {key: value for key, value in facts.items() if value is not None}
    for at, step in name_steps(ranges, rules).select("range_id", "step").iter_rows():
        assert read[at]["kind"] in ("none", "other")  # a program of JAX is both
        read[at] = {"kind": "step"} if step is None else {"kind": "step", "step": step}
    return read


def _expect(row: dict[str, str]) -> dict[str, object]:
    kind = "none" if row["kind"] == "phase" else row["kind"]
    numbers = {key: int(row[key]) for key in ("step", *_IDS) if row[key]}
    return {"kind": kind, **numbers, **({"role": row["role"]} if row["role"] else {})}


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_of_a_program_are_read_as_its_source_says(program: str) -> None:
    rows = PROGRAMS[program]
    wrong = [
        (row["name"], read, _expect(row))
        for row, read in zip(rows, _read_names(rows), strict=True)
        if read != _expect(row)
    ]
    assert not wrong


def test_the_table_is_whole() -> None:
    assert len(ROWS) >= 150
    assert {row["kind"] for row in ROWS} <= {*JOB_KINDS, "step", "phase", "none"}
    assert all(row["repository"] and row["path"] and row["commit"] for row in ROWS)
    assert len({(row["program"], row["domain"], row["name"]) for row in ROWS}) == len(ROWS)
