"""`StepTaskInfo`: what it says, and that a report has all of it or is as it was."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec import structs

from nsys_pp.errors import NsysPPError, OutputError, ReportError
from nsys_pp.frames.training import RUN_JOBS, Training
from nsys_pp.output.formats import ExportedFile
from nsys_pp.output.other.step_tasks import (
    ENDING,
    STEP_TASKS,
    describe_step_tasks,
    write_rank_databases,
    write_step_tasks,
)
from tests.sql import dump, edit, select
from tests.training.expected_training import PIPELINE, expected_training

TRAINING = expected_training()


SHIFT_NS = TRAINING.zero_ns


REPORTS = [PIPELINE / "node10" / f"rank{rank}.sqlite" for rank in (2, 3)] + [
    PIPELINE / "node2" / f"rank{rank}.sqlite" for rank in (0, 1)
]


TIMES = ("start_ns", "end_ns", "host_start_ns", "host_end_ns")


def jobs_of(training: Training, report: int) -> pl.DataFrame:
    return training.jobs.filter(
        pl.col("lane").is_in(training.lanes.filter(report=report)["lane"].implode())
    ).with_columns((pl.col(time) - SHIFT_NS).alias(f"report_{time}") for time in TIMES)


def few_jobs(*rows: dict[str, Any]) -> pl.DataFrame:
    described = [
        {
            "lane": 0,
            "job": number,
            "is_inferred": False,
            "start_ns": SHIFT_NS + number,
            "op_count": 3,
            "end_ns": SHIFT_NS + number + 1,
            "host_start_ns": SHIFT_NS,
            "host_end_ns": SHIFT_NS + 1,
            **row,
        }
        for number, row in enumerate(rows)
    ]
    data = {column: [row.get(column) for row in described] for column in RUN_JOBS}
    return jobs_of(replace(TRAINING, jobs=pl.DataFrame(data, schema=RUN_JOBS)), 2)


def read_table(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM StepTaskInfo ORDER BY rowid")]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return Path(shutil.copy(REPORTS[2], tmp_path / "run" / "rank0.sqlite"))


def test_the_first_four_columns_are_those_of_msprof(tmp_path: Path) -> None:
    (file,) = write_step_tasks(TRAINING, [(REPORTS[2], jobs_of(TRAINING, 2))], tmp_path, force=False)
    assert [row[1:3] for row in select(file.path, "PRAGMA table_info(StepTaskInfo)")] == [
        *(("name", "TEXT"), ("startNs", "INTEGER"), ("endNs", "INTEGER"), ("type", "INTEGER")),
        *(("kind", "TEXT"), ("micro_batch", "INTEGER"), ("chunk", "INTEGER"), ("stage", "INTEGER")),
        *(("rank", "INTEGER"), ("host", "TEXT"), ("device", "INTEGER"), ("step", "INTEGER")),
        *(("kernels", "INTEGER"), ("hostStartNs", "INTEGER"), ("hostEndNs", "INTEGER"), ("source", "TEXT")),
    ]


def test_every_job_has_a_row_on_the_clock_of_its_report(tmp_path: Path) -> None:
    reports = [(path, jobs_of(TRAINING, number)) for number, path in enumerate(REPORTS)]
    written = write_step_tasks(TRAINING, reports, tmp_path, force=False)
    for number, (file, (source, jobs)) in enumerate(zip(written, reports, strict=True)):
        rows = read_table(file.path)
        assert len(rows) == file.row_count == len(jobs) == 48
        lane = TRAINING.lanes.row(by_predicate=pl.col("report") == number, named=True)
        assert source.stem == lane["label"].replace(" ", "")
        for row, job in zip(rows, jobs.sort("start_ns").iter_rows(named=True), strict=True):
            assert row == {
                "name": {"forward": "FP", "backward": "BP"}[job["kind"]],
                "startNs": job["start_ns"] - SHIFT_NS,
                "endNs": job["end_ns"] - SHIFT_NS,
                "type": {"forward": 0, "backward": 1}[job["kind"]],
                "kind": job["kind"],
                "micro_batch": job["micro_batch"],
                "chunk": 0,
                "stage": lane["stage"],
                "rank": lane["rank"],
                "host": lane["machine"],
                "device": lane["device_id"],
                "step": job["step"],
                "kernels": 1,
                "hostStartNs": job["host_start_ns"] - SHIFT_NS,
                "hostEndNs": job["host_end_ns"] - SHIFT_NS,
                "source": "plain",
            }


def test_a_copy_holds_all_else_of_the_report(tmp_path: Path) -> None:
    before = REPORTS[0].read_bytes()
    (file,) = write_step_tasks(TRAINING, [(REPORTS[0], jobs_of(TRAINING, 0))], tmp_path, force=False)
    assert (file.source, file.path) == (REPORTS[0], tmp_path / f"rank2{ENDING}")
    assert [*tmp_path.iterdir()] == [file.path]
    assert REPORTS[0].read_bytes() == before
    assert [line for line in dump(file.path) if "StepTaskInfo" not in line] == dump(REPORTS[0])


def test_jobs_of_dualpipev_have_its_labels_and_phases() -> None:
    training = replace(TRAINING, schedule=structs.replace(TRAINING.schedule, name="dualpipev"))
    jobs = few_jobs(
        {"kind": "forward", "label": "0", "phase": 0},
        {"kind": "backward", "label": "3b", "phase": 2},
        {"kind": "weight_gradient", "label": "3w", "phase": 2},
        {"kind": "other", "label": "logits", "phase": 5},
        {"kind": "optimizer", "label": "optimizer"},
    )
    found = describe_step_tasks(training, jobs).select("name", "type").rows()
    assert found == [("0", 0), ("3b", 2), ("3w", 2), ("logits", 5), ("Optimizer", 10)]
    assert describe_step_tasks(TRAINING, jobs)["type"][1] == 1, "phases mean nothing in other schedules"


def test_reports_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    for node in ("node1", "node2"):
        (tmp_path / "run" / node).mkdir(parents=True)
        shutil.copy(REPORTS[0], tmp_path / "run" / node / "r.sqlite")
    reports = [
        (tmp_path / "run" / node / "r.sqlite", jobs_of(TRAINING, number))
        for number, node in enumerate(("node1", "node2"))
    ]
    done = write_step_tasks(TRAINING, reports, tmp_path / "out", force=False)
    assert [file.path for file in done] == [
        tmp_path / "out" / node / f"r{ENDING}" for node in ("node1", "node2")
    ]
    assert [read_table(file.path)[0]["rank"] for file in done] == [2, 3]


def test_copies_that_are_there_stay_without_force(tmp_path: Path) -> None:
    (tmp_path / f"rank2{ENDING}").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        write_step_tasks(TRAINING, [(REPORTS[0], jobs_of(TRAINING, 0))], tmp_path, force=False)
    assert (tmp_path / f"rank2{ENDING}").read_text() == "mine"


def test_a_report_itself_is_written_where_that_is_asked_for(report: Path) -> None:
    before = dump(report)
    jobs = jobs_of(TRAINING, 2)
    assert write_step_tasks(TRAINING, [(report, jobs)], None, force=False) == [
        ExportedFile(path=report, row_count=48, source=report)
    ]
    assert len(read_table(report)) == 48
    write_step_tasks(TRAINING, [(report, jobs.head(5))], None, force=False)
    assert len(read_table(report)) == 5, "an earlier table is replaced"
    assert [line for line in dump(report) if "StepTaskInfo" not in line] == before
    assert [*report.parent.iterdir()] == [report]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_report_in_write_ahead_mode_stays_whole(report: Path, tmp_path: Path, in_place: bool) -> None:
    edit(report, "PRAGMA journal_mode = WAL")
    folder = None if in_place else tmp_path / "out"
    (file,) = write_step_tasks(TRAINING, [(report, jobs_of(TRAINING, 2))], folder, force=False)
    assert [*report.parent.iterdir()] == [report]
    assert len(read_table(file.path)) == 48
    assert [*file.path.parent.iterdir()] == [file.path]


def test_a_report_larger_than_files_may_be_stays_whole(report: Path) -> None:
    command = f"ulimit -f 200; {sys.executable} -m nsys_pp pipeline {report} --in-place"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "files may not be so large" in done.stderr
    assert [*report.parent.iterdir()] == [report]


class Broken:
    """Rows of which the second cannot be had."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield tuple(range(16))
        raise KeyboardInterrupt


