"""Damaged rows: each is used or left out for a reason, and what may change results is said."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsys_pp
from fixtures.recording.export import write_report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.cli.calls import PIPELINE, RANK0, environment, run
from tests.read.tables import Row, call, kernel, memory, op, os_call, push_pop, strings, switch, write_export
from tests.read.test_arrow import write_folder
from tests.row_sums import FRAMES, WITHOUT_FRAMES, check_row_sums, check_shown_sums
from tests.sql import add_rows, edit, select


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
    assert (built.ranges["name"].to_list(), built.gpu_ops["name"].to_list()) == (["good"], ["gemm"])
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
            {"start": 1, "end": 5, "correlation": 1},  # not around it
        ],
        kernels=[{"start": 30, "end": 50, "correlation": 1}],
    )
    built = build_report(read_report(report))
    assert built.api_calls["start_ns"].sort().to_list() == [1, 10, 30]
    assert built.row_counts.filter(table="calls").drop_nulls("reason")["row_count"].to_list() == [1]


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
    edit(
        report,
        f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {utc_ns}",
        "DELETE FROM META_DATA_EXPORT WHERE name = 'EXPORT_CONFIG_TIME_SHIFT'",
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_CONFIG_TIME_SHIFT', '{shift_ns}')",
    )
    with pytest.warns(UserWarning, match="impossible"):
        built = build_report(read_report(report))
    utc = [time - shift_ns + utc_ns for time in times]
    assert built.os_calls["start_ns"].to_list() == [
        time
        for time, of_time in zip(times, utc, strict=True)
        if abs(time) < 1 << 62 and abs(of_time) < 1 << 62
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "number", [pl.int_range(pl.len()) % 3, pl.lit(None, pl.Int64), pl.lit(7)], ids=["few", "none", "one"]
)
def test_events_without_numbers_of_their_own_are_renumbered(tmp_path: Path, number: pl.Expr) -> None:
    report = write_folder(RANK0, tmp_path / "rank0_pqtdir", "parquet")
    events = pl.read_parquet(report / "NVTX_EVENTS.parquet")
    events.with_columns(eventId=number).write_parquet(report / "NVTX_EVENTS.parquet")
    # as a process: an endless loop in a test would be endless
    done = run("merge", report, "-o", tmp_path / "odd.pftrace", env=environment(PYTHONWARNINGS=""))
    assert done.code == 0, done.stderr
    assert "have no number of their own; all are renumbered" in done.stderr
    merged = nsys_pp.merge([RANK0], tmp_path / "run.pftrace")
    assert f" {merged.slices:,} slices on 1 GPU" in done.stderr


SEVERITIES = {"info": 1, "warning": 2, "error": 3}


def change(path: Path, *statements: str) -> Path:
    """Copy a report of the fixtures, and change the copy."""
    copyfile(min(PIPELINE.rglob("*.sqlite")), path)
    return edit(path, *statements)


def say(path: Path, *messages: tuple[str, str]) -> Path:
    """Copy a report of the fixtures, and add messages of nsys: severity and text."""
    create = (
        "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL,"
        " source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER)"
    )
    rows = [
        f"INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 2, 3, {SEVERITIES[severity]}, '{text}', NULL)"
        for severity, text in messages
    ]
    return change(path, create, *rows)


def told(command: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        command()
    return [str(warning.message) for warning in caught]


LOST = "Not all CUDA events might have been collected."


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    others = [
        ("warning", "No OpenGL events collected. Does the process use OpenGL?"),
        ("warning", "Not all OpenGL events might have been collected."),
        ("info", "Not all NVTX events might have been collected."),
        ("error", "cannot sample"),
    ]
    return say(tmp_path / "a.sqlite", ("warning", LOST), ("warning", LOST), *others)


def test_lost_events_are_told_once_by_every_command(lossy: Path, tmp_path: Path) -> None:
    same = say(tmp_path / "b.sqlite", ("warning", LOST))
    edit(same, "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 1")  # another recording
    rest = f" that events may be missing (`{LOST}`), but every recorded launch has its kernel, and every kernel its launch"
    sentence = f"nsys says of `{lossy}`{rest}"
    for command in (nsys_pp.pipeline, nsys_pp.summary):
        assert told(lambda command=command: command([lossy])) == [sentence]  # type: ignore[misc]
    assert told(lambda: nsys_pp.merge([lossy], tmp_path / "x.pftrace")) == [sentence]
    part = tmp_path / "a.nspart"
    nsys_pp.extract([lossy], part)
    assert told(lambda: nsys_pp.pipeline([part])) == [sentence.replace(str(lossy), str(part))]
    assert f"nsys says of `{lossy}` and `{same}`{rest}" in told(lambda: nsys_pp.pipeline([lossy, same]))


def test_info_lists_what_nsys_says_of_lost_events(lossy: Path) -> None:
    assert not [note for note in nsys_pp.info([lossy]).reports[0].contents.anomalies if "nsys says" in note]
    edit(lossy, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 9")  # a loss that shows
    (told_of,) = nsys_pp.info([lossy]).reports
    (sentence,) = (note for note in told_of.contents.anomalies if "nsys says" in note)
    assert sentence.startswith(f"nsys says: {LOST[:-1]}; events are missing")


def test_messages_are_counted_by_text_errors_first(lossy: Path) -> None:
    found = build_report(read_report(lossy, need=frozenset())).diagnostics
    assert found.rows()[:2] == [
        ("error", "cannot sample", 1),
        ("warning", "No OpenGL events collected. Does the process use OpenGL?", 1),
    ]
    assert ("warning", LOST, 2) in found.rows()
    assert set(found["severity"]) == {"error", "warning"}


def test_launches_after_their_operations_have_no_delay(tmp_path: Path) -> None:
    early = change(
        tmp_path / "early.sqlite",
        *(
            f"UPDATE CUPTI_ACTIVITY_KIND_{kind} SET start = start - 140000000, end = end - 140000000"
            for kind in ("KERNEL", "MEMCPY", "MEMSET")
        ),
    )
    (sentence,) = (sentence for sentence in told(lambda: nsys_pp.pipeline([early])) if "clock of" in sentence)
    assert sentence.startswith(f"the clock of GPU 0 in `{early}` is off: ")
    assert "before the call that launched them" in sentence
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = nsys_pp.pipeline([early]).tables(["kinds"])["kinds"]
        delays = nsys_pp.summary([early], tables=["launches"]).tables["launches"]
    assert (kinds["median_launch_delay_ns"].drop_nulls() >= -60_000).all()
    assert delays.filter(pl.col("min_ns") < -60_000).is_empty()
    assert not told(lambda: nsys_pp.pipeline([change(tmp_path / "right.sqlite")]))


@pytest.mark.parametrize(("end", "is_noted"), [(0.2, True), (0.01, False)])
def test_overhead_that_held_a_launching_thread_is_noted(end: float, is_noted: bool, tmp_path: Path) -> None:
    """Overhead inside other overhead counts once, and before the first launch not at all."""
    path = change(tmp_path / "report.sqlite")
    thread, first, last = select(
        path,
        "SELECT globalTid, min(start), max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1 ORDER BY count(*) DESC",
    )[0]
    length = last - first
    edit(
        path,
        "CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, returnValue INTEGER)",
        "INSERT INTO StringIds VALUES (987654, 'CUPTI Buffer flush')",
    )
    held = (first + length // 2, first + length // 2 + round(end * length))
    spans = (held, (held[0], held[1] - 5), (first - 9 * length, first))
    add_rows(path, "PROFILER_OVERHEAD", [(*span, thread, 987654, 0) for span in spans])
    notes = [note for note in told(lambda: nsys_pp.pipeline(path)) if "nsys held" in note]
    assert len(notes) == is_noted
    if is_noted:
        share = float(notes[0].split(" for ")[1].split(" %")[0])
        assert 2 < share <= 20  # of all threads that launch
        assert "most in CUPTI Buffer flush: `pipeline --table overhead`" in notes[0]


pytestmark = pytest.mark.filterwarnings("ignore:.*left out", "ignore:.*damaged", "ignore:.*no table of names")
_INTEGERS = st.sampled_from([None, 0, 1, -1, 5, 99, 2**31, 2**62 + 1, 2**63 - 1, -(2**63)])

_TABLES: dict[str, list[Row]] = {
    "StringIds": strings("a", "b"),
    "NVTX_EVENTS": [
        *(push_pop(i, i + 5, text="x") for i in range(4)),
        push_pop(0, None, eventType=75, domainId=1, text="domain"),
        push_pop(3, None, eventType=34, text="mark"),
        push_pop(3, None, eventType=39, text="thread"),
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [call(i, i + 1, i) for i in range(4)],
    "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(4)],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [op(i + 2, i + 4, i, copyKind=1, bytes=8) for i in range(2)],
    "CUPTI_ACTIVITY_KIND_MEMSET": [op(i + 2, i + 4, i, bytes=8) for i in range(2)],
    "OSRT_API": [os_call(1, 2), os_call(3, 4, eventClass=28)],
    "SCHED_EVENTS": [switch(1, 1), switch(2, 0)],
    "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(1, 0, 16, 8), memory(2, 1, 16, 8)],
    "DIAGNOSTIC_EVENT": [
        {"severity": kind, "text": "t", "timestamp": kind, "timestampType": kind} for kind in (1, 2, 3, 9)
    ],
}


def test_sums_of_real_reports(shared_report: Path) -> None:
    check_row_sums(shared_report)
    check_shown_sums(shared_report)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 6), _INTEGERS), max_size=8))
def test_sums_of_damaged_rows(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, ...]]) -> None:
    path = write_export(tmp_path_factory.mktemp("rows") / "a.sqlite", _TABLES)
    names = sorted({*_TABLES} - {"StringIds"})
    with closing(sqlite3.connect(path)) as connection, connection:
        for table_number, column_number, row, value in edits:
            table = names[table_number % len(names)]
            columns = [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
            column = columns[column_number % len(columns)]
            connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, row))
    check_row_sums(path)
    check_shown_sums(path)


def test_each_reason_is_counted(tmp_path: Path) -> None:
    kernels = [kernel(0, 0, 1), kernel(5, 6, 2), kernel(9, 7, 3), {**kernel(1, 2, 4), "end": None}]
    events = [
        push_pop(0, 9),
        {**push_pop(0, 9), "start": None},
        {**push_pop(0, 9), "globalTid": None},
        push_pop(0, 9, eventType=200),
        push_pop(0, None, eventType=39),
        push_pop(2**62 + 1, 2**62 + 5),
    ]
    path = write_export(
        tmp_path / "a.sqlite",
        {"StringIds": strings("a", "b"), "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "NVTX_EVENTS": events},
    )
    counts = check_row_sums(path).row_counts.filter(pl.col("table").is_in(["kernels", "nvtx"]))
    assert {(table, reason): count for _, table, _, reason, count in counts.rows()} == {
        ("nvtx", None): 1,
        ("nvtx", "of an unknown type"): 1,
        ("nvtx", "without a thread"): 1,
        ("nvtx", "notes: names of threads and devices, ends of domains"): 1,
        ("nvtx", "without a start"): 1,
        ("nvtx", "at impossible times"): 1,
        ("kernels", None): 1,
        ("kernels", "without an end"): 1,
        ("kernels", "without times, as CUPTI writes what it did not measure"): 1,
        ("kernels", "end before they start"): 1,
    }


def test_what_matters_is_a_note(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(0, 0, 1), {**kernel(5, 6, 2), "streamId": None}],
            "NVTX_EVENTS": [push_pop(0, 9), {**push_pop(0, 9), "start": None}],
            "OSRT_API": [os_call(3, 4, eventClass=28)],
        },
    )
    with pytest.warns(UserWarning, match="1 of 2 kernels") as noted:
        build_report(read_report(path))
    assert [str(note.message).removeprefix(f"`{path}`") for note in noted] == [
        ": left out 1 of 2 NVTX events without a start",
        ": left out 1 of 2 kernels without times, as CUPTI writes what it did not measure",
        ": 1 of 1 kernels have no stream: they count on stream 0, of which gaps and overlaps may be wrong",
        " has no table of names with text: kernels have none",
    ]


@pytest.mark.parametrize("column", ["end", "textId", "domainId", "endGlobalTid"])
def test_a_column_that_nsys_always_writes_is_missed(tmp_path: Path, column: str) -> None:
    path = write_export(tmp_path / "a.sqlite", {"NVTX_EVENTS": [push_pop(0, 9)]})
    edit(path, f'ALTER TABLE NVTX_EVENTS DROP COLUMN "{column}"')
    with pytest.warns(UserWarning, match=rf"has no `NVTX_EVENTS.{column}`: nsys always"):
        build_report(read_report(path))
    assert f"has no `NVTX_EVENTS.{column}`" in nsys_pp.check(path).findings["text"].to_list()


def test_missing_rows_are_counted_by_their_numbers(tmp_path: Path) -> None:
    tables = {**_TABLES, "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(90)]}
    path = write_export(tmp_path / "a.sqlite", tables)
    edit(
        path,
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid IN (3, 4, 5)",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET rowid = 1 << 40 WHERE rowid = 4",
    )
    counts = check_row_sums(path).row_counts.filter(stage="file")
    assert counts.select("table", "reason", "row_count").rows() == [
        ("kernels", None, 87),
        ("kernels", "missing: their numbers have gaps", 3),
    ]


def test_every_table_has_a_frame_or_needs_none() -> None:
    from nsys_pp.read.names import TABLES

    counted = {table.frame for table in TABLES if not table.any_of and not table.rows_named}
    assert counted == {table for tables in FRAMES for table in tables} | WITHOUT_FRAMES
