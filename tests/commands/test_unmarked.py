"""Reports without ranges of a training: pipeline, chart, compare and `--steps` answer, and say what they lack."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import polars as pl
import pytest

import nsys_pp
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.training import BUBBLE_CAUSES

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"

pytestmark = pytest.mark.usefixtures("reports_read_once")


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy a report of the fixtures without its ranges."""
    path = tmp_path_factory.mktemp("unmarked") / "bare.sqlite"
    copyfile(min(PIPELINE.rglob("*.sqlite")), path)
    with closing(sqlite3.connect(path)) as report, report:
        report.execute("DELETE FROM NVTX_EVENTS")
    return path


def test_a_report_without_ranges_has_lanes_states_and_gaps(unmarked: Path) -> None:
    result = nsys_pp.pipeline([unmarked])
    training = result.training
    assert training.jobs.is_empty() or training.jobs["is_inferred"].all()
    assert len(training.lanes) == 1
    states = training.lane_states.group_by("lane", "step").agg(
        covered=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    spans = training.steps.join(states, on=["lane", "step"])
    assert len(spans) == len(training.steps) > 0
    assert spans.select((pl.col("end_ns") - pl.col("start_ns") == pl.col("covered")).all()).item()
    assert training.notes[0].startswith(f"`{unmarked}` has no NVTX ranges: ")
    tables = result.tables()
    assert tables["steps"].height == training.steps["step"].n_unique()
    gaps = tables["gaps"]
    assert gaps["length_ns"].is_sorted(descending=True)
    assert gaps["cause"].drop_nulls().is_in(BUBBLE_CAUSES).all()
    for share in ("cause_fraction", "range_fraction", "call_fraction", "os_call_fraction"):
        assert gaps[share].drop_nulls().is_between(0, 1.000001).all()


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_parts_and_runs_without_ranges_say_so(unmarked: Path, tmp_path: Path) -> None:
    advice = nsys_pp.pipeline([unmarked]).training.notes[0].partition(": ")[2]
    part = tmp_path / "bare.nspart"
    nsys_pp.extract([unmarked], part)
    assert nsys_pp.pipeline([part]).training.notes[0] == f"`{part}` has no NVTX ranges: {advice}"
    other = tmp_path / "other.sqlite"
    copyfile(max(PIPELINE.rglob("*.sqlite")), other)
    both = nsys_pp.pipeline([part, other])
    assert not any("NVTX range" in note for note in both.training.notes)  # the other report has jobs
    with closing(sqlite3.connect(other)) as report, report:
        report.execute("DELETE FROM NVTX_EVENTS")
    notes = nsys_pp.pipeline([part, other]).training.notes
    assert notes[0] == f"none of the 2 reports has NVTX ranges: {advice}"


def test_the_longest_gaps_are_those_of_the_kernels(unmarked: Path) -> None:
    with closing(sqlite3.connect(unmarked)) as report:
        spans = report.execute(
            "SELECT k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName"
            " WHERE s.value NOT LIKE 'nccl%' ORDER BY k.start"
        ).fetchall()
    until, lengths = spans[0][1], []
    for start, end in spans[1:]:
        if start - until > 2_000:
            lengths.append(start - until)
        until = max(until, end)
    found = nsys_pp.pipeline([unmarked]).tables(["gaps"])["gaps"]["length_ns"].to_list()
    assert found[:50] == sorted(lengths, reverse=True)[:50]


def test_steps_that_do_not_exist_are_one_sentence(unmarked: Path) -> None:
    with pytest.raises(NsysPPError, match="no step is in `--steps 700:800`") as caught:
        nsys_pp.pipeline([unmarked], steps="700:800")
    assert "the steps of these reports are" in str(caught.value.hint)


def test_charts_and_comparisons_answer(unmarked: Path, tmp_path: Path) -> None:
    drawn = nsys_pp.chart([unmarked], tmp_path / "x.svg")
    assert drawn.lanes == 1
    assert b"There is nothing to draw" not in (tmp_path / "x.svg").read_bytes()
    tables = nsys_pp.compare([unmarked], [unmarked]).tables
    assert tables["steps"].height > 0
