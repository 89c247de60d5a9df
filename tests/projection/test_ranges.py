"""Projection against its definition, and its speed class."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.intervals import find_parents
from nsys_pp.frames.report import API_CALLS, GPU_OPS, PROJECTIONS, RANGES
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import COMPUTED, OPS, Scope, project_compute, project_ranges
from tests.projection import definition
from tests.projection.definition import Frames, frames


@settings(max_examples=400, deadline=None)
@given(
    report=frames(),
    ops=st.sampled_from([("kernel",), ("memcpy",), ("memcpy", "memset"), ("kernel", "memcpy", "memset")]),
    scope=st.sampled_from(["thread", "process", "auto"]),
    per_stream=st.booleans(),
)
def test_projection_is_its_definition(
    report: Frames, ops: tuple[str, ...], scope: Scope, per_stream: bool
) -> None:
    ranges, api_calls, gpu_ops = report
    kinds = {kind for name in ops for kind in OPS[name]}
    expected = definition.project(ranges, api_calls, gpu_ops, kinds, scope, per_stream)
    actual = project_ranges(ranges, api_calls, gpu_ops, ops=ops, scope=scope, per_stream=per_stream)
    assert actual.schema == PROJECTIONS
    rows = actual.to_dicts()
    assert len(rows) == len(expected)
    for row, truth in zip(rows, expected, strict=True):
        assert row.pop("first_op") in truth.pop("first_ops")
        assert row.pop("last_op") in truth.pop("last_ops")
        assert row == truth


@settings(max_examples=100, deadline=None)
@given(report=frames(), scope=st.sampled_from(["thread", "process", "auto"]))
def test_known_launches_change_nothing(report: Frames, scope: Scope) -> None:
    ranges, api_calls, gpu_ops = report
    matched, with_launches = (
        project_ranges(ranges, api_calls, gpu_ops, scope=scope, launches=launches)
        for launches in (None, match_launches(api_calls, gpu_ops))
    )
    assert with_launches.equals(matched)


@settings(max_examples=100, deadline=None)
@given(report=frames(), scope=st.sampled_from(["thread", "process", "auto"]), data=st.data())
def test_computation_is_what_is_projected_without_communication(
    report: Frames, scope: Scope, data: st.DataObject
) -> None:
    ranges, api_calls, gpu_ops = report
    talks = data.draw(st.lists(st.booleans(), min_size=len(gpu_ops), max_size=len(gpu_ops)))
    gpu_ops = gpu_ops.with_columns(is_communication=pl.Series(talks, dtype=pl.Boolean))
    launches = match_launches(api_calls, gpu_ops)
    silent = launches.filter(~gpu_ops["is_communication"].gather(launches["op_id"]))
    expected = project_ranges(ranges, api_calls, gpu_ops, scope=scope, launches=silent)
    computed = project_compute(ranges, api_calls, gpu_ops, scope=scope, launches=launches)
    assert computed.equals(expected.select(COMPUTED.names()))
    assert computed.schema == COMPUTED


@pytest.mark.parametrize("scope", ["thread", "process", "auto"])
def test_nothing_in_nothing_out(scope: Scope) -> None:
    empty = project_ranges(RANGES.to_frame(), API_CALLS.to_frame(), GPU_OPS.to_frame(), scope=scope)
    assert empty.equals(PROJECTIONS.to_frame())
    assert empty.schema == PROJECTIONS


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    calls: int
    memory: int

    @staticmethod
    def of(task: Callable[[], object]) -> Work:
        """Count the calls of a task and its peak memory in numpy."""
        counter: Counter[str] = Counter()

        def count(frame: object, event: str, argument: object) -> None:
            counter[event] += 1

        gc.collect()
        tracemalloc.start()
        sys.setprofile(count)
        try:
            task()
        finally:
            sys.setprofile(None)
            memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return Work(calls=counter["call"] + counter["c_call"], memory=memory)


def report(
    marked: tuple[Ints, Ints, Ints | int],
    calls: tuple[Ints, Ints, Ints | int],
    ops: tuple[Ints, Ints, Ints | int],
    call_of_op: Ints | None = None,
) -> Frames:
    """Build frames of one process: start, end and thread of ranges and calls; start, end and stream of operations."""

    def fill(schema: pl.Schema, count: int, **columns: Any) -> pl.DataFrame:
        rows = pl.DataFrame({"row": np.arange(count)})
        series = {name: pl.Series(np.broadcast_to(value, count)) for name, value in columns.items()}
        return rows.select(
            (series[name].cast(dtype) if name in series else pl.lit(None, dtype)).alias(name)
            for name, dtype in schema.items()
        )

    number = np.arange(1, len(calls[0]) + 1)
    start, end, thread = marked
    common = {"process_key": 7, "thread_key": thread, "start_ns": start, "end_ns": end, "is_open": False}
    all_ranges = fill(RANGES, len(start), range_id=np.arange(1, len(start) + 1), **common)
    start, end, thread = calls
    common = {"process_key": 7, "thread_key": thread, "start_ns": start, "end_ns": end}
    all_calls = fill(API_CALLS, len(start), correlation_id=number, **common)
    start, end, stream = ops
    common = {"process_key": 7, "device_id": 0, "stream_id": stream, "start_ns": start, "end_ns": end}
    all_ops = fill(
        GPU_OPS,
        len(start),
        op_id=np.arange(len(start)),
        correlation_id=number if call_of_op is None else number[call_of_op],
        **common,
    )
    return all_ranges, all_calls, all_ops.with_columns(kind=pl.lit("kernel", GPU_OPS["kind"]))


def queued(count: int, streams: int, length: int = 1900) -> tuple[Ints, Ints, Ints]:
    """Operations that overlap those of other streams; every hundredth overlaps hundreds."""
    at = np.arange(count)
    start = at * 1000 + 3000
    return start, start + np.where(at % 100 == 0, 200 * length, length), at % streams


def enclosing(size: int) -> Frames:
    """Ranges that each enclose all calls."""
    level, call = np.arange(size // 10), np.arange(size)
    marked = (level - len(level), size * 1000 - level + len(level), 1)
    return report(marked, (call * 1000, call * 1000 + 500, 1), queued(size, 8))


def nested(size: int) -> Frames:
    """Ranges that nest, with calls between the beginnings and the ends of all."""
    level, call = np.arange(size // 20), np.arange(size)
    step = 10 * 1000
    marked = (level * step - 1, size * 1000 - level * step + 1, 1)
    return report(marked, (call * 1000, call * 1000 + 500, 1), queued(size, 8))


def threaded(size: int, threads: int = 200) -> Frames:
    """Threads whose calls overlap, each with long ranges and short ones that end amid calls of others."""
    random = np.random.default_rng(0)
    call = np.arange(size)
    start = call * 1000 + random.integers(0, 50_000, size)
    end = start + random.integers(2_000, 20_000, size)
    many, few = np.arange(size // 5), np.arange(size // 100)
    marked = (
        np.concatenate([few // threads * 1000, many * 5000]),
        np.concatenate(
            [size * 1000 - few // threads * 1000, many * 5000 + random.integers(0, 10**6, len(many))]
        ),
        np.concatenate([few % threads, many % threads]),
    )
    begin = end + random.integers(0, 9_000, size)
    return report(
        marked, (start, end, call % threads), (begin, begin + random.integers(500, 12_000, size), call % 16)
    )


def waiting(size: int, threads: int = 8) -> Frames:
    """Threads that are in long calls while short ranges of others end by the thousand."""
    each = size // 100
    call = np.arange(each)
    length = size * 1000 // each * threads
    start = call // threads * length + call % threads
    end = start + length - threads - np.random.default_rng(0).integers(0, 1000, each)
    many = np.arange(size)
    marked = (
        np.concatenate([many * 1000, start - 1]),
        np.concatenate([many * 1000 + 900, start + 3 * length]),
        np.concatenate([many % threads, call % threads]),
    )
    return report(marked, (start, end, call % threads), queued(each, 8))


def graphs(size: int) -> Frames:
    """Calls of a thousand operations each, inside ranges that enclose them all."""
    call, level = np.arange(size // 1000), np.arange(size // 100)
    marked = (level - len(level), size * 1000 - level + len(level), 1)
    return report(marked, (call * 1000, call * 1000 + 500, 1), queued(size, 4), np.arange(size) // 1000)


def streamed(size: int) -> Frames:
    """Ranges over many calls on 200 streams."""
    call, row = np.arange(size), np.arange(size // 200)
    marked = (row * 1000, size * 1000 - row * 1000, 1)
    return report(marked, (call * 1000, call * 1000 + 500, 1), queued(size, 200, length=30_000))


SHAPES: list[Any] = [  # report of a size, scope, per stream, size
    (enclosing, "thread", False, 20_000),
    (enclosing, "process", False, 20_000),
    (nested, "thread", False, 20_000),
    (nested, "process", True, 20_000),
    (threaded, "process", False, 10_000),
    # compares all pairs of threads, which for 200 is most of the work at any size
    pytest.param(partial(threaded, threads=50), "auto", False, 12_000, id="threaded by few"),
    (threaded, "thread", False, 10_000),
    (waiting, "process", False, 25_000),
    (waiting, "auto", False, 25_000),
    (graphs, "auto", False, 20_000),
    (streamed, "auto", True, 4_000),
]


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["thread", "auto"])
def test_a_report_of_millions_of_ranges_is_projected_as_its_halves(scope: Scope) -> None:
    count = 2_400_000
    row, call = np.arange(count), np.arange(count // 2)
    marked = (100 * row, 100 * row + np.where(row % 1000 == 0, 99_000, 90), 1)
    ranges, api_calls, gpu_ops = report(marked, (200 * call, 200 * call + 50, 1), queued(count // 2, 4))
    whole = project_ranges(ranges, api_calls, gpu_ops, scope=scope)
    halves = []
    first, second = slice(count // 2), slice(count // 2, None)
    for half, launches in ((first, slice(count // 4)), (second, slice(count // 4, None))):
        ops = gpu_ops[launches].with_columns(op_id=pl.int_range(count // 4).cast(GPU_OPS["op_id"]))
        halves.append(project_ranges(ranges[half], api_calls[launches], ops, scope=scope))
    keys = ["range_id", "device_id"]
    assert whole.sort(keys).equals(pl.concat(halves).sort(keys))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("shape", "scope", "per_stream", "size"), SHAPES, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_four_times_the_report_is_not_much_more_than_four_times_the_work(
    shape: Callable[[int], Frames], scope: Scope, per_stream: bool, size: int
) -> None:
    small, large = shape(size), shape(4 * size)

    def project(frames: Frames) -> Callable[[], object]:
        return lambda: project_ranges(*frames, scope=scope, per_stream=per_stream)

    assert len(project_ranges(*small, scope=scope, per_stream=per_stream)) > 100
    less, more = Work.of(project(small)), Work.of(project(large))
    assert more.calls * more.memory < 8 * less.calls * less.memory
    assert more.memory < 6 * less.memory


@pytest.mark.parametrize("shape", [threaded, waiting])
def test_threads_do_not_multiply_the_work(shape: Callable[[int, int], Frames]) -> None:
    """The same calls and ranges on four times as many threads."""
    few, many = shape(40_000, 50), shape(40_000, 200)
    less, more = (Work.of(lambda of=of: project_ranges(*of, scope="process")) for of in (few, many))  # type: ignore[misc]
    assert more.calls * more.memory < 2 * less.calls * less.memory


def test_ranges_after_a_deep_nest_do_not_look_at_all_of_it() -> None:
    def nest(size: int) -> Work:
        level, row = np.arange(size // 10), np.arange(size)
        start = np.concatenate([level, 3 * size + 10 * row])
        end = np.concatenate([2 * size - level, 3 * size + 10 * row + 5])
        return Work.of(lambda: find_parents(np.zeros_like(start), start, end))

    less, more = nest(10_000), nest(40_000)
    assert more.calls * more.memory < 8 * less.calls * less.memory


def test_the_count_sees_a_quadratic_step() -> None:
    def slow(size: int) -> Work:
        values = np.arange(size)
        return Work.of(lambda: [np.maximum(values, number) for number in range(size)])

    less, more = slow(200), slow(800)
    assert more.calls * more.memory > 8 * less.calls * less.memory
