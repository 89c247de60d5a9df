"""Random programs of several threads, with the launching calls that truly belong to each range.

The main thread runs forwards itself and waits for autograd's threads in backwards, which may wait for one another
(nested autograd). Loaders, checkpoints and watchdogs work side by side with all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from nsys_pp.frames.report import API_CALLS, GPU_OPS, RANGES
from nsys_pp.projection.launches import find_launch_devices, match_launches
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.projection.waited_calls import find_waited_calls
from tests.projection.definition import Frames, frames
from tests.training.expected_training import fill_columns

_PROCESS = 42 << 24


MAIN, AUTOGRAD, SECOND, NESTED, LOADER, SAVER, WATCHDOG, DECODER = 42, 50, 51, 60, 70, 71, 72, 73


WAITS = {
    MAIN: {AUTOGRAD, SECOND, NESTED},
    AUTOGRAD: {NESTED},
    SECOND: {NESTED},
}  # thread -> those it waits for


@dataclass
class Threads:
    """Events of a program; times in ns."""

    rng: np.random.Generator
    launch_ns: int
    pause_ns: float
    handover_ns: float
    now: int = 0
    calls: list[tuple[int, int, int, bool]] = field(default_factory=list)  # thread, start, end, launches
    ranges: list[tuple[int, str, int, int]] = field(default_factory=list)  # thread, name, start, end

    def spend(self, median_ns: float) -> None:
        self.now += 1 + int(median_ns * self.rng.lognormal(0, 0.6))

    def call(self, thread: int, *, launches: bool = True, length_ns: float | None = None) -> None:
        start = self.now
        self.spend(self.launch_ns if length_ns is None else length_ns)
        self.calls.append((thread, start, self.now, launches))

    def burst(self, thread: int, count: int) -> None:
        for _ in range(count):
            self.spend(self.pause_ns * (self.rng.uniform(5, 40) if self.rng.random() < 0.02 else 1))
            self.call(thread)

    def open(self) -> int:
        self.spend(800)
        return self.now

    def close(self, thread: int, name: str, start: int) -> None:
        self.spend(800)
        self.ranges.append((thread, name, start, self.now))


def draw_program(seed: int) -> Threads:
    """Draw a program: micro-batches in some order, and threads side by side."""
    rng = np.random.default_rng(seed)
    program = Threads(
        rng=rng,
        launch_ns=int(rng.uniform(2_000, 8_000)),
        pause_ns=10 ** rng.uniform(3, 4.5),
        handover_ns=10 ** rng.uniform(4, 5),
    )
    devices, nests = 1 + int(rng.random() < 0.25), rng.random() < 0.25
    layers, in_forward, in_backward = (int(rng.integers(*limits)) for limits in ((1, 5), (3, 60), (3, 60)))
    fills, tail, is_gpipe = int(rng.integers(0, 3)), int(rng.random() < 0.3), rng.random() < 0.3
    for _ in range(rng.integers(1, 4)):
        step, micro_batches = program.open(), int(rng.integers(1, 6))
        order = ["forward"] * micro_batches + ["backward"] * micro_batches
        for kind in order if is_gpipe else ["forward", "backward"] * micro_batches:
            began = program.open()
            if kind == "forward":
                for layer in range(layers):
                    opened = program.open()
                    program.burst(MAIN, in_forward)
                    program.close(MAIN, f"layer {layer}", opened)
            else:
                program.burst(MAIN, fills)
                _run_backward(program, devices, layers, in_backward, nests=nests)
                program.burst(MAIN, tail)
            program.close(MAIN, kind, began)
            program.spend(20_000)
        program.burst(MAIN, int(rng.integers(1, 100)))
        program.call(MAIN, launches=False, length_ns=500_000)
        program.close(MAIN, "step", step)
    _add_side_by_side(program)
    return program


def _run_backward(program: Threads, devices: int, layers: int, count: int, *, nests: bool) -> None:
    program.spend(program.handover_ns)
    for layer in range(layers):
        for thread in (AUTOGRAD, SECOND)[:devices]:
            began = program.open()
            program.burst(thread, count)
            if nests:
                program.spend(program.handover_ns)
                program.burst(NESTED, count)
                program.spend(program.handover_ns)
                program.burst(thread, 1)
            program.close(thread, f"layer {layer} backward", began)
    program.spend(program.handover_ns)


def _add_side_by_side(program: Threads) -> None:
    rng, until = program.rng, program.now
    if rng.random() < 0.6:
        _add_loader(program, until, is_polite=rng.random() < 0.3)
    if rng.random() < 0.3:
        program.now = int(rng.uniform(0, 0.8 * until))
        began = program.open()
        program.burst(SAVER, int(rng.integers(1, 200)))
        program.close(SAVER, "save", began)
    if rng.random() < 0.4:
        program.now, period = 0, 10 ** rng.uniform(5, 7)
        while program.now < until:
            program.spend(period)
            program.call(WATCHDOG, launches=False)
    if rng.random() < 0.4:
        program.now, length = 0, 10 ** rng.uniform(5, 7)
        while program.now < until:
            program.spend(length / 2)
            began = program.open()
            program.spend(length)
            program.close(DECODER, "decode", began)
    program.now = until


def _add_loader(program: Threads, until: int, *, is_polite: bool) -> None:
    """Add a loader of data; a polite one calls only while the main thread has no events, as with Python's lock."""
    rng = program.rng
    starts = np.sort([start for thread, start, _, _ in program.calls if thread == MAIN] + [2**62])
    program.now, period, count = 0, 10 ** rng.uniform(5.5, 7), rng.integers(1, 12)
    while program.now < until:
        program.spend(period)
        began = program.open()
        program.spend(period / 10)
        for _ in range(count):
            program.spend(5_000)
            if is_polite:
                following = starts[np.searchsorted(starts, program.now)]
                if following - program.now < 2 * program.launch_ns:
                    program.now = int(following) + 2 * program.launch_ns
            program.call(LOADER)
        if rng.random() < 0.5:
            program.call(LOADER, launches=False, length_ns=20_000)
        program.close(LOADER, "load", began)


