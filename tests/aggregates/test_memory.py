"""What is allocated and released, where, and how much is in use at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.program.host_activity import WORKSPACE_BYTES
from fixtures.simulate import main
from nsys_pp.aggregates.items import find_job_peaks, find_peaks, sum_memory
from nsys_pp.aggregates.times import HOST_WINDOWS
from nsys_pp.frames.aggregates import JOB_MEMORY_PEAKS, MEMORY_AGGREGATES, MEMORY_PEAKS
from nsys_pp.frames.report import API_CALLS, MEMORY_EVENTS, RANGES
from nsys_pp.frames.training import JOBS, STEPS
from tests.aggregates.small_reports import aggregate, fill

Event = tuple[int, bool, int | None, int | None]  # time, is it a release, address, bytes


def _event(
    time: int, is_release: bool, address: int | None, size: int | None, **more: object
) -> dict[str, object]:
    row = {"process_key": 1, "device_id": 0, "kind": "device", "time_ns": time, "is_release": is_release}
    return {**row, "address": address, "size_bytes": size, **more}


def _sum(
    events: Sequence[dict[str, object]],
    *,
    ranges: Sequence[dict[str, object]] = (),
    jobs: Sequence[dict[str, object]] = (),
    calls: Sequence[dict[str, object]] = (),
    steps: Sequence[dict[str, object]] = (),
) -> pl.DataFrame:
    found = sum_memory(
        fill(MEMORY_EVENTS, events),
        ranges=fill(RANGES, ranges),
        jobs=fill(JOBS, jobs),
        api_calls=fill(API_CALLS, calls),
        steps=fill(STEPS, steps),
    )
    assert found.schema == MEMORY_AGGREGATES
    return found


def _counts(sums: pl.DataFrame, *keys: str) -> list[tuple[object, ...]]:
    counts = ["allocation_count", "free_count", "allocated_bytes", "freed_bytes"]
    return sums.cast({"name": pl.String, "job": pl.String}).select(*keys, *counts).rows()


def _call(correlation: int, thread: int = 11, process: int = 1) -> dict[str, object]:
    return {"process_key": process, "thread_key": thread, "correlation_id": correlation}


def _range(start: int, end: int | None, name: str | None, thread: int = 11) -> dict[str, object]:
    return {"thread_key": thread, "start_ns": start, "end_ns": end, "name": name}


def _job(start: int, end: int, name: str, kind: str, number: int) -> dict[str, object]:
    row = {"thread_key": 11, "host_start_ns": start, "host_end_ns": end, "name": name, "kind": kind}
    return {**row, "range_id": number}


def test_events_belong_to_the_innermost_job_or_else_range_of_their_call() -> None:
    times = (5, 15, 25, 35, 45, 55)
    events = [_event(time, False, time, time, correlation_id=time) for time in times]
    events += [_event(15, False, 99, 1, correlation_id=None), _event(15, False, 98, 1, correlation_id=1234)]
    sums = _sum(
        events,
        calls=[*map(_call, times), _call(15, 12, process=2)],
        ranges=[
            *(_range(0, 50, "step"), _range(10, 40, "forward"), _range(10, 20, "layer")),
            *(_range(20, 30, None, 12), _range(42, 47, None)),
        ],
        jobs=[_job(10, 40, "forward", "forward", 1), _job(20, 30, "again", "recompute", 2)] * 2,
    )
    assert _counts(sums, "name", "job") == [
        ("step", None, 1, 0, 5, 0),
        ("forward", "forward", 2, 0, 15 + 35, 0),
        (None, None, 4, 0, 1 + 1 + 45 + 55, 0),
        ("again", "recompute", 1, 0, 25, 0),
    ]


def test_a_range_holds_what_happens_from_its_start_to_before_its_end() -> None:
    events = [_event(time, False, time, 1, correlation_id=time) for time in (9, 10, 19, 20)]
    sums = _sum(events, calls=[_call(time) for time in (9, 10, 19, 20)], ranges=[_range(10, 20, "a")])
    assert _counts(sums, "name") == [(None, 2, 0, 2, 0), ("a", 2, 0, 2, 0)]


def test_a_release_is_of_the_kind_and_size_of_its_allocation() -> None:
    sums = _sum(
        [
            _event(1, False, 64, 10, kind="pinned", device_id=1),
            _event(2, True, 64, 0, kind=None, device_id=2),
            _event(3, True, 64, 7),  # of what is gone already, by what it says itself
            _event(4, True, 80, None),  # allocated before the capture
        ]
    )
    assert _counts(sums, "device_id", "kind") == [(1, "pinned", 1, 1, 10, 10), (0, "device", 0, 2, 0, 7)]


def test_sums_are_kept_apart_by_process_device_kind_and_step() -> None:
    steps: list[dict[str, object]] = [
        {
            "process_key": 1,
            "device_id": 0,
            "step": step,
            "host_start_ns": 10 * step,
            "host_end_ns": 10 * step + 10,
        }
        for step in (1, 2)
    ]
    events = [
        *(_event(time, False, time, 1) for time in (9, 10, 19, 20, 30)),
        *(
            _event(12, False, 7, 1, **other)
            for other in ({"process_key": 2}, {"device_id": 1}, {"kind": None})
        ),
    ]
    assert _sum(events, steps=steps).select(
        "process_key", "device_id", "kind", "step", "allocation_count"
    ).sort(pl.all(), nulls_last=True).rows() == [
        *((1, 0, "device", 1, 2), (1, 0, "device", 2, 1), (1, 0, "device", None, 2), (1, 0, None, 1, 1)),
        *((1, 1, "device", 1, 1), (2, 0, "device", None, 1)),
    ]


def _windows(*rows: tuple[int | None, int, int]) -> pl.DataFrame:
    return pl.DataFrame([(1, *row) for row in rows], schema=HOST_WINDOWS, orient="row")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [(1, False, 16, 3), (2, False, 32, 5), (4, True, 32, 5), (25, False, 64, 4), (26, True, 64, 4)],
            [(None, 3), (1, 8), (2, 7)],
            id="allocated, released",
        ),
        pytest.param([(12, False, 16, 3)], [(None, 3), (1, 0), (2, 3)], id="never released"),
        pytest.param(
            [(2, True, 16, 99), (3, False, 16, 1)],
            [(None, 1), (1, 1), (2, 1)],
            id="older than the capture",
        ),
        pytest.param(
            [(2, False, 16, 5), (3, False, 16, 7), (4, True, 16, 7)],
            [(None, 0), (1, 7), (2, 0)],
            id="an unseen release",
        ),
        pytest.param(
            [(2, False, 16, 5), (3, True, 16, 5), (3, False, 16, 5), (3, False, 17, 1)],
            [(None, 6), (1, 6), (2, 6)],
            id="at once",
        ),
        pytest.param([(2, False, 16, 5), (2, True, 16, 5)], [(None, 0), (1, 0), (2, 0)], id="for no time"),
        pytest.param([(2, False, 16, 5), (10, True, 16, 5)], [(None, 0), (1, 5), (2, 0)], id="at the border"),
        pytest.param(
            [(2, False, 0, 5), (3, True, 0, 5), (4, False, None, 1)],
            [(None, 6), (1, 6), (2, 6)],
            id="without an address",
        ),
        pytest.param(
            [(2, False, 16, None), (3, False, 17, 4)],
            [(None, 4), (1, 4), (2, 4)],
            id="without bytes",
        ),
        pytest.param([(99, False, 16, 5)], [(None, 5), (1, 0), (2, 0)], id="after all windows"),
        pytest.param(
            [(-5, False, 16, 5), (-4, True, 16, 5)],
            [(None, 5), (1, 0), (2, 0)],
            id="before all windows",
        ),
    ],
)
def test_peaks_are_the_most_that_is_allocated_in_a_step(
    events: list[Event], expected: list[tuple[int | None, int]]
) -> None:
    windows = _windows((1, 0, 10), (2, 10, 30), (None, 30, 40))
    peaks = find_peaks(fill(MEMORY_EVENTS, [_event(*event) for event in events]), windows=windows)
    assert (peaks.schema, peaks.select("step", "peak_bytes").rows()) == (MEMORY_PEAKS, expected)


def test_kinds_processes_and_devices_have_peaks_of_their_own() -> None:
    events = [
        *(_event(1, False, 16, 1), _event(2, False, 32, 2, kind=None)),
        *(_event(3, False, 48, 4, device_id=1), _event(4, False, 16, 8, process_key=2)),
        # released by a call that says another device: still of the one where it was allocated
        _event(5, True, 48, 4, device_id=0),
    ]
    assert find_peaks(fill(MEMORY_EVENTS, events), windows=_windows((3, 0, 9))).rows() == [
        *((1, 0, 3, None, 2), (1, 0, 3, "device", 1), (1, 1, 3, "device", 4)),
        (2, 0, None, "device", 8),
    ]


_TIME = st.integers(0, 20)
_EVENTS = st.lists(st.tuples(_TIME, st.booleans(), st.integers(1, 3), st.integers(0, 9)), max_size=20)


def _live(events: list[Event], now: int) -> int:
    """What is allocated at a moment, by looking at each address for itself."""
    total = 0
    for address in {event[2] for event in events}:
        last = [event for event in events if event[2] == address and event[0] <= now][-1:]
        total += sum(size or 0 for _, is_release, _, size in last if not is_release)
    return total


@settings(deadline=None, max_examples=100)
@given(_EVENTS, st.lists(_TIME, min_size=2, max_size=5, unique=True).map(sorted))
def test_peaks_are_those_of_the_definition(made: list[Event], borders: list[int]) -> None:
    events = sorted(made, key=lambda event: event[0])
    frame = fill(MEMORY_EVENTS, [_event(*event) for event in events])
    windows = _windows(*((number, *pair) for number, pair in enumerate(pairwise(borders))))
    found = {
        step: rest
        for step, *rest in find_peaks(frame, windows=windows).drop("process_key", "device_id", "kind").rows()
    }
    if all(is_release for _, is_release, *_ in events):
        assert found == {}
        return
    for step, (start, end) in enumerate(pairwise(borders)):
        assert found.pop(step) == [max(_live(events, now) for now in range(start, end))]
    assert found.keys() <= {None}
    assert all(peak >= 0 for (peak,) in found.values())


@settings(deadline=None, max_examples=100)
@given(_EVENTS, st.lists(st.tuples(_TIME, st.integers(1, 9), st.sampled_from([0, 1, None])), max_size=5))
def test_peaks_of_jobs_are_those_of_the_definition(
    made: list[Event], spans: list[tuple[int, int, int | None]]
) -> None:
    events = sorted(made, key=lambda event: event[0])
    frame = fill(MEMORY_EVENTS, [_event(*event) for event in events])
    rows: list[dict[str, object]] = [
        {
            "process_key": 1,
            "device_id": device,
            "kind": "forward",
            "step": at,
            "host_start_ns": start,
            "host_end_ns": start + length,
        }
        for at, (start, length, device) in enumerate(spans)
    ]
    found = find_job_peaks(frame, jobs=fill(JOBS, rows))
    assert found.schema == JOB_MEMORY_PEAKS
    expected = {}
    if not all(is_release for _, is_release, *_ in events):
        for at, (start, length, device) in enumerate(spans):
            if device != 1:  # all allocations are on device 0
                expected[at] = max(_live(events, now) for now in range(start, start + length))
    assert dict(found.select("step", "peak_bytes").iter_rows()) == expected
    assert set(found["job"].cast(pl.String)) <= {"forward"}


def test_a_simulated_run_allocates_as_it_says(tmp_path: Path) -> None:
    shape = ["--pp", "2", "--machines", "1", "--per", "machine", "--micro-batches", "2", "--no-truth"]
    main([str(tmp_path), "--host", *shape])
    sums = aggregate(next(tmp_path.rglob("*.sqlite")))
    places = [(device, step) for device in (0, 1) for step in (10, 11, 12)]
    found = sums["memory_aggregates"].sort("device_id", "step", "name")
    assert _counts(found, "device_id", "step", "kind", "name") == [
        row
        for device, step in places
        for row in (
            (device, step, "device", "allocate_workspace", 1, 0, WORKSPACE_BYTES, 0),
            (device, step, "device", f"step_{step}", 0, 1, 0, WORKSPACE_BYTES),
        )
    ]
    peaks = sums["memory_peaks"]
    in_steps = peaks.drop_nulls("step").select("device_id", "step", "peak_bytes")
    assert in_steps.rows() == [(*place, WORKSPACE_BYTES) for place in places]
    assert set(peaks.filter(pl.col("step").is_null())["peak_bytes"]) == {0}
