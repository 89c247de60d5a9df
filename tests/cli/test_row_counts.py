"""Counts of rows of every command: `--result`, `--explain-rows`, `info`, and the metadata of traces."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import call

RANK0 = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"
_COMMANDS = {
    "merge": ["-o", "run.pftrace"],
    "project": ["-o", "ranges.csv"],
    "pipeline": [],
    "pipeline --explain-jobs": [],
    "summary": [],
    "align": [],
    "info": [],
    "check": [],
    "chart": ["-o", "run.svg"],
    "report": ["-o", "run.html"],
    "extract": ["-o", "run.nspart"],
    "sql": ["SELECT count(*) FROM jobs"],
}


def _sum(entry: dict[str, Any]) -> int:
    return int(entry["used"] + sum(entry["left_out"].values()))


@pytest.mark.parametrize("command", sorted(_COMMANDS))
def test_every_command_counts(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*command.split(), *_COMMANDS[command], "--result", "r.json", "--explain-rows"]
    done = call(*arguments, RANK0)
    assert done.code == 0, done.stderr
    [report] = json.loads(Path("r.json").read_text())["rows"]
    assert report["report"] == str(RANK0)
    tables = {entry["source"]: entry for entry in report["tables"]}
    with closing(sqlite3.connect(RANK0)) as connection:
        for name in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            [[rows]] = connection.execute(f"SELECT count(*) FROM {name}")
            assert tables[name]["read"] == rows == _sum(tables[name])
    assert all(entry["read"] == _sum(entry) for entry in report["tables"])
    lines = [line for line in done.stderr.splitlines() if f"{RANK0}: " in line]
    assert len([line for line in lines if " read, " in line or "of these" in line]) == len(report["tables"])


def test_a_comparison_counts_both_runs(tmp_path: Path) -> None:
    call("compare", RANK0, RANK0.with_name("rank1.sqlite"), "--result", tmp_path / "r.json")
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [Path(report["report"]).name for report in rows] == ["rank0.sqlite", "rank1.sqlite"]


def test_parts_have_the_counts_of_their_reports(tmp_path: Path) -> None:
    counts = []
    call("extract", RANK0, "-o", tmp_path / "a.nspart")
    for index, path in enumerate((RANK0, tmp_path / "a.nspart")):
        call("summary", path, "--result", tmp_path / f"{index}.json")
        [report] = json.loads((tmp_path / f"{index}.json").read_text())["rows"]
        counts.append({entry["table"]: entry for entry in report["tables"]})
    assert counts[0].keys() <= counts[1].keys()  # a part is made of more tables
    assert all(counts[1][table] == entry for table, entry in counts[0].items())


def test_ranges_that_launched_nothing_are_counted(tmp_path: Path) -> None:
    path = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(path)) as connection, connection:
        [[most]] = connection.execute("SELECT max(end) FROM NVTX_EVENTS")
        columns = "start, end, eventType, globalTid"
        insert = f"INSERT INTO NVTX_EVENTS ({columns}) SELECT ?, ?, 59, globalTid FROM NVTX_EVENTS LIMIT 1"
        connection.executemany(insert, [(most + 10 * i, most + 10 * i + 5) for i in range(1, 8)])
    before = call("project", RANK0, "-o", tmp_path / "a.csv", "--result", tmp_path / "a.json")
    done = call("project", path, "-o", tmp_path / "b.csv", "--result", tmp_path / "b.json")
    entries = []
    for name in ("a.json", "b.json"):
        [report] = json.loads((tmp_path / name).read_text())["rows"]
        entries += [entry for entry in report["tables"] if entry["table"] == "ranges"]
    reason = "launched no GPU operation that counts"
    assert entries[1]["read"] - entries[0]["read"] == 7
    assert entries[1]["left_out"].get(reason, 0) - entries[0]["left_out"].get(reason, 0) == 7
    assert f"{entries[1]['left_out'][reason]} {reason}" in done.stderr
    assert before.code == done.code == 0


def test_traces_have_the_counts(tmp_path: Path) -> None:
    call("merge", RANK0, "-o", tmp_path / "run.json", "--format", "chrome")
    other = json.loads((tmp_path / "run.json").read_text())["otherData"]
    assert "kernels " in other["rows.rank0"]
    call("merge", RANK0, "-o", tmp_path / "run.pftrace")
    assert b"rows.rank0" in (tmp_path / "run.pftrace").read_bytes()


def test_info_lists_what_is_left_out(tmp_path: Path) -> None:
    path = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0, end = 0 WHERE rowid < 6")
    done = call("info", path)
    assert "5 of CUPTI_ACTIVITY_KIND_KERNEL: without times" in done.stdout
    assert "left out 5 of " in done.stderr
    [report] = json.loads(call("info", path, "--format", "json").stdout)
    kernels = next(entry for entry in report["rows"] if entry["table"] == "kernels")
    assert kernels["left_out"] == {"without times: CUPTI did not measure them": 5}


def test_folders_named_like_reports_are_noted(tmp_path: Path) -> None:
    shutil.copy(RANK0, tmp_path)
    (tmp_path / "rank7.sqlite").mkdir()
    done = call("info", tmp_path)
    assert f"note: `{tmp_path / 'rank7.sqlite'}` is a folder without reports" in done.stderr