@pytest.mark.parametrize("in_place", [False, True])
def test_an_end_on_the_way_leaves_what_was_there(
    report: Path, tmp_path: Path, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(TRAINING, 2)
    write_step_tasks(TRAINING, [(report, jobs.head(5))], None, force=False)
    before = dump(report)
    monkeypatch.setattr(pl.DataFrame, "rows", lambda _: Broken())
    folder = None if in_place else tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write_step_tasks(TRAINING, [(report, jobs)], folder, force=False)
    assert (dump(report), [*report.parent.iterdir()]) == (before, [report])
    assert not any((tmp_path / "out").glob("*"))


def test_a_report_that_another_program_writes_is_refused(report: Path) -> None:
    """After a few seconds, in which the other one may end."""
    with closing(sqlite3.connect(report)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ReportError, match="is locked by another program"):
            write_step_tasks(TRAINING, [(report, jobs_of(TRAINING, 2))], None, force=False)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("x.nsys-rep", lambda path: path.write_bytes(b"something"), "not a SQLite database"),
        ("x.nspart", lambda path: path.write_bytes(b"PK\3\4"), "a zip archive"),
        ("x.sqlite", lambda path: path.write_bytes(b"hello, world, this is it"), "not a SQLite database"),
        ("x.sqlite", Path.touch, "is empty"),
        ("x.sqlite", lambda path: None, "does not exist"),
        ("tables", Path.mkdir, "is a folder, not"),
    ],
)
def test_what_is_no_sqlite_export_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, make: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / name
    make(path)
    reports = [(REPORTS[0], jobs_of(TRAINING, 0)), (path, jobs_of(TRAINING, 1))]
    with pytest.raises(NsysPPError, match=words) as caught:
        write_step_tasks(TRAINING, reports, tmp_path / "out", force=False)
    assert str(path) in caught.value.message
    assert not any((tmp_path / "out").glob("*"))


