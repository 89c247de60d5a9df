"""Times of devices are the unions that their names say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.aggregates.times import (
    Windows,
    find_communication,
    measure_gpu,
    measure_host,
    step_on_device,
    step_on_host,
    sum_within,
)
from nsys_pp.frames.aggregates import NAMED_OPERATORS
from nsys_pp.frames.report import API_CALLS, GPU_OPS, OS_CALLS, RANGES, THREAD_RUNS, WAITING_CALL
from nsys_pp.frames.training import JOBS, STEPS
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from tests.aggregates.small_reports import (
    REPORTS,
    SPANS,
    STEP_ROWS,
    Row,
    SmallReport,
    aggregate,
    fill,
    find_moments,
    make_report,
    op,
    step,
)

_DEVICE = ["process_key", "device_id"]


_NOTHING = pl.DataFrame(schema={"process_key": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})


def _measure(ops: list[Row], windows: list[Row], host: list[Row]) -> Row:
    """Measure what is asked for by its definition."""
    inside = find_moments(windows)
    kernels = [row for row in ops if row["kind"] in ("kernel", "graph")]
    parts = {
        "busy_ns": find_moments(ops),
        "kernel_ns": find_moments(kernels),
        "compute_ns": find_moments(row for row in kernels if not row["is_communication"]),
        "communication_ns": find_moments(row for row in kernels if row["is_communication"]),
        "memcpy_ns": find_moments(row for row in ops if row["kind"] == "memcpy"),
        "memset_ns": find_moments(row for row in ops if row["kind"] == "memset"),
    }
    parts["any_communication_ns"] = parts["communication_ns"] | find_moments(host)
    parts["overlap_ns"] = parts["compute_ns"] & parts["communication_ns"]
    parts["any_overlap_ns"] = parts["compute_ns"] & parts["any_communication_ns"]
    return {"span_ns": len(inside)} | {name: len(times & inside) for name, times in parts.items()}


@settings(deadline=None, max_examples=60)
@given(report=REPORTS, host=st.lists(st.tuples(st.integers(1, 2), SPANS), max_size=4))
def test_times_are_those_of_their_definitions(
    report: SmallReport, host: list[tuple[int, tuple[int, int]]]
) -> None:
    communication = pl.DataFrame([(process, *span) for process, span in host], _NOTHING.schema, orient="row")
    windows = report.windows.device
    measured = measure_gpu(report.gpu_ops, host_communication=communication, windows=windows)
    keys = [*_DEVICE, "step"]
    assert measured.select(keys).equals(windows.select(keys).unique().sort(keys, nulls_last=True))
    for row in measured.iter_rows(named=True):
        device = {name: row[name] for name in _DEVICE}
        assert row == {name: row[name] for name in keys} | _measure(
            report.gpu_ops.filter(**device).to_dicts(),
            windows.filter(pl.col("step").eq_missing(row["step"]), **device).to_dicts(),
            communication.filter(process_key=row["process_key"]).to_dicts(),
        )


@pytest.mark.parametrize("name", ["GindaChen__mfu_2gpu_before", "Athrun0109", "zx3xyy__result_2_7B_nvtx"])
def test_steps_of_a_real_report_add_up_to_all_of_it(shared_reports: list[Path], name: str) -> None:
    [path] = [path for path in shared_reports if path.name.startswith(name)]
    times = aggregate(path)["gpu_times"].group_by(_DEVICE).sum().sort(_DEVICE)
    ops = build_report(read_report(path)).gpu_ops
    assert len(times) == len(ops.select(_DEVICE).unique())
    for row in times.iter_rows(named=True):
        until = busy = 0
        own = ops.filter(**{name: row[name] for name in _DEVICE}).sort("start_ns")
        for start, end in own.select("start_ns", "end_ns").iter_rows():
            busy += max(end - max(start, until), 0)
            until = max(until, end)
        assert row["busy_ns"] == busy


_FRAMES = {
    "ranges": RANGES,
    "operators": NAMED_OPERATORS,
    "jobs": JOBS,
    "api_calls": API_CALLS,
    "os_calls": OS_CALLS,
    "thread_runs": THREAD_RUNS,
}


def _measure_of_host_times(windows: Windows, **rows: list[Row]) -> pl.DataFrame:
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
def test_times_are_those_of_their_definitions_of_host_times(
    calls: list[Row], runs: list[Row], steps: list[Row]
) -> None:
    windows = make_report(steps=steps, os_calls=fill(OS_CALLS, [*calls, *runs])).windows
    measured = _measure_of_host_times(windows, os_calls=calls, thread_runs=runs)
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


def test_ranges_of_nccl_are_communication_and_no_operators() -> None:
    spans = [(0, 10), (5, 25), (30, 40), (50, 55)]
    ranges = [
        _row(1, span, range_id=number, domain=domain)
        for number, (span, domain) in enumerate(zip(spans, [None, "aten", "NCCL", None], strict=True))
    ]
    operators: list[Row] = [
        {"range_id": 1, "name": "add", "is_communication": False},
        {"range_id": 3, "name": "allreduce", "is_communication": True},
        {"range_id": 2, "name": None, "is_communication": True},
    ]
    windows = make_report(ranges=fill(RANGES, ranges)).windows
    measured = _measure_of_host_times(windows, ranges=ranges, operators=operators)
    assert _activity(measured, "range") == [(None, 4, 40)]
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
    measured = _measure_of_host_times(
        make_report(steps=[step((1, 0), 0, (0, 50), (0, 25))]).windows, jobs=jobs
    )
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
    measured = _measure_of_host_times(make_report(os_calls=fill(OS_CALLS, calls)).windows, api_calls=calls)
    assert _activity(measured, "cuda") == [(None, 2, 12)]
    assert _activity(measured, "sync") == ([(None, 1, 10)] if waits else [])


_IS_SOME = pl.col("start_ns") < pl.col("end_ns")


_Windows = list[tuple[int | None, ...]]


@pytest.mark.parametrize(
    ("report", "device", "host"),
    [
        pytest.param(
            make_report(
                [op((1, 0), (10, 12)), op((1, 1), (3, 40))],
                steps=[step((1, 0), 7, (10, 20), (5, 12)), step((1, 0), 8, (20, 30), (12, 25))],
            ),
            [
                *((1, 0, None, 3, 10), (1, 0, 7, 10, 20), (1, 0, 8, 20, 30), (1, 0, None, 30, 40)),
                (1, 1, None, 3, 40),
            ],
            [(1, None, 3, 5), (1, 7, 5, 12), (1, 8, 12, 25), (1, None, 25, 40)],
            id="what lies outside steps",
        ),
        pytest.param(
            make_report(
                [op((1, 0), (2, 5))],
                steps=[step((1, 0), 0, (2, 30))],
                ranges=fill(RANGES, [{"process_key": 1, "start_ns": -3, "end_ns": 4}]),
                os_calls=fill(OS_CALLS, [{"process_key": 2, "start_ns": 8, "end_ns": 9}]),
            ),
            [(1, 0, 0, 2, 30)],
            [(1, 0, -3, 30), (2, None, 8, 9)],
            id="operations of a device, all events of a process",
        ),
        pytest.param(
            make_report(
                [op((1, 0), (0, 60))],
                steps=[
                    *(
                        step((1, 0), 4, (0, 10)),
                        step((1, 0), 5, (10, 20), (7, 13)),
                        step((1, 0), 6, (20, 30)),
                    ),
                    *(step((1, 0), 7, (30, 40), (25, 33)), step((1, 0), 8, (40, 50), (33, 44))),
                ],
            ),
            [(1, 0, 4 + at, 10 * at, 10 * at + 10) for at in range(5)] + [(1, 0, None, 50, 60)],
            [
                *((1, 4, 0, 7), (1, 5, 7, 13), (1, 6, 13, 25)),
                *((1, 7, 25, 33), (1, 8, 33, 44), (1, None, 44, 60)),
            ],
            id="a step without a place on the CPU",
        ),
        pytest.param(
            make_report(steps=[step((1, 0), 1, (0, 10), (0, 5)), step((1, 1), 1, (3, 12), (2, 8))]),
            [(1, 0, 1, 0, 10), (1, 0, None, 10, 12), (1, 1, None, 0, 3), (1, 1, 1, 3, 12)],
            [(1, 1, 0, 8), (1, None, 8, 12)],
            id="a step on the CPU is that of all devices",
        ),
        pytest.param(
            make_report(
                steps=[
                    *(step((1, 0), 1, (0, 10), (0, 10)), step((1, 0), 2, (10, 20), (6, 14))),
                    step((1, 0), 3, (20, 20), (8, 8)),
                ]
            ),
            [(1, 0, 1, 0, 10), (1, 0, 2, 10, 20)],
            [(1, 1, 0, 6), (1, 2, 6, 14), (1, None, 14, 20)],
            id="steps that overlap",
        ),
        pytest.param(
            make_report([op((1, 0), (5, 5))]), [(1, 0, None, 5, 5)], [(1, None, 5, 5)], id="a moment"
        ),
    ],
)
def test_windows_are_those_of_steps_and_of_what_is_left(
    report: SmallReport, device: _Windows, host: _Windows
) -> None:
    assert (report.windows.device.rows(), report.windows.host.rows()) == (device, host)


def test_rows_without_a_place_or_a_time_are_in_nostep() -> None:
    steps = fill(STEPS, [step((1, 0), 3, (0, 10))])
    rows = [(1, 0, 9), (1, 0, 10), (1, 0, -1), (1, None, 5), (1, 0, None), (2, 0, 5), (1, 1, 5)]
    schema = {"process_key": pl.Int64, "device_id": pl.Int32, "time_ns": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    assert step_on_device(frame, steps, time="time_ns").to_list() == [3] + 6 * [None]
    assert step_on_host(frame, steps, time="time_ns").to_list() == [3, 3, 3, 3, None, None, 3]
    nothing = step_on_device(frame.clear(), STEPS.to_frame(), time="time_ns")
    assert nothing.equals(pl.Series("step", [], pl.Int64))


@settings(deadline=None, max_examples=60)
@given(report=REPORTS)
def test_windows_tile_the_time_and_agree_with_the_look_up(report: SmallReport) -> None:
    times = [
        (row["process_key"], row[name])
        for frame in (report.gpu_ops, report.api_calls, report.steps)
        for row in frame.iter_rows(named=True)
        for name in ("start_ns", "end_ns", "host_start_ns", "host_end_ns")
        if row.get(name) is not None
    ]
    for windows, keys in ((report.windows.device, _DEVICE), (report.windows.host, ["process_key"])):
        look_up = step_on_device if keys == _DEVICE else step_on_host
        found = windows.with_columns(look_up(windows, report.steps).alias("found"))
        assert found.filter(pl.col("step").ne_missing(pl.col("found"))).filter(_IS_SOME).is_empty()
        capture = pl.concat(
            [frame[name] for frame in (report.gpu_ops, report.steps) for name in ("start_ns", "end_ns")]
        ).to_list()
        for part in windows.partition_by(keys):
            assert part["start_ns"].to_list()[1:] == part["end_ns"].to_list()[:-1]
            edges = [time for process, time in times if process == part["process_key"][0]]
            edges = capture if keys == _DEVICE else edges
            assert (part["start_ns"][0], part["end_ns"][-1]) == (min(edges), max(edges))
            assert len(part) == 1 or len(part.filter(_IS_SOME)) == len(part)
    assert set(report.windows.host["process_key"]) == {process for process, _ in times}


@pytest.mark.parametrize("on_host", [False, True])
def test_frames_in_any_order_are_looked_up(on_host: bool) -> None:
    spans = [(0, 4), (6, 9)]
    steps = fill(STEPS, [step((p, 0), n, span, span) for p in (1, 2) for n, span in enumerate(spans)])
    frame = fill(GPU_OPS, [op((p, 0), (time, time + 50)) for time in (8, 3, 5, 6, 0) for p in (2, 1)])
    found = step_on_host(frame, steps) if on_host else step_on_device(frame, steps)
    assert found.to_list() == [1, 1, 0, 0, None, None, 1, 1, 0, 0]


def test_sums_beyond_64_bits_do_not_harm() -> None:
    year_ns = 31_536_000 * 10**9
    start = np.arange(1000, dtype=np.int64) * 10 + year_ns
    assert year_ns * len(start) > np.iinfo(np.int64).max
    assert sum_within(start, start + 4, start[:1], start[-1:]).tolist() == [4 * 999]
