"""Overhead of profiling by step, against its definition, moment by moment."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import STEPS as STEP_SCHEMA
from nsys_pp.frames.training import WAITS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.waits import sum_overheads
from tests.cli.calls import call as run_command
from tests.read.tables import PROCESS, THREAD, Row, call, op, strings, write_export

NAMES = ("CUPTI Buffer flush", "TLS allocation", "Lazy Function Loading", "cudaLaunchKernel", "kernel")
SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 2), st.booleans()), max_size=8
)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=4)


def overhead(start: int, end: int, name: int, thread: int = THREAD) -> Row:
    return {"start": start, "end": end, "globalTid": thread, "nameId": name}


@settings(deadline=None, max_examples=60)
@given(SPANS, STEPS)
def test_times_are_those_of_the_definition(
    spans: list[tuple[int, int, int, bool]], drawn: list[tuple[int, int]]
) -> None:
    steps, at = [], 0
    for number, (gap, length) in enumerate(drawn):
        steps.append((PROCESS, 0, number, at + gap, at + gap + length))
        at += gap + length
    rows = [
        overhead(start, start + length, name, THREAD if launches else THREAD + 1)
        for start, length, name, launches in spans
    ]
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*NAMES),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, 1, nameId=3)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(2, 3, 1, shortName=4, demangledName=4)],
        "PROFILER_OVERHEAD": rows,
    }
    with TemporaryDirectory() as folder:
        path = write_export(Path(folder) / "report.sqlite", tables)
        report = build_report(read_report(path, need=frozenset({"ops", "os_calls"})))
    columns = ("process_key", "device_id", "step", "start_ns", "end_ns")
    frame = pl.DataFrame([dict(zip(columns, step, strict=True)) for step in steps], schema=STEP_SCHEMA)
    launches = match_launches(report.api_calls, report.gpu_ops)
    ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches)
    sums = sum_overheads(
        report.overheads,
        frame,
        waits=WAITS.to_frame(),
        launched_ops=ops,
    )
    found = {
        (row["step"], row["name"]): (row["time_ns"], row["step_ns"]) for row in sums.iter_rows(named=True)
    }
    expected: dict[tuple[int | None, str | None], tuple[int, int | None]] = {}
    own = [span for span in spans if span[3]]
    for chosen in ([0], [1], [2], [0, 1]):
        name = NAMES[chosen[0]] if len(chosen) == 1 else None
        covered = {
            moment for start, length, of, _ in own if of in chosen for moment in range(start, start + length)
        }
        inside = {step[2]: {*range(step[3], step[4])} for step in steps}
        rest = covered.difference(*inside.values())
        for step, moments in inside.items():
            if covered & moments:
                expected[step, name] = (len(covered & moments), len(moments))
        if rest and steps:
            expected[None, name] = (len(rest), None)
    assert found == expected


def test_the_table_has_the_share_of_a_step(tmp_path: Path) -> None:
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*NAMES, "step 1", "step 2"),
        "NVTX_EVENTS": [
            {
                "start": 1000 * at,
                "end": 1000 * at + 900,
                "eventType": 59,
                "globalTid": THREAD,
                "textId": 4 + at,
            }
            for at in (1, 2)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1000 * at + 10, 1000 * at + 20, at, nameId=3) for at in (1, 2)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            op(1000 * at + 30, 1000 * at + 800, at, shortName=4, demangledName=4) for at in (1, 2)
        ],
        "PROFILER_OVERHEAD": [overhead(2200, 2227, 0)],
    }
    path = write_export(tmp_path / "report.sqlite", tables)
    table = run_command("pipeline", path, "--table", "overhead", "--format", "csv").stdout.splitlines()
    header = table[0].split(",")
    row = dict(zip(header, table[1].split(","), strict=True))
    assert (row["name"], row["time_ns"], row["is_of_profiler"]) == ("", "27", "true")
    assert float(row["fraction"]) == pytest.approx(27 / 1770, rel=1e-3)  # one step, of 1770 ns
    assert len(table) == 3


def test_the_reason_of_an_empty_table_is_named(tmp_path: Path) -> None:
    tables: dict[str, list[Row]] = {
        "StringIds": strings(*NAMES),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, 1, nameId=3)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [op(2, 3, 1, shortName=4, demangledName=4)],
    }
    path = write_export(tmp_path / "report.sqlite", tables)
    assert "no overhead was recorded" in run_command("pipeline", path, "--table", "overhead").stdout
