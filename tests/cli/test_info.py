"""`nsys-pp info` on real and made-up reports."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.recording.export import Session, write_report
from tests.cli.calls import PIPELINE, RANK0, assert_refused, call, on_terminal, succeed
from tests.sql import edit

KEYS = [
    *("report", "exporter_version", "schema_version", "machine", "machine_source", "hardware_id"),
    *("rank", "rank_source", "launcher", "who", "utc_start", "utc_epoch_ns", "system_clock_ns"),
    *("time_shift_ns", "start_ns", "end_ns", "has_capture", "graph_mode", "gpus", "processes"),
    *(
        "domains",
        "op_count",
        "matched_count",
        "communication_count",
        "recorded",
        "missing",
        "rows",
        "tables",
        "notes",
    ),
]


def _tell(*reports: Path, options: Sequence[str] = (), notes: int = 0) -> list[dict[str, Any]]:
    done = succeed("info", "--json", *reports, *options)
    assert done.stderr.count("note: ") == done.stderr.count("\n") == notes
    told: list[dict[str, Any]] = json.loads(done.stdout)["reports"]
    return told


def _plain_words(text: str) -> str:
    return " ".join(text.split())


def test_the_keys_are_stable() -> None:
    told = _tell(PIPELINE)
    assert [list(one) for one in told] == [KEYS] * 4
    assert [one["rank"] for one in told] == [0, 1, 2, 3]  # node2 before node10
    assert list(told[0]["gpus"][0]) == [
        *("gpu", "name", "uuid", "bus_location", "pid", "device_id", "op_count", "communication_count")
    ]
    assert list(told[0]["processes"][0]) == [
        *("pid", "name", "thread_count", "range_count", "call_count", "op_count", "threads")
    ]


def _write(path: Path, rank: int | None, *, pid: int = 1000, shift: int = 0, **session: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if rank is not None:
        session["environment"] = {"RANK": str(rank), "WORLD_SIZE": "4"}
    return write_report(
        path,
        ranges=[{"start": shift, "end": 100 + shift, "name": "step", "pid": pid}],
        api_calls=[{"start": 10 + shift, "end": 12 + shift, "correlation": 1, "pid": pid}],
        kernels=[{"start": 20 + shift, "end": 30 + shift, "correlation": 1, "pid": pid}],
        session=Session(pid=pid, time_shift_ns=shift, duration_ns=500, **session),
    )


def test_who_is_who() -> None:
    told = _tell(PIPELINE, options=["--layout", "pp=2,tp=2,order=pp-tp"])
    who = [row for one in told for row in one["who"]]
    assert list(who[0]) == [
        *("machine", "machine_source", "pid", "device_id", "gpu", "gpu_number", "gpu_name", "uuid"),
        *("bus_location", "rank", "rank_source", "stage", "tensor", "replica", "stage_source"),
    ]
    facts = ("machine", "gpu_number", "rank", "rank_source", "stage", "tensor", "stage_source")
    assert [tuple(row[fact] for fact in facts) for row in who] == [
        ("node2", 0, 0, "RANK", 0, 0, "--layout"),
        ("node2", 1, 1, "RANK", 1, 0, "--layout"),
        ("node10", 0, 2, "RANK", 0, 1, "--layout"),
        ("node10", 1, 3, "RANK", 1, 1, "--layout"),
    ]


def test_several_reports_are_listed_first() -> None:
    listed, *screens = call("info", PIPELINE, "--layout", "pp=4", env={"COLUMNS": "100"}).stdout.split("\n\n")
    assert listed.splitlines() == [
        "Reports",
        "Report  Machine  Rank  GPU  Stage  Learned from",
        "rank0   node2       0  0    0      machine: hostname, rank: RANK, stage: --layout",
        "rank1   node2       1  1    1      machine: hostname, rank: RANK, stage: --layout",
        "rank2   node10      2  0    2      machine: hostname, rank: RANK, stage: --layout",
        "rank3   node10      3  1    3      machine: hostname, rank: RANK, stage: --layout",
    ]
    assert sum("exporter  " in screen for screen in screens) == 4


def test_rows_of_own_tables_are_counted(tmp_path: Path) -> None:
    report = edit(
        _write(tmp_path / "a.sqlite", 0),
        "CREATE TABLE own (a)",
        "INSERT INTO own VALUES (1), (2), (3)",
        "DELETE FROM own WHERE rowid = 2",
    )
    [told] = _tell(report)
    assert {table["table"]: table["row_count"] for table in told["tables"]}["own"] == 2


def test_doubts_are_notes(tmp_path: Path) -> None:
    reports = [_write(tmp_path / f"{n}.sqlite", rank, pid=n + 1) for n, rank in enumerate((0, 0, 2))]
    done = succeed("info", *reports)
    doubt = f"note: `{reports[0]}` and `{reports[1]}` are both rank 0 at one time: not of one run"
    assert done.stderr.splitlines() == [doubt]
    done = call("info", *reports[1:])
    assert done.stderr.splitlines() == ["note: of 4 ranks, ranks 1, 3 have no report"]


def test_a_recording_is_named_once(tmp_path: Path) -> None:
    report = _write(tmp_path / "a.sqlite", 0)
    shifted = _write(tmp_path / "b" / "utc.sqlite", 0, shift=1_790_000_000_000_000_000)
    assert_refused(call("info", report, shifted), str(report), str(shifted), "are the same recording")
    done = call("info", report, shifted, "--keep-going")
    assert done.code == 3
    assert "(from RANK)" in done.stdout
    assert done.stderr == f"skipped {shifted}: `{report}` and `{shifted}` are the same recording\n"


def test_ranks_from_names_of_files(tmp_path: Path) -> None:
    reports = [_write(tmp_path / f"w{n}x.sqlite", None, pid=n) for n in (3, 12)]
    told = _tell(*reports, options=["--rank-from", r"w(\d+)x"])
    assert [(row["rank"], row["rank_source"]) for one in told for row in one["who"]] == [
        *((3, "--rank-from"), (12, "--rank-from"))
    ]
    assert "rank 3 (from --rank-from)" in _plain_words(
        call("info", reports[0], "--rank-from", r"w(\d+)").stdout
    )
    assert_refused(call("info", *reports, "--rank-from", r"q(\d)"), "matches none of the 2 file names")
    assert_refused(
        call("info", *reports, "--rank-from", r"w(\d+)", "--layout", "pp=4"), "rank 12 is in", str(reports[1])
    )


def test_the_screen_says_what_is_inside() -> None:
    report = PIPELINE / "node10" / "rank2.sqlite"
    told = _tell(report)[0]
    screen = _plain_words(call("info", report).stdout)
    for words in (
        f"exporter nsys {told['exporter_version']}, schema 3.7.2",
        "machine node10 (from the hostname)",
        "rank 2 (from RANK)",
        f"started {told['utc_start'][:10]}",
        f"100 % of {told['op_count']:,} GPU operations found their CUDA call",
        f"{told['communication_count']} of them",
        "GPU 0 NVIDIA H100 80GB HBM3",
        f"NVTX ranges {told['recorded']['ranges']:,}",
        "GPU metrics: --gpu-metrics-device=all",
        "NCCL",
    ):
        assert words in screen, words


def test_counts_of_a_small_report(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[
            {"start": 0, "end": 100, "name": "step"},
            {"start": 10, "end": 500, "name": "prefetch", "kind": "start_end", "end_tid": 1001},
            {"start": 20, "end": 30, "name": "ncclAllReduce", "domain": "NCCL"},
        ],
        marks=[{"time": 5, "name": "here"}],
        api_calls=[{"start": 10, "end": 12, "correlation": 1}, {"start": 14, "end": 16, "correlation": 2}],
        kernels=[
            {"start": 20, "end": 30, "correlation": 1, "name": "gemm"},
            {"start": 30, "end": 40, "correlation": 2, "name": "ncclDevKernel_AllReduce"},
            {"start": 40, "end": 50, "correlation": 9, "name": "stray"},
        ],
        memcpys=[{"start": 60, "end": 70, "correlation": 1, "device": 1}],
        session=Session(duration_ns=500, environment={"RANK": "4", "HOME": "/root"}),
    )
    [told] = _tell(report)
    assert told["domains"] == [
        {
            "domain": None,
            "range_count": 2,
            "push_pop_count": 1,
            "start_end_count": 1,
            "open_count": 1,
            "cross_thread_count": 1,
            "mark_count": 1,
        },
        {
            "domain": "NCCL",
            "range_count": 1,
            "push_pop_count": 1,
            "start_end_count": 0,
            "open_count": 0,
            "cross_thread_count": 0,
            "mark_count": 0,
        },
    ]
    assert (told["op_count"], told["matched_count"], told["communication_count"]) == (4, 3, 1)
    assert [(gpu["gpu"], gpu["op_count"], gpu["communication_count"]) for gpu in told["gpus"]] == [
        *(("GPU 0", 3, 1), ("GPU 1", 1, 0))
    ]
    assert told["recorded"] == {
        "ranges": 3,
        "marks": 1,
        "api_calls": 2,
        "kernels": 3,
        "copies": 1,
        "nccl_calls": 1,
    }
    assert (told["start_ns"], told["end_ns"], told["has_capture"]) == (0, 500, True)
    assert (told["rank"], told["rank_source"], told["launcher"]) == (4, "RANK", {"RANK": "4"})
    assert told["utc_start"] == "2026-09-21T14:13:20.000000000Z"
    [note] = told["notes"]
    assert note.startswith("1 of 4 GPU operations lack the CUDA call that launched them; no range")


def test_a_report_needs_neither_cuda_nor_nvtx(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report.sqlite")
    [told] = _tell(report)
    assert told["recorded"] == {}
    options = {entry["kind"]: entry["record_with"] for entry in told["missing"]}
    assert options["ranges"] == ["--trace=nvtx"]
    assert options["kernels"] == options["api_calls"] == ["--trace=cuda"]
    screen = _plain_words(call("info", report).stdout)
    for words in (
        *(
            "no known kinds of data",
            "NVTX ranges, CUDA calls, kernels, MPI calls",
            "--trace=nvtx,cuda,mpi,ucx",
        ),
    ):
        assert words in screen


def test_an_export_on_another_clock_is_told(tmp_path: Path) -> None:
    utc = 1_790_000_000_000_000_000
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"start": utc + 5, "end": utc + 9}],
        session=Session(time_shift_ns=utc, utc_epoch_ns=utc, duration_ns=100),
    )
    [told] = _tell(report)
    assert (told["start_ns"], told["end_ns"], told["notes"]) == (utc, utc + 100, [])
    assert "(times are UTC)" in call("info", report).stdout


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(shared_reports: list[Path], width: int) -> None:
    reports = shared_reports[::6]
    done = succeed("info", *reports, "--verbose", env={"COLUMNS": str(width)})
    names = {str(report) for report in reports}
    lines = [line for line in done.stdout.splitlines() if line not in names]
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]
    assert "\x1b" not in done.stdout
    if width >= 80:
        assert "…" not in done.stdout


def test_colour_is_for_terminals_that_want_it() -> None:
    report = RANK0
    plain = call("info", report, env={"COLUMNS": "80"}).stdout
    coloured = on_terminal("info", report)
    assert "\x1b[36m" in coloured
    uncoloured = on_terminal("info", report, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3\dm", uncoloured)
    for shown in (coloured, uncoloured):
        words = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert "".join(words.split()) == "".join(plain.split())


def test_every_real_report_is_told(shared_reports: list[Path]) -> None:
    for told in _tell(*shared_reports, notes=1):  # of many runs
        assert told["matched_count"] <= told["op_count"]
        assert sum(gpu["op_count"] for gpu in told["gpus"]) == told["op_count"]
        assert sum(process["op_count"] for process in told["processes"]) == told["op_count"]
        assert sum(domain["range_count"] for domain in told["domains"]) == told["recorded"].get("ranges", 0)
        assert told["recorded"].keys().isdisjoint(missing["kind"] for missing in told["missing"])
