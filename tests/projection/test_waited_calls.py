"""Calls that threads wait for, against programs whose waits are known, and against the gaps of random reports."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from nsys_pp.frames.report import API_CALLS, RANGES
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.projection.waited_calls import find_waited_calls
from tests.projection.random_reports import Frames, frames
from tests.projection.thread_programs import build_frames, draw_program, list_true_counts

pytestmark = pytest.mark.usefixtures("each_way")


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
    waited = find_waited_calls(ranges, api_calls, launches["call_row"].cast(pl.Int64).to_numpy())
    pairs = [
        set(zip(of.thread.tolist(), of.call_row.tolist(), strict=True))
        for of in (waited.certain, waited.possible)
    ]
    assert pairs[0] <= pairs[1]
    calls = api_calls.rows(named=True)
    for thread, row in pairs[1]:
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
