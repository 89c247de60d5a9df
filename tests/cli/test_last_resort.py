"""The last resort: an odd report is one sentence, and the others are merged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.report import Report
from nsys_pp.frames.roster import Identity
from nsys_pp.roster.identity import identify
from nsys_pp.run import report as one_report
from nsys_pp.run import run as running
from nsys_pp.run.batch import leave_out_odd
from nsys_pp.run.inputs import Input
from tests.cli.calls import Result, assert_refused, call, run

PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"
RANK0, RANK1 = PIPELINE / "node2" / "rank0.sqlite", PIPELINE / "node2" / "rank1.sqlite"


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
    """Return copies of two reports of a run, of which the second will be odd."""
    return [Path(shutil.copy(source, tmp_path)) for source in (RANK0, RANK1)]


def edit(report: Path, *statements: str) -> None:
    with closing(sqlite3.connect(report)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_table_of_facts_without_names_is_none(reports: list[Path], tmp_path: Path) -> None:
    statements = "DROP TABLE META_DATA_CAPTURE", "CREATE TABLE META_DATA_CAPTURE (value TEXT)"
    edit(reports[1], *statements, "INSERT INTO META_DATA_CAPTURE VALUES (1)")
    for command in (["merge", "-o", tmp_path / "run.pftrace"], ["summary"], ["info"]):
        assert call(*command, *reports).code == 0


def test_devices_may_have_negative_numbers(reports: list[Path], tmp_path: Path) -> None:
    edit(reports[1], "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = -5")
    for command in (["merge", "-o", tmp_path / "run.pftrace"], ["pipeline"], ["info"]):
        assert call(*command, *reports).code == 0


def test_column_names_need_not_be_utf8(reports: list[Path], tmp_path: Path) -> None:
    edit(reports[1], "ALTER TABLE NVTX_EVENTS ADD COLUMN columnName", "ALTER TABLE StringIds ADD columnName")
    reports[1].write_bytes(
        reports[1].read_bytes().replace(b"columnName", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe")
    )
    assert call("merge", *reports, "-o", tmp_path / "run.pftrace").code == 0


@pytest.mark.parametrize(
    "start", [b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b""]
)
def test_an_arrow_file_that_is_none_is_named(tmp_path: Path, start: bytes) -> None:
    folder = tmp_path / "report_arwdir"
    folder.mkdir()
    for table in ("StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"):
        (folder / f"{table}.arrow").write_bytes(start + b"this is no table" * 40)
    assert_refused(call("merge", folder, "-o", tmp_path / "run.pftrace"), ".arrow` cannot be read: ")
    kept = call("merge", folder, RANK0, "--keep-going", "-o", tmp_path / "run.pftrace")
    assert kept.code == 3
    assert f"skipped {folder}: " in kept.stderr


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a defect that rank 1 shows."""

    def identify_wrongly(report: Report) -> Identity:
        if report.path.name == RANK1.name:
            raise IndexError("index 7 is out of bounds")
        return identify(report)

    monkeypatch.setattr(one_report, "identify", identify_wrongly)