def test_a_damaged_report_is_refused(report: Path, tmp_path: Path) -> None:
    report.write_bytes(report.read_bytes()[:4096] + b"\xff" * 4096)
    with pytest.raises(ReportError, match="is truncated"):
        write_step_tasks(TRAINING, [(report, jobs_of(TRAINING, 2))], tmp_path / "out", force=False)
    assert not any((tmp_path / "out").glob("*"))


def test_a_read_only_report_is_not_written_but_copied(report: Path, tmp_path: Path) -> None:
    report.chmod(0o444)
    jobs = jobs_of(TRAINING, 2)
    with pytest.raises(ReportError, match="it is read-only") as caught:
        write_step_tasks(TRAINING, [(report, jobs)], None, force=False)
    assert "--steptask" in (caught.value.hint or "")
    (file,) = write_step_tasks(TRAINING, [(report, jobs)], tmp_path / "out", force=False)
    assert len(read_table(file.path)) == 48
    assert os.access(file.path, os.W_OK)


# what msprof-analyze 8 searches: folders whose names end so, at most five levels deep, and databases in their
# output
FOLDER = re.compile(r".*ascend_pt$")


DATABASE = re.compile(r"^ascend_pytorch_profiler(?:_(\d+))?\.db$")


def test_each_rank_has_a_database_on_one_clock_where_msprof_analyze_looks(tmp_path: Path) -> None:
    written = write_rank_databases(TRAINING, tmp_path, force=False)
    assert sorted(file.path for file in written) == sorted(tmp_path.rglob("*.db"))
    for file, lane in zip(written, TRAINING.lanes.sort("rank").iter_rows(named=True), strict=True):
        path = file.path
        assert int(DATABASE.match(path.name)[1]) == lane["rank"]  # type: ignore[index]
        assert path.parent.name == "ASCEND_PROFILER_OUTPUT"
        assert FOLDER.match(path.parent.parent.name)
        assert path.parent.parent.parent == tmp_path
        rows = read_table(path)
        assert [*rows[0]] == [*STEP_TASKS]
        spans = TRAINING.jobs.filter(lane=lane["lane"]).select("start_ns", "end_ns").rows()
        assert {(row["startNs"], row["endNs"], row["rank"]) for row in rows} <= {
            (*span, lane["rank"]) for span in spans
        }
        assert len(rows) == file.row_count > 0
