"""Windows tile the time of every device and process, and say which step a moment belongs to."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings

from nsys_pp.aggregates.times import DEVICE_WINDOWS, HOST_WINDOWS, step_on_device, step_on_host
from nsys_pp.frames.report import GPU_OPS, OS_CALLS, RANGES
from nsys_pp.frames.training import STEPS
from tests.aggregates.small_reports import REPORTS, SmallReport, fill, make_report, op, step

_DEVICE = ["process_key", "device_id"]
_IS_SOME = pl.col("start_ns") < pl.col("end_ns")


def test_what_lies_outside_steps_has_windows_of_its_own() -> None:
    windows = make_report(
        [op((1, 0), (10, 12)), op((1, 1), (3, 40))],
        steps=[step((1, 0), 7, (10, 20), (5, 12)), step((1, 0), 8, (20, 30), (12, 25))],
    ).windows
    assert windows.device.rows() == [
        *((1, 0, None, 3, 10), (1, 0, 7, 10, 20), (1, 0, 8, 20, 30), (1, 0, None, 30, 40)),
        (1, 1, None, 3, 40),
    ]
    assert windows.host.rows() == [(1, None, 3, 5), (1, 7, 5, 12), (1, 8, 12, 25), (1, None, 25, 40)]


def test_all_events_of_a_process_and_its_steps_count_for_its_time() -> None:
    ranges = fill(RANGES, [{"process_key": 1, "start_ns": -3, "end_ns": 4}])
    os_calls = fill(OS_CALLS, [{"process_key": 2, "start_ns": 8, "end_ns": 9}])
    windows = make_report(
        [op((1, 0), (2, 5))], steps=[step((1, 0), 0, (2, 30))], ranges=ranges, os_calls=os_calls
    ).windows
    assert windows.device.rows() == [(1, 0, None, -3, 2), (1, 0, 0, 2, 30)]
    assert windows.host.rows() == [(1, 0, -3, 30), (2, None, 8, 9)]


def test_a_step_without_a_place_on_the_cpu_has_what_its_neighbours_leave() -> None:
    steps = [
        *(step((1, 0), 4, (0, 10)), step((1, 0), 5, (10, 20), (7, 13)), step((1, 0), 6, (20, 30))),
        *(step((1, 0), 7, (30, 40), (25, 33)), step((1, 0), 8, (40, 50), (33, 44))),
    ]
    windows = make_report([op((1, 0), (0, 60))], steps=steps).windows
    assert windows.host.rows() == [
        *((1, 4, 0, 7), (1, 5, 7, 13), (1, 6, 13, 25)),
        *((1, 7, 25, 33), (1, 8, 33, 44), (1, None, 44, 60)),
    ]


def test_a_step_on_the_cpu_is_that_of_all_devices() -> None:
    steps = [step((1, 0), 1, (0, 10), (0, 5)), step((1, 1), 1, (3, 12), (2, 8))]
    assert make_report(steps=steps).windows.host.rows() == [(1, 1, 0, 8), (1, None, 8, 12)]


def test_steps_that_overlap_end_when_the_next_begins() -> None:
    steps = [step((1, 0), 1, (0, 10), (0, 10)), step((1, 0), 2, (10, 20), (6, 14))]
    steps += [step((1, 0), 3, (20, 20), (8, 8))]
    windows = make_report(steps=steps).windows
    assert windows.host.rows() == [(1, 1, 0, 6), (1, 2, 6, 14), (1, None, 14, 20)]
    assert windows.device["step"].to_list() == [1, 2]


def test_nothing_has_no_windows_and_a_moment_has_one() -> None:
    windows = make_report().windows
    assert windows.device.equals(DEVICE_WINDOWS.to_frame())
    assert windows.host.equals(HOST_WINDOWS.to_frame())
    assert make_report([op((1, 0), (5, 5))]).windows.device.rows() == [(1, 0, None, 5, 5)]


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
    frames = (report.gpu_ops, report.api_calls, report.steps)
    times = [
        (row["process_key"], row[name])
        for frame in frames
        for row in frame.iter_rows(named=True)
        for name in ("start_ns", "end_ns", "host_start_ns", "host_end_ns")
        if row.get(name) is not None
    ]
    for windows, keys in ((report.windows.device, _DEVICE), (report.windows.host, ["process_key"])):
        look_up = step_on_device if keys == _DEVICE else step_on_host
        found = windows.with_columns(look_up(windows, report.steps).alias("found"))
        assert found.filter(pl.col("step").ne_missing(pl.col("found"))).filter(_IS_SOME).is_empty()
        for part in windows.partition_by(keys):
            assert part["start_ns"].to_list()[1:] == part["end_ns"].to_list()[:-1]
            edges = [time for process, time in times if process == part["process_key"][0]]
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
