"""Times of processes on the CPU are those of their definitions."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.aggregates.times import Windows, find_communication, measure_host
from nsys_pp.frames.aggregates import HOST_TIMES, NAMED_OPERATORS
from nsys_pp.frames.report import API_CALLS, OS_CALLS, RANGES, THREAD_RUNS, WAITING_CALL
from nsys_pp.frames.training import JOBS
from tests.aggregates.real_reports import NAMES, read_real_report
from tests.aggregates.small_reports import SPANS, STEP_ROWS, Row, fill, find_moments, make_report, step

_FRAMES = {
    "ranges": RANGES,
    "operators": NAMED_OPERATORS,
    "jobs": JOBS,
    "api_calls": API_CALLS,
    "os_calls": OS_CALLS,
    "thread_runs": THREAD_RUNS,
}


def _measure(windows: Windows, **rows: list[Row]) -> pl.DataFrame:
    frames = {name: fill(schema, rows.get(name, [])) for name, schema in _FRAMES.items()}
    return measure_host(windows=windows.host, **frames)


def _row(process: int, span: tuple[int, int], **columns: object) -> Row:
    return {"process_key": process, "thread_key": process, "start_ns": span[0], "end_ns": span[1], **columns}


def _job(kind: str, range_id: int, span: tuple[int, int], thread: int = 1, device: int = 0) -> Row:
    keys = {"process_key": 1, "thread_key": thread, "device_id": device, "kind": kind, "range_id": range_id}
    return keys | {"host_start_ns": span[0], "host_end_ns": span[1]}


def _activity(measured: pl.DataFrame, activity: str) -> list[tuple[object, ...]]:
    return measured.filter(activity=activity).drop("process_key", "activity").rows()


_ROWS = st.lists(st.builds(_row, st.integers(1, 3), SPANS), max_size=10)


@settings(deadline=None, max_examples=60)
@given(calls=_ROWS, runs=_ROWS, steps=STEP_ROWS)
def test_times_are_those_of_their_definitions(calls: list[Row], runs: list[Row], steps: list[Row]) -> None:
    windows = make_report(steps=steps, os_calls=fill(OS_CALLS, [*calls, *runs])).windows
    measured = _measure(windows, os_calls=calls, thread_runs=runs)
    expected: dict[tuple[int, int | None, str], list[int]] = {}
    for window in windows.host.to_dicts():
        process, inside = window["process_key"], range(window["start_ns"], window["end_ns"])
        for activity, rows in (("os", calls), ("cpu", runs), ("span", [window])):
            own = [row for row in rows if row["process_key"] == process]
            count = sum(row["start_ns"] in inside or activity == "span" for row in own)
            total = sum(len(find_moments([row]) & set(inside)) for row in own)
            time = total if activity == "cpu" else len(find_moments(own) & set(inside))
            if count or time or activity == "span":
                sums = expected.setdefault((process, window["step"], activity), [0, 0])
                sums[:] = [old + new for old, new in zip(sums, (count, time), strict=True)]
    assert {tuple(row[:3]): list(row[3:]) for row in measured.rows()} == expected
    assert len(measured) == len(expected)


def test_ranges_of_nccl_are_communication_and_no_ranges() -> None:
    spans = [(0, 10), (5, 25), (30, 40), (50, 55)]
    domains = [None, "aten", "NCCL", None]
    ranges = [
        _row(1, span, range_id=number, domain=domain)
        for number, (span, domain) in enumerate(zip(spans, domains, strict=True))
    ]
    operators: list[Row] = [
        {"range_id": 1, "name": "add", "is_communication": False},
        {"range_id": 3, "name": "allreduce", "is_communication": True},
        {"range_id": 2, "name": None, "is_communication": True},
    ]
    windows = make_report(ranges=fill(RANGES, ranges)).windows
    measured = _measure(windows, ranges=ranges, operators=operators)
    assert _activity(measured, "range") == [(None, 3, 30)]
    assert _activity(measured, "operator") == [(None, 2, 25)]
    assert _activity(measured, "communication") == [(None, 2, 15)]
    found = find_communication(fill(RANGES, ranges), fill(NAMED_OPERATORS, operators))
    assert found.rows() == [(1, 30, 40), (1, 50, 55)]


def test_only_outermost_jobs_are_phases_and_each_counts_once() -> None:
    jobs = [
        *(_job("forward", 1, (0, 20), device=device) for device in (0, 1)),
        _job("backward", 2, (2, 8)),
        *(_job("forward", number, span) for number, span in ((3, (4, 6)), (4, (10, 20)), (5, (20, 30)))),
        *(_job("forward", 6, (12, 40), thread=2), _job("send", 7, (0, 50))),
    ]
    measured = _measure(make_report(steps=[step((1, 0), 0, (0, 50), (0, 25))]).windows, jobs=jobs)
    assert _activity(measured, "forward") == [(0, 3, 25), (None, 0, 15)]
    assert _activity(measured, "backward") == [(0, 1, 6)]
    assert set(measured["activity"]) == {"span", "forward", "backward"}


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        *(
            (name, True)
            for name in ("cudaStreamSynchronize", "cuCtxSynchronize", "cudaEventSynchronize_ptsz")
        ),
        *((name, True) for name in ("cudaMemcpy", "cudaMemcpy_ptds", "cudaMemcpy2DToArray", "cuMemcpyDtoH")),
        *(
            (name, True)
            for name in ("cuMemcpyHtoD_v2_ptds", "cudaMemcpyFromSymbol", "cudaMemcpy3D", "cuMemcpy")
        ),
        *((name, False) for name in ("cudaMemcpyAsync", "cuMemcpyDtoHAsync", "cudaMemcpy2DAsync")),
        *((name, False) for name in ("cudaStreamWaitEvent", "cudaMemset", "cudaFree", "cudaMemcpyPeer")),
        *((name, False) for name in ("cuMemcpyDtoD", "cudaEventQuery", "cudaLaunchKernel")),
    ],
)
def test_calls_that_wait_are_told_by_their_names(name: str, waits: bool) -> None:
    assert bool(re.search(WAITING_CALL, name)) == waits
    calls = [_row(1, (0, 10), name=name), _row(1, (5, 12), name=None)]
    measured = _measure(make_report(os_calls=fill(OS_CALLS, calls)).windows, api_calls=calls)
    assert _activity(measured, "cuda") == [(None, 2, 12)]
    assert _activity(measured, "sync") == ([(None, 1, 10)] if waits else [])


def test_nothing_has_no_times() -> None:
    assert _measure(make_report().windows).equals(HOST_TIMES.to_frame())


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_a_real_report_add_up_to_all_of_it(shared_reports: list[Path], name: str) -> None:
    real = read_real_report(shared_reports, name)
    report = real.report
    frames = {
        "ranges": report.ranges,
        "operators": NAMED_OPERATORS.to_frame(),
        "jobs": real.jobs,
        "api_calls": report.api_calls,
        "os_calls": report.os_calls,
        "thread_runs": report.thread_runs,
    }
    cut, whole = (
        measure_host(windows=windows.host, **frames).filter(pl.col("activity") != "span")
        for windows in (real.windows, real.find_windows(real.steps.clear()))
    )
    keys = ["process_key", "activity"]
    assert cut.drop("step").group_by(keys).sum().sort(keys).equals(whole.drop("step").sort(keys))
    calls = whole.filter(activity="cuda")
    assert calls["count"].sum() == len(report.api_calls)
    assert calls["union_ns"].sum() <= (report.api_calls["end_ns"] - report.api_calls["start_ns"]).sum()
