"""Events that end before they start, and events at impossible times."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import nsys_pp
from fixtures.recording.export import write_report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.cli.calls import environment, run

RANK0 = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"


def test_reversed_events_are_left_out_and_counted(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"name": "good", "start": 0, "end": 100}, {"name": "bad", "start": 50, "end": 40}],
        api_calls=[{"start": 10, "end": 20}, {"start": 30, "end": 25}],
        kernels=[
            {"name": "gemm", "start": 30, "end": 50, "correlation": 1},
            {"name": "bad", "start": 90, "end": 60, "correlation": 1},
        ],
        os_calls=[{"start": 10, "end": 20}, {"start": 30, "end": 25}],
    )
    with pytest.warns(UserWarning, match="left out 1 .* that end before they start") as warned:
        built = build_report(read_report(report))
    assert {str(one.message).split("out 1 ")[1].split(" that")[0] for one in warned} == {
        "NVTX ranges",
        "CUDA calls",
        "kernels",
        "calls of the operating system",
    }
    assert built.ranges["name"].to_list() == ["good"]
    assert built.gpu_ops["name"].to_list() == ["gemm"]
    assert len(built.op_details.row) == built.gpu_ops.height == built.api_calls.height == 1
    assert built.os_calls.select("start_ns", "end_ns").rows() == [(10, 20)]


def test_a_call_that_is_stored_twice_is_one_call(tmp_path: Path) -> None:
    """As nsys 2023 stores calls with stacks: a row around the call, with its correlation id."""
    report = write_report(
        tmp_path / "report.sqlite",
        api_calls=[
            {"start": 9, "end": 21, "correlation": 1},
            {"start": 10, "end": 20, "correlation": 1},
            {"start": 30, "end": 40, "correlation": 2},
        ],
        kernels=[{"start": 30, "end": 50, "correlation": 1}],
    )
    built = build_report(read_report(report))
    assert built.api_calls.select("start_ns", "end_ns").rows() == [(10, 20), (30, 40)]
    assert built.row_counts.filter(table="calls").drop_nulls("reason")["row_count"].to_list() == [1]


def test_a_trace_of_a_damaged_report_is_written(tmp_path: Path) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"start": 0, "end": 100}],
        api_calls=[{"start": 10, "end": 20}],
        kernels=[{"start": 30, "end": 50, "correlation": 1}, {"start": 90, "end": 60}],
    )
    with pytest.warns(UserWarning, match="left out 1 kernels"):
        merged = nsys_pp.merge([report], tmp_path / "run.pftrace")
    assert merged.slices == 2


def edit(report: Path, statement: str) -> None:
    with closing(sqlite3.connect(report)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("time", [(1 << 63) - 1, 1 << 62, -(1 << 63), -(1 << 62)])
def test_events_at_impossible_times_are_left_out_and_counted(tmp_path: Path, time: int) -> None:
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"name": "good", "start": 0, "end": 100}],
        api_calls=[{"start": 10, "end": 20}],
        kernels=[
            {"name": "gemm", "start": 30, "end": 50, "correlation": 1},
            {"name": "odd", "start": 30, "end": 50, "correlation": 1},
        ],
    )
    column = '"end"' if time > 0 else "start"
    edit(report, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = {time} WHERE rowid = 2")
    with pytest.warns(UserWarning, match="left out 1 kernels with impossible times"):
        merged = nsys_pp.merge([report], tmp_path / "run.pftrace", detail="cpu")
    assert merged.slices == 4  # the range on the CPU and on the GPU, the call, the kernel


def test_a_session_at_an_impossible_time_has_no_utc(tmp_path: Path) -> None:
    report = write_report(tmp_path / "report.sqlite", ranges=[{"start": 0, "end": 100}])
    edit(report, f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {(1 << 62) - 200}")
    assert build_report(read_report(report)).session.utc_epoch_ns == (1 << 62) - 200
    for utc_ns in (1 << 62, -1):
        edit(report, f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {utc_ns}")
        with pytest.warns(UserWarning, match="impossible utc_epoch ignored"):
            assert build_report(read_report(report)).session.utc_epoch_ns is None


@pytest.mark.parametrize("utc_ns", [0, 1_790_000_000_000_000_000, (1 << 62) - 1])
@pytest.mark.parametrize("shift_ns", [0, 1_790_000_000_000_000_000, (1 << 62) - 1, -(1 << 62) + 1])
def test_sums_and_differences_of_the_times_of_a_report_are_below_64_bits(
    tmp_path: Path, utc_ns: int, shift_ns: int
) -> None:
    times = [sign * ((1 << power) - less) for sign in (1, -1) for power in (60, 61, 62) for less in (0, 1, 2)]
    report = write_report(
        tmp_path / "report.sqlite",
        ranges=[{"start": min(0, time), "end": max(0, time)} for time in times],
        os_calls=[{"start": time, "end": time} for time in times],
    )
    edit(report, f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {utc_ns}")
    edit(report, "DELETE FROM META_DATA_EXPORT WHERE name = 'EXPORT_CONFIG_TIME_SHIFT'")
    edit(report, f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_CONFIG_TIME_SHIFT', '{shift_ns}')")
    with pytest.warns(UserWarning, match="impossible"):
        built = build_report(read_report(report))
    utc = [time - shift_ns + utc_ns for time in times]
    kept = [
        time
        for time, of_time in zip(times, utc, strict=True)
        if abs(time) < 1 << 62 and abs(of_time) < 1 << 62
    ]
    assert built.os_calls["start_ns"].to_list() == kept


@pytest.mark.parametrize("number", ["NULL", "7", "rowid % 3"])
def test_events_without_numbers_of_their_own_are_renumbered(tmp_path: Path, number: str) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(report)) as connection, connection:
        ((table,),) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
        connection.execute("ALTER TABLE NVTX_EVENTS RENAME TO original")
        connection.execute(table.replace("(", "(rowid INTEGER, ", 1))
        connection.execute(
            f"INSERT INTO NVTX_EVENTS SELECT {number}, * FROM original ORDER BY original.rowid"
        )
        connection.execute("DROP TABLE original")
    # as a process: an endless loop in a test would be endless
    done = run("merge", report, "-o", tmp_path / "odd.pftrace", env=environment(PYTHONWARNINGS=""))
    assert done.code == 0, done.stderr
    assert "have no number of their own; all are renumbered" in done.stderr
    merged = nsys_pp.merge([RANK0], tmp_path / "run.pftrace")
    assert f" {merged.slices:,} slices on 1 GPU" in done.stderr
