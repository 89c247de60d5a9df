"""Calls of the operating system, runs of threads, and allocations."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from fixtures.program.host_activity import READ_NS, RUN_NS, WORKSPACE_BYTES
from fixtures.simulate import main
from nsys_pp.frames.raw import ALL_GROUPS, SCHEMAS, Group, RawReport
from nsys_pp.frames.report import MEMORY_EVENTS, OS_CALLS, THREAD_RUNS, Report
from nsys_pp.model import build_report
from nsys_pp.model.activities import build_thread_runs
from nsys_pp.read import read_report
from tests.read.tables import PROCESS, THREAD, Row, call, memory, os_call, strings, switch, write_export

_HOST: frozenset[Group] = frozenset({"host"})
_SECRET = "hunter2-token"


def _build(path: Path, need: frozenset[Group] = _HOST, **tables: list[Row]) -> Report:
    export = path / "report.sqlite"
    export.unlink(missing_ok=True)
    return build_report(read_report(write_export(export, tables), need=need))


def test_calls_are_named_and_what_tells_of_tracing_is_none(tmp_path: Path) -> None:
    report = _build(
        tmp_path,
        StringIds=strings("read", "OS runtime libraries profiling started", _SECRET),
        OSRT_API=[
            os_call(0, 0, eventClass=31, nameId=1),
            os_call(5, 9, nameId=0),
            os_call(6, 7, nameId=0, nestingLevel=1),
            os_call(8, 9, nameId=77),
            os_call(8, 9, globalTid=None),
            os_call(9, 9, eventClass=99, nameId=2),
        ],
    )
    assert report.os_calls.schema == OS_CALLS
    assert report.os_calls.with_columns(pl.col("name").cast(pl.String)).rows() == [
        (PROCESS, THREAD, 5, 9, "read"),
        (PROCESS, THREAD, 6, 7, "read"),
        (PROCESS, THREAD, 8, 9, None),
    ]
    assert report.recorded["os_calls"] == 6
    written = io.BytesIO()
    report.os_calls.write_ipc(written)  # with all names that it knows
    assert b"read" in written.getvalue()
    assert _SECRET.encode() not in written.getvalue()


def test_what_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    report = _build(
        tmp_path,
        ALL_GROUPS - {"host", "os_calls"},
        StringIds=strings("read"),
        OSRT_API=[os_call(5, 9)],
        SCHED_EVENTS=[switch(1, 1), switch(2, 0)],
        CUDA_GPU_MEMORY_USAGE_EVENTS=[memory(1, 0, 16, 8)],
    )
    assert report.os_calls.equals(OS_CALLS.to_frame())
    assert report.thread_runs.equals(THREAD_RUNS.to_frame())
    assert report.memory_events.equals(MEMORY_EVENTS.to_frame())
    assert report.threads.is_empty()
    assert report.recorded == {"os_calls": 1, "thread_switches": 2, "cuda_memory": 1}


@pytest.mark.parametrize(
    ("switches", "runs"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(1, 1), (4, 0), (6, 1), (9, 0)], [(1, 4), (6, 9)], id="in order"),
        pytest.param([(6, 1), (9, 0), (4, 0), (1, 1)], [(1, 4), (6, 9)], id="in any order"),
        pytest.param([(1, 0), (4, 1), (6, 0)], [(4, 6)], id="first seen leaving"),
        pytest.param([(1, 1), (4, 0), (6, 1)], [(1, 4)], id="still running at the end"),
        pytest.param([(1, 1), (4, 1), (6, 0)], [(4, 6)], id="came twice"),
        pytest.param([(1, 1), (4, 0), (6, 0)], [(1, 4)], id="left twice"),
        pytest.param([(1, 1), (4, 1), (4, 0), (6, 0)], [(1, 4), (4, 6)], id="left and came at once"),
        pytest.param([(1, 7), (4, 0)], [(1, 4)], id="any number but 0 is in"),
        pytest.param([(None, 1), (4, 0), (5, 1), (6, None), (7, 0)], [(5, 7)], id="without a time"),
    ],
)
def test_a_run_is_what_lies_between_coming_and_leaving(
    tmp_path: Path, switches: list[tuple[int, int]], runs: list[tuple[int, int]]
) -> None:
    events = [switch(time, is_in) for time, is_in in switches]
    found = _build(tmp_path, SCHED_EVENTS=events, StringIds=strings("x")).thread_runs
    assert found.schema == THREAD_RUNS
    assert found.rows() == [(PROCESS, THREAD, start, end) for start, end in runs]


_SWITCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(0, 1)), max_size=25)


@settings(deadline=None, max_examples=100)
@given(_SWITCHES)
def test_runs_are_those_of_the_definition(switches: list[tuple[int, int, int]]) -> None:
    expected = []
    came: dict[int, int] = {}  # thread -> since when it runs
    for thread, time, is_in in sorted((thread, time, is_in) for time, thread, is_in in switches):
        if is_in:
            came[thread] = time
        elif thread in came:
            expected.append((thread, came.pop(thread), time))
    frames = {name: schema.to_frame() for name, schema in SCHEMAS.items()}
    frames["thread_switches"] = pl.DataFrame(switches, schema=["time", "thread", "is_in"], orient="row").cast(
        dict(SCHEMAS["thread_switches"])  # type: ignore[arg-type]
    )
    raw = RawReport(path=Path("x"), groups=_HOST, frames=frames, recorded={})
    found = build_thread_runs(raw).select("thread_key", "start_ns", "end_ns")
    assert found.rows() == expected


def test_allocations_are_in_order_and_keep_what_is_unknown(tmp_path: Path) -> None:
    high = 0xFFFF_0000_0000_0000
    report = _build(
        tmp_path,
        StringIds=strings("x"),
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            memory(9, 1, high - (1 << 64), 0, correlationId=7),
            memory(3, 0, high - (1 << 64), 64, memKind=4, correlationId=5),
            memory(4, 0, 16, 8, memKind=7, deviceId=1),
            memory(5, 2, 16, 8),
            memory(5, 0, 16, 8, globalPid=None),
            {**memory(5, 0, 16, 8), "start": None},
        ],
    )
    assert report.memory_events.schema == MEMORY_EVENTS
    assert report.memory_events.rows() == [
        (PROCESS, 0, 5, 3, "managed", False, high, 64),
        (PROCESS, 1, None, 4, None, False, 16, 8),
        (PROCESS, 0, 7, 9, "device", True, high, 0),
    ]


def test_who_a_report_is_does_not_hang_on_reading_the_host(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    tables: dict[str, list[Row]] = {
        "StringIds": strings("read", _SECRET),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1, 2, 1)],
        "OSRT_API": [os_call(5, 9), os_call(5, 9, globalTid=other | 5)],
        "SCHED_EVENTS": [switch(1, 1, globalTid=other | 5), switch(2, 0, globalTid=other | 5)],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(1, 0, 16, 8, globalPid=other)],
        "PROCESSES": [{"globalPid": other, "pid": 4243, "name": f"curl -H {_SECRET}"}],
        "ThreadNames": [{"nameId": 1, "priority": 0, "globalTid": other | 5}],
    }
    little = _build(tmp_path, frozenset({"ops"}), **tables)
    much = _build(tmp_path, frozenset({"ops", "host"}), **tables)
    assert much.os_calls["process_key"].to_list() == [PROCESS, other]
    assert much.thread_runs["process_key"].to_list() == [other]
    assert much.memory_events["process_key"].to_list() == [other]
    assert little.processes["process_key"].to_list() == [PROCESS]
    assert_frame_equal(little.processes, much.processes)
    assert_frame_equal(little.threads, much.threads)
    assert _SECRET not in str(much)


def test_tables_of_the_real_exporters_shape_are_read(tmp_path: Path) -> None:
    ddl = Path(__file__).parents[3] / "shared" / "docs" / "schema_2023.4_3.7.2.sql"
    if not ddl.is_file():
        pytest.skip("no schema of a real export")
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(f"BEGIN; {ddl.read_text()}; COMMIT")
        event = {"start": 3, "globalPid": PROCESS, "deviceId": 1, "contextId": 2, "address": 4096, "pc": 0}
        event |= {"bytes": 512, "memKind": 1, "memoryOperationType": 0, "correlationId": 77}
        marks = ", ".join("?" * len(event))
        connection.execute(
            f"INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS ({', '.join(event)}) VALUES ({marks})",
            [*event.values()],
        )
    connection.close()
    report = build_report(read_report(path, need=_HOST))
    assert report.memory_events.rows() == [(PROCESS, 1, 77, 3, "pinned", False, 4096, 512)]
    assert report.recorded["cuda_memory"] == 1


@pytest.mark.parametrize("prefix", ["Ihor", "argonne", "caoye310", "quasiben__multi", "zx3xyy"])
def test_calls_of_real_reports_are_those_that_nsys_stats_counts(
    shared_reports: list[Path], prefix: str
) -> None:
    path = next((path for path in shared_reports if path.name.startswith(prefix)), None)
    if path is None:
        pytest.skip(f"no report {prefix}*")
    with sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True) as connection:
        # what its report `osrt_sum` counts
        expected = connection.execute(
            "SELECT value, count(*), sum(end - start) FROM OSRT_API JOIN StringIds ON id = nameId"
            " WHERE eventClass = 27 GROUP BY value"
        ).fetchall()
    connection.close()
    calls = build_report(read_report(path, need=_HOST)).os_calls
    found = calls.group_by(pl.col("name").cast(pl.String)).agg(
        pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total")
    )
    assert sorted(found.rows()) == sorted(expected)
    assert len(expected) > 4


@pytest.mark.parametrize("prefix", ["NVIDIA", "Ihor", "LeiWang"])
def test_threads_of_real_reports_run_one_at_a_time(shared_reports: list[Path], prefix: str) -> None:
    path = next((path for path in shared_reports if path.name.startswith(prefix)), None)
    if path is None:
        pytest.skip(f"no report {prefix}*")
    report = build_report(read_report(path, need=_HOST))
    runs = report.thread_runs
    assert 2 * len(runs) == report.recorded["thread_switches"]  # all of them have pairs
    assert runs.equals(runs.sort("thread_key", "start_ns"))
    following = pl.col("start_ns").shift(-1).over("thread_key")
    assert runs.filter(pl.col("end_ns") > following).is_empty()
    assert (runs["end_ns"] > runs["start_ns"]).all()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("simulated")
    shape = ["--pp", "2", "--machines", "1", "--per", "machine", "--micro-batches", "2", "--no-truth"]
    main([str(folder), "--host", *shape])
    return build_report(read_report(next(folder.rglob("*.sqlite"))))


def test_what_is_simulated_is_found(simulated: Report) -> None:
    steps = simulated.ranges.filter(pl.col("name").cast(pl.String).str.starts_with("step_"))
    assert len(steps) == 2 * 3
    runs, calls, events = simulated.thread_runs, simulated.os_calls, simulated.memory_events
    for process, start, end in steps.select("process_key", "start_ns", "end_ns").rows():
        inside = pl.col("process_key") == process, pl.col("start_ns") >= start, pl.col("end_ns") <= end
        assert runs.filter(*inside).select(pl.col("end_ns") - pl.col("start_ns")).sum().item() == 2 * RUN_NS
        assert calls.filter(*inside).select(pl.col("end_ns") - pl.col("start_ns")).rows() == [(READ_NS,)]
        happened = (pl.col("process_key") == process) & pl.col("time_ns").is_between(start, end)
        assert events.filter(happened).select("is_release", "size_bytes").rows() == [
            *((False, WORKSPACE_BYTES), (True, WORKSPACE_BYTES))
        ]
    assert [len(frame) for frame in (runs, calls, events)] == [2 * 6, 6, 2 * 6]
    keys = ["process_key", "correlation_id"]
    called = events.join(simulated.api_calls, on=keys).select(pl.col("name").cast(pl.String).unique().sort())
    assert called["name"].to_list() == ["cudaFree", "cudaMalloc"]


def test_reports_are_simulated_without_all_that_unless_it_is_asked_for(simulated: Report) -> None:
    committed = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"
    recorded = read_report(committed).recorded
    assert {"os_calls", "thread_switches", "cuda_memory"} & recorded.keys() == set()
    assert {"os_calls", "thread_switches", "cuda_memory"} <= simulated.recorded.keys()