@pytest.mark.usefixtures("broken")
def test_a_defect_is_one_sentence_with_a_traceback_on_request(reports: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "run.pftrace"
    sentence = f"`{reports[1]}` cannot be processed: unforeseen IndexError: index 7 is out of bounds"
    refused = call("merge", *reports, "-o", output, foresees=False)
    assert refused.code == 1
    assert refused.stderr.startswith(
        f"Error: {sentence}\n\nhint: this is a defect of nsys-pp: please report it"
    )
    assert not output.exists()
    kept = call("merge", *reports, "-o", output, "--keep-going", foresees=False)
    assert kept.code == 3
    assert f"skipped {reports[1]}: {sentence}\nhint: this is a defect" in kept.stderr
    assert output.exists()
    for result in (refused, kept):
        assert "Traceback" not in result.stderr
    for options in ([], ["--keep-going"]):
        shown = call("merge", *reports, "-o", output, "--force", "--debug", *options, foresees=False)
        assert "Traceback (most recent call last)" in shown.stderr
        assert "in identify_wrongly" in shown.stderr


def test_a_defect_of_no_report_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys_pp.run.run.build_roster", lambda *_, **__: os.environ["ABSENT"])
    for options, is_traced in (([], False), (["--debug"], True), (["--log-format", "json"], False)):
        done = call("merge", RANK0, "-o", tmp_path / "run.pftrace", *options, foresees=False)
        assert done.code == 1
        assert "unforeseen KeyError: 'ABSENT'" in done.stderr
        assert "please report it" in done.stderr
        assert ("Traceback" in done.stderr) == is_traced
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "stage"),
    [
        (["merge", "-o", "FOLDER/run.pftrace"], "find_training"),
        (["pipeline"], "align_inputs"),
        (["align"], "align_inputs"),
        (["summary"], "number_run"),
    ],
)
def test_a_report_that_shows_a_defect_among_all_is_left_out(
    command: list[str], stage: str, reports: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports += [Path(shutil.copy(PIPELINE / "node10" / f"rank{rank}.sqlite", tmp_path)) for rank in (2, 3)]
    real = getattr(running, stage)

    def fail(inputs: Sequence[Input], *more: Any, **options: Any) -> Any:
        if any(recorded.path == reports[1] for recorded in inputs):
            raise IndexError("index 7 is out of bounds")
        return real(inputs, *more, **options)

    def run_on(*paths: Path) -> Result:
        options = [option.replace("FOLDER", str(tmp_path)) for option in command]
        return call(
            *options, *paths, "--keep-going", *(["--force"] if "-o" in command else []), foresees=False
        )

    expected = run_on(reports[0], *reports[2:])
    monkeypatch.setattr(running, stage, fail)
    kept = run_on(*reports)
    assert kept.code == 3, kept
    sentence = f"`{reports[1]}` cannot be processed: unforeseen IndexError: index 7 is out of bounds"
    assert kept.stderr.count(f"skipped {reports[1]}: {sentence}\nhint: this is a defect") == 1
    assert kept.stdout == expected.stdout
    # the notes are those of the others alone
    assert [line for line in kept.stderr.splitlines() if line.startswith("note: ")] == [
        line for line in expected.stderr.splitlines() if line.startswith("note: ")
    ]
    refused = call(
        *[option.replace("FOLDER", str(tmp_path)) for option in command[:1]], *reports, foresees=False
    )
    assert refused.code in (1, 2)


def test_a_defect_that_several_reports_show_together_is_of_none(
    reports: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(running, "align_inputs")  # noqa: B009 (it is imported there)

    def fail(inputs: Sequence[Input], *more: Any, **options: Any) -> Any:
        if len(inputs) == 2:
            raise IndexError("index 7 is out of bounds")
        return real(inputs, *more, **options)

    monkeypatch.setattr(running, "align_inputs", fail)
    done = call("merge", *reports, "-o", tmp_path / "run.pftrace", "--keep-going", foresees=False)
    assert done.code == 1
    assert done.stderr.startswith("Error: unforeseen IndexError: index 7 is out of bounds")
    assert "skipped" not in done.stderr
    assert not (tmp_path / "run.pftrace").exists()


@given(st.sets(st.integers(0, 40), max_size=5), st.integers(1, 40))
def test_exactly_the_odd_are_left_out(odd: set[int], count: int) -> None:
    calls, skipped = 0, []

    def work(numbers: Sequence[int]) -> None:
        nonlocal calls
        calls += len(numbers)
        if odd & {*numbers}:
            raise IndexError

    numbers = list(range(count))
    if odd >= {*numbers}:
        return  # as of one report alone
    left = leave_out_odd(numbers, work, lambda number, _: skipped.append(number))
    assert {*skipped} == odd & {*numbers}
    assert left == [number for number in numbers if number not in odd]
    assert calls <= count * (1 + 3 * len(skipped))


def test_nothing_of_this_is_seen_in_other_processes(tmp_path: Path) -> None:
    done = run("merge", RANK0, RANK1, "-o", tmp_path / "run.pftrace", "--processes", "2", "--keep-going")
    assert done.code == 0, done.stderr
