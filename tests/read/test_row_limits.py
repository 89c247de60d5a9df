"""Tables with more rows than positions of 32 bits can count, and reports that need more memory than there is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys_pp.errors import ReportError
from nsys_pp.executors import limits as memory
from nsys_pp.executors.executor import choose_executor
from nsys_pp.read import plan as row_limits
from nsys_pp.read import read_report
from tests.cli.calls import assert_refused, call
from tests.scrubbing.test_reports import export_tables

RANK0 = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"


@pytest.mark.parametrize("form", ["sqlite", "parquet", "arrow"])
def test_a_table_with_more_rows_than_can_be_counted(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = RANK0 if form == "sqlite" else export_tables(RANK0, tmp_path / "rank0_pqtdir", form)
    monkeypatch.setattr(row_limits, "MOST_ROWS", 1486)
    done = call("merge", report, "-o", tmp_path / "run.pftrace")
    assert_refused(done)
    words = "has 1,487 rows in `CUPTI_ACTIVITY_KIND_RUNTIME`; expected at most 1,486"
    assert f"`{report}` {words}" in done.stderr
    with pytest.raises(ReportError, match="expected at most 1,486"):
        read_report(report)
    monkeypatch.setattr(row_limits, "MOST_ROWS", 1487)
    assert read_report(report).recorded["calls"] == 1487


def test_numbers_of_rows_that_the_file_has_no_room_for_are_no_counts(tmp_path: Path) -> None:
    """A damaged row id costs no more than its row, and is no reason to refuse the others."""
    path = tmp_path / "a.sqlite"
    path.write_bytes(RANK0.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET rowid = ? WHERE rowid = 1487", [2**40])
    assert len(read_report(path)["calls"]) == 1487


def test_a_report_that_needs_more_memory_than_is_free_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(memory, "find_memory", lambda: 2_000_000_000)
    paths = [tmp_path / name for name in ("small.sqlite", "large.sqlite")]
    for path, size in zip(paths, (200_000_000, 1_000_000_000), strict=True):
        with path.open("wb") as file:
            file.truncate(size)
    limits: dict[str, None] = {"memory_bytes": None, "timeout_s": None, "scheduler": None}
    choose_executor(paths[:1], processes=None, **limits)
    choose_executor([], processes=None, **limits)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"large.sqlite` may need 6\.2 GB of memory, and 2\.0 GB are free"):
        choose_executor(paths, processes=None, **limits)
