"""Calls that threads wait for, against programs whose waits are known, and against the gaps of random reports."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from nsys_pp.frames.report import API_CALLS, GPU_OPS, RANGES
from nsys_pp.projection.launches import find_launch_devices, match_launches
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.projection.waited_calls import find_waited_calls
from tests.projection.random_reports import Frames, frames
from tests.projection.thread_programs import build_frames, draw_program, list_true_counts
from tests.training.scheduled_runs import fill_columns


def test_ranges_contain_the_launches_of_threads_that_they_wait_for() -> None:
    """Of random programs; a few ranges have too few or too many, where little is recorded of two threads."""
    right, less, more = 0, 0, 0
    for seed in range(100, 130):
        program = draw_program(seed)
        found = project_ranges(*build_frames(program))
        counts = dict(found.select("range_id", "op_count").iter_rows())
        for range_id, true in enumerate(list_true_counts(program)):
            count = counts.get(range_id, 0)
            right, less, more = right + (count == true), less + (count < true), more + (count > true)
    assert right > 1_500
    assert less < 0.02 * right
    assert more < 0.005 * right


@settings(max_examples=200, deadline=None)
@given(report=frames())
def test_waiting_threads_have_no_event_during_a_call(report: Frames) -> None:
    ranges, api_calls, gpu_ops = report
    launches = match_launches(api_calls, gpu_ops)
    waited = find_waited_calls(
        ranges,
        api_calls,
        launches["call_row"].cast(pl.Int64).to_numpy(),
        device=find_launch_devices(gpu_ops, launches),
    )
    pairs = [
        set(zip(of.thread.tolist(), of.call_row.tolist(), strict=True))
        for of in (waited.certain, waited.possible)
    ]
    assert pairs[0] <= pairs[1]
    calls = api_calls.rows(named=True)
    devices: dict[int, set[int | None]] = {}
    for op_id, row in launches.iter_rows():
        devices.setdefault(calls[row]["thread_key"], set()).add(gpu_ops["device_id"][op_id])
    for thread, row in pairs[1]:
        worker = calls[row]["thread_key"]
        assert (
            worker not in ranges["thread_key"]
            or thread not in devices
            or not devices[thread].isdisjoint(devices[worker])
        )
        call = calls[row]
        assert call["thread_key"] != thread
        events = [(c["start_ns"], c["end_ns"]) for c in calls if c["thread_key"] == thread]
        for range_ in ranges.iter_rows(named=True):
            if range_["thread_key"] == thread:
                events.append((range_["start_ns"], range_["start_ns"]))
            if not range_["is_open"] and (range_["end_thread_key"] or range_["thread_key"]) == thread:
                events.append((range_["end_ns"], range_["end_ns"]))
        assert all(end <= call["start_ns"] or start >= call["end_ns"] for start, end in events)


@pytest.mark.parametrize("count", [0, 1])
def test_one_thread_waits_for_none(count: int) -> None:
    calls = pl.DataFrame({"process_key": 1, "thread_key": 2, "start_ns": 0, "end_ns": 9})
    calls = pl.concat([API_CALLS.to_frame(), calls], how="diagonal").head(count)
    waited = find_waited_calls(RANGES.to_frame(), calls, np.zeros(count, dtype=np.int64))
    for pairs in (waited.certain, waited.possible):
        assert not len(pairs.thread)
        assert not len(pairs.call_row)


@pytest.mark.parametrize(
    ("device", "has_range", "expected"),
    [
        pytest.param(1, True, [("forward", 1)], id="a thread of another GPU"),
        pytest.param(1, False, [("next_batch", 1)], id="nothing else shows its launches"),
        pytest.param(0, True, [("forward", 0), ("next_batch", 0)], id="autograd"),
    ],
)
def test_the_thread_of_another_gpu_is_not_waited_for(
    device: int, *, has_range: bool, expected: list[tuple[str, int]]
) -> None:
    """The first thread has a range without calls, while another thread launches from 10 to 90; then it launches on GPU 0."""
    named = [(1, 1, "next_batch", 0, 100), (2, 1, "step", 195, 220), *[(3, 2, "forward", 5, 95)] * has_range]
    ranges = pl.DataFrame(
        named, schema=["range_id", "thread_key", "name", "start_ns", "end_ns"], orient="row"
    ).with_columns(process_key=pl.lit(1), is_open=pl.lit(value=False))
    starts = [*range(10, 90, 10), 200]
    calls = pl.DataFrame({"start_ns": starts, "correlation_id": range(len(starts))}).with_columns(
        process_key=pl.lit(1),
        end_ns=pl.col("start_ns") + 8,
        thread_key=pl.when(start_ns=200).then(1).otherwise(2),
    )
    ops = calls.select(
        "process_key",
        "correlation_id",
        op_id=pl.int_range(pl.len()),
        kind=pl.lit("kernel"),
        name=pl.lit("gemm"),
        start_ns=pl.col("start_ns") + 300,
        end_ns=pl.col("end_ns") + 300,
        device_id=pl.when(thread_key=1).then(0).otherwise(device),
        stream_id=pl.lit(7),
    )
    frames_of_report = (
        fill_columns(frame, schema)
        for frame, schema in ((ranges, RANGES), (calls, API_CALLS), (ops, GPU_OPS))
    )
    found = project_ranges(*frames_of_report).filter(pl.col("name") != "step")
    assert sorted(found.select(pl.col("name").cast(pl.String), "device_id").rows()) == expected