def build_frames(program: Threads) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Build RANGES, API_CALLS and GPU_OPS; every launching call has one kernel, and op_id is its number."""
    calls = [(thread, *times, launches) for thread, *times, launches in program.calls]
    ranges = _fill(
        RANGES,
        [
            {"range_id": at, "thread_key": _PROCESS | thread, "name": name, "start_ns": start, "end_ns": end}
            for at, (thread, name, start, end) in enumerate(program.ranges)
        ],
        kind="push_pop",
        is_open=False,
    )
    api_calls = _fill(
        API_CALLS,
        [
            {"thread_key": _PROCESS | thread, "start_ns": start, "end_ns": end, "correlation_id": at}
            for at, (thread, start, end, _) in enumerate(calls)
        ],
    )
    launching = [(at, call) for at, call in enumerate(calls) if call[3]]
    gpu_ops = _fill(
        GPU_OPS,
        [
            {"op_id": op, "correlation_id": at, "start_ns": call[1] + 50_000, "end_ns": call[1] + 51_000}
            for op, (at, call) in enumerate(launching)
        ],
        kind="kernel",
        device_id=0,
        stream_id=7,
        is_communication=False,
    )
    return ranges, api_calls, gpu_ops


def _fill(schema: pl.Schema, rows: list[dict[str, Any]], **constants: object) -> pl.DataFrame:
    constants |= {"process_key": _PROCESS}
    absent = {name: None for name in schema if not rows or name not in rows[0]}
    filled = absent | {name: value for name, value in constants.items() if name in schema}
    return pl.DataFrame([filled | row for row in rows], schema=schema)


def list_true_counts(program: Threads) -> list[int]:
    """Count the launching calls of each range: those of its thread, and of threads that it waits for."""
    counts = []
    for thread, _, start, end in program.ranges:
        owners = {thread} | WAITS.get(thread, set())
        counts.append(
            sum(
                launches and owner in owners and start <= began and ended <= end
                for owner, began, ended, launches in program.calls
            )
        )
    return counts


def test_ranges_contain_the_launches_of_threads_that_they_wait_for() -> None:
    """Of random programs; a few ranges have too few or too many, where little is recorded of two threads."""
    right, less, more = 0, 0, 0
    for seed in range(100, 130):
        program = draw_program(seed)
        counts = dict(project_ranges(*build_frames(program)).select("range_id", "op_count").iter_rows())
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
