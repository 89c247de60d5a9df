"""Sums of kernels, stretches of compute and activities of hosts, against their definitions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.frames.training import (
    COMPUTE_SEGMENTS,
    FAMILY_TIMES,
    KERNEL_AGGREGATES,
    PAUSE_NS,
    STEPS,
)
from nsys_pp.training.gaps import ACTIVITIES, find_activities
from nsys_pp.training.kernels import build_compute_segments, find_segments, sum_kernels
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.sums import measure_families
from tests.draws import place_after_gaps

KINDS = ["kernel", "graph", "memcpy", "memset"]


def ops(rows: list[tuple[str, int, str, int, int]]) -> pl.DataFrame:
    """Make operations of (kind, device, name, start, end)."""
    return pl.DataFrame(
        [
            {
                "op_id": at,
                "kind": kind,
                "process_key": 1,
                "device_id": device,
                "name": name,
                "start_ns": start,
                "end_ns": end,
            }
            | {"is_communication": name.startswith("nccl")}
            for at, (kind, device, name, start, end) in enumerate(rows)
        ],
        schema=GPU_OPS,
    )


def steps(rows: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    """Make steps of (device, step, start, end)."""
    return pl.DataFrame(
        [
            {"process_key": 1, "device_id": device, "step": step, "start_ns": start, "end_ns": end}
            for device, step, start, end in rows
        ],
        schema=STEPS,
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.integers(0, 1),
            st.sampled_from(["gemm", "relu", "ncclDevKernel"]),
            st.integers(-5, 60),
            st.integers(0, 20),
        ),
        max_size=40,
    ),
    st.lists(st.tuples(st.integers(0, 1), st.sets(st.integers(0, 50), min_size=2, max_size=6)), max_size=3),
)
@settings(deadline=None, max_examples=100)
def test_sums_equal_their_definition(
    kernels: list[tuple[str, int, str, int, int]], cuts: list[tuple[int, set[int]]]
) -> None:
    kernels = [(kind, device, name, start, start + length) for kind, device, name, start, length in kernels]
    rows = []
    for device, edges in dict(cuts).items():
        times = sorted(edges)
        rows += [(device, at, *pair) for at, pair in enumerate(zip(times[::2], times[1::2], strict=False))]
    expected: dict[tuple[int, int | None, str, str], list[int]] = {}
    for kind, device, name, start, end in kernels:
        if kind in ("kernel", "graph"):
            step = next((one for of, one, low, high in rows if of == device and low <= start < high), None)
            expected.setdefault((device, step, kind, name), []).append(end - start)
    found = sum_kernels(ops(kernels), steps(rows))
    assert found.schema == KERNEL_AGGREGATES
    assert {
        (row["device_id"], row["step"], row["kind"], row["name"]): (
            row["count"],
            row["total_ns"],
            row["min_ns"],
            row["max_ns"],
            row["is_communication"],
        )
        for row in found.rows(named=True)
    } == {
        key: (len(times), sum(times), min(times), max(times), key[3].startswith("nccl"))
        for key, times in expected.items()
    }
    assert found.height == len(expected)
    texts = {
        text: pl.col(name).cast(pl.String) for name, text in (("name", "text"), ("full_name", "full_text"))
    }
    by = ["process_key", "device_id", "step", "text", "is_communication", "full_text", "job_kind", "kind"]
    assert found.equals(found.with_columns(**texts).sort(*by, nulls_last=True).select(found.columns))


Span = tuple[int, int]


def compute_segments_of(kernels: list[Span], spans: list[Span]) -> pl.DataFrame:
    gpu_ops = ops([("kernel", 0, "gemm", *span) for span in kernels])
    launched = LaunchedOps(gpu_ops=gpu_ops, api_calls=API_CALLS.to_frame(), launches=LAUNCHES.to_frame())
    frame = steps([(0, step, *span) for step, span in enumerate(spans)])
    return build_compute_segments(find_segments(launched, frame), launched.devices)


def defined(ops: list[Span], steps: list[Span]) -> list[tuple[int | None, int, int, int]]:
    """Mark every microsecond that a kernel covers; a stretch goes on over pauses, and ends with its step."""
    step_at = [next((n for n, (a, b) in enumerate(steps) if a <= t * 1000 < b), None) for t in range(200)]
    covered = [any(a <= t * 1000 < b for a, b in ops) for t in range(200)]
    rows: list[tuple[int | None, int, int, int]] = []
    for time in (t for t in range(200) if covered[t]):
        step, start = step_at[time], time * 1000
        joins = rows and rows[-1][0] == step and start - rows[-1][2] <= PAUSE_NS
        if joins and all(step_at[t] == step for t in range(rows[-1][2] // 1000, time)):
            _, begin, _, busy = rows.pop()
            rows.append((step, begin, start + 1000, busy + 1000))
        else:
            rows.append((step, start, start + 1000, 1000))
    return rows


spans = st.tuples(st.integers(0, 150), st.integers(1, 40)).map(lambda one: (one[0] * 1000, sum(one) * 1000))


@settings(deadline=None, max_examples=100)
@given(st.lists(spans, max_size=12), st.lists(st.integers(0, 190), min_size=2, max_size=4, unique=True))
def test_stretches_are_kernels_joined_over_pauses_and_cut_at_steps(ops: list[Span], edges: list[int]) -> None:
    steps = list(pairwise([edge * 1000 for edge in sorted(edges)]))
    found = compute_segments_of(ops, steps)
    assert found.schema == COMPUTE_SEGMENTS
    assert found.select("step", "start_ns", "end_ns", "compute_ns").rows() == defined(ops, steps)


def test_an_operation_at_the_earliest_time_is_a_stretch() -> None:
    """As damaged reports have: its pause after no operation at all cannot be computed."""
    start = -(1 << 62) + 1
    found = compute_segments_of([(start, 500), (2_000_000, 3_000_000)], [])
    assert found.select("start_ns", "end_ns").rows() == [(start, 500), (2_000_000, 3_000_000)]


Item = tuple[int, int, int, str]


@st.composite
def nested_items(draw: st.DrawFn) -> list[Item]:
    """Draw items that nest on each of two threads."""
    items: list[Item] = []
    for thread in (7, -3):
        open_ends = [100]
        at = 0
        while at < 100 and len(items) < 30:
            at += draw(st.integers(0, 12))
            while len(open_ends) > 1 and open_ends[-1] <= at:
                open_ends.pop()
            if at >= open_ends[-1]:
                break
            end = draw(st.integers(at, open_ends[-1]))
            items.append((thread, at, end, draw(st.sampled_from("abc"))))
            open_ends.append(end)
    return items


@given(
    nested_items(),
    st.lists(st.tuples(st.sampled_from([7, -3, 5]), st.integers(0, 90), st.integers(0, 40)), max_size=6),
)
def test_each_moment_counts_for_the_innermost_item(
    items: list[Item], spans: list[tuple[int, int, int]]
) -> None:
    intervals = pl.DataFrame(
        [(thread, start, start + length) for thread, start, length in spans],
        schema={"thread_key": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    schema = {column: API_CALLS[column] for column in ["thread_key", "start_ns", "end_ns", "name"]}
    found = find_activities(intervals, pl.DataFrame(items, schema=schema, orient="row"))

    expected: Counter[tuple[int, str]] = Counter()
    for number, (thread, since, until) in enumerate(intervals.rows()):
        for moment in range(since, until):
            around = [item for item in items if item[0] == thread and item[1] <= moment < item[2]]
            if around:
                innermost = max(around, key=lambda item: (item[1], -item[2], items.index(item)))
                expected[number, innermost[3]] += 1
    assert found.schema == ACTIVITIES
    assert {(number, name): time for number, name, time in found.rows()} == dict(expected)
    assert found["interval"].is_sorted()
    for _, own in found.group_by("interval"):
        assert own["time_ns"].to_list() == sorted(own["time_ns"].to_list(), reverse=True)


KERNELS = st.lists(
    st.tuples(st.sampled_from(["GEMM", "copy"]), st.integers(-3, 60), st.integers(0, 9)), max_size=12
)


@settings(deadline=None, max_examples=100)
@given(KERNELS, st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=4))
def test_kernels_are_of_the_step_that_they_start_in(
    kernels: list[tuple[str, int, int]], drawn: list[tuple[int, int]]
) -> None:
    steps = [(number, *span) for number, span in enumerate(place_after_gaps(drawn))]
    rows = [(family, start, start + length) for family, start, length in kernels]
    found = measure_families(
        pl.DataFrame(rows, schema=FAMILY_TIMES, orient="row"),
        pl.DataFrame(
            steps, schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row"
        ),
        lane=3,
    )
    moments = [
        (family, step, moment)
        for _, group, family, step, start, end in found.rows()
        if group == "families"
        for moment in range(start, end)
    ]
    assert len(moments) == len(set(moments)), "time of several kernels is listed once"
    assert set(moments) == {
        (family, step, moment)
        for family, start, end in rows
        for step, first, last in steps
        if first <= start < last
        for moment in range(start, end)
    }
