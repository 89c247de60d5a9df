"""The worked examples of CONTRIBUTING.md work as written, in at most so many files of the package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fixtures.recording.export import write_report
from tests.guides.guide import (
    CONTRIBUTING,
    ROOT,
    Block,
    GuideError,
    apply_hunks,
    follow_guide,
    list_blocks,
    run_copy,
)
from tests.importer.importer import Importer

_PID = 4242
_PROCESS = (1 << 48) | (_PID << 24)


def write_small_report(path: Path, **tables: list[dict[str, int]]) -> Path:
    """Write a report with two kernels in a range, and further tables under exported names."""
    return write_report(
        path,
        ranges=[{"start": 0, "end": 400, "name": "step", "pid": _PID}],
        api_calls=[
            {"start": 10, "end": 20, "correlation": 1, "pid": _PID},
            {"start": 30, "end": 40, "correlation": 2, "pid": _PID},
        ],
        kernels=[
            {"start": 50, "end": 150, "correlation": 1, "stream": 7, "pid": _PID},
            {"start": 200, "end": 230, "correlation": 2, "stream": 13, "pid": _PID},
        ],
        tables=tables,
    )


def test_a_table_of_nsys_is_drawn_as_counters(tmp_path: Path, importer: Importer) -> None:
    assert len(follow_guide("1. ", tmp_path)) <= 5
    times_and_counts = [(60, 3), (120, 4), (210, 1)]
    faults = [
        {"start": time, "end": time + 5, "globalPid": _PROCESS, "deviceId": 0, "numberOfPageFaults": count}
        for time, count in times_and_counts
    ]
    report = write_small_report(tmp_path / "report.sqlite", CUDA_UM_GPU_PAGE_FAULT_EVENTS=faults)
    run_copy(tmp_path, "merge", report, "-o", "run.pftrace")
    samples = importer.query(
        tmp_path / "run.pftrace",
        "SELECT value FROM counter JOIN counter_track AS track ON track_id = track.id"
        " WHERE track.name = 'page faults' ORDER BY ts",
    )
    assert samples["value"].to_list() == [3, 7, 8]


def test_a_summary_table_shows_a_new_aggregate(tmp_path: Path) -> None:
    assert len(follow_guide("2. ", tmp_path)) <= 5
    report = write_small_report(tmp_path / "report.sqlite")
    rows = json.loads(run_copy(tmp_path, "summary", report, "--table", "streams", "--json"))
    streams = rows["streams"] if isinstance(rows, dict) else rows
    assert [(row["stream"], row["count"], row["total_ns"]) for row in streams] == [
        ("7", 1, 100),
        ("13", 1, 30),
    ]


def test_jobs_are_written_in_another_format(tmp_path: Path) -> None:
    assert len(follow_guide("3. ", tmp_path)) <= 2
    reports = sorted((ROOT / "fixtures" / "pipeline").glob("node*/*.sqlite"))
    run_copy(tmp_path, "pipeline", *reports, "--format", "jsonl", "-o", "jobs.jsonl")
    jobs = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    assert {job["kind"] for job in jobs} >= {"forward", "backward"}
    assert {job["lane"] for job in jobs} == set(range(len(reports)))


def test_a_file_of_intervals_is_a_report(tmp_path: Path) -> None:
    assert len(follow_guide("4. ", tmp_path)) <= 3
    lines = [
        ("range", _PID, 1, "step", 0, 400, ""),
        ("call", _PID, 1, "cudaLaunchKernel", 10, 20, 1),
        ("call", _PID, 1, "cudaLaunchKernel", 30, 40, 2),
        ("kernel", _PID, 7, "gemm", 50, 150, 1),
        ("kernel", _PID, 13, "norm", 200, 230, 2),
    ]
    (tmp_path / "run").mkdir()
    text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
    (tmp_path / "run" / "rank0.intervals").write_text(text)
    [row] = json.loads(run_copy(tmp_path, "project", "run", "--json"))
    assert (row["name"], row["gpu_start_ns"], row["gpu_end_ns"], row["busy_ns"]) == ("step", 50, 230, 130)
    assert row["process_id"] == _PID


def test_a_block_that_does_not_fit_is_an_error() -> None:
    block = Block(file="nsys_pp/x.py", kind="diff", code=" old\n+new\n@@\n-other\n+another\n")
    assert apply_hunks("old\nother\n", block) == "old\nnew\nanother\n"
    with pytest.raises(GuideError, match="0 times"):
        apply_hunks("else\n", block)
    with pytest.raises(GuideError, match="2 times"):
        apply_hunks("old\nold\nother\n", block)


def test_files_that_contributing_names_exist() -> None:
    names = {
        name
        for line in re.sub(
            r"^```(python|diff)\n.*?^```$", "", CONTRIBUTING.read_text(), flags=re.DOTALL | re.MULTILINE
        ).splitlines()
        for name in re.findall(r"`((?:[\w.]+/)+(?:[\w.]+\.\w+)?)`", line)
    }
    new = {
        block.file for number in range(1, 5) for block in list_blocks(f"{number}. ") if block.kind == "python"
    }
    missing = [
        name for name in names - new if not any((base / name).exists() for base in (ROOT, ROOT / "nsys_pp"))
    ]
    assert len(names) > 20
    assert not missing
