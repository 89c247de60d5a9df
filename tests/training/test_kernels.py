"""None"""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.frames.training import COMPUTE_SEGMENTS, KERNEL_AGGREGATES, PAUSE_NS, STEPS
from nsys_pp.training.kernels import build_compute_segments, find_segments, sum_kernels
from nsys_pp.training.launched import LaunchedOps

KINDS = ["kernel", "graph", "memcpy", "memset"]


def ops(rows: list[tuple[str, int, str, int, int]]) -> pl.DataFrame:
    """Make operations of (kind, device, name, start, end)."""
    return pl.DataFrame(
        [
            {
                "kind": kind,
                "process_key": 1,
                "device_id": device,
                "name": name,
                "start_ns": start,
                "end_ns": end,
            }
            | {"is_communication": name.startswith("nccl")}
            for kind, device, name, start, end in rows
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


def test_a_kernel_belongs_to_the_step_in_which_it_starts() -> None:
    found = sum_kernels(
        ops([("kernel", 0, "gemm", 9, 30), ("kernel", 0, "gemm", 10, 12), ("kernel", 0, "gemm", 20, 21)]),
        steps([(0, 7, 0, 10), (0, 8, 10, 20)]),
    )
    assert found.select("step", "count", "total_ns").rows() == [(7, 1, 21), (8, 1, 2), (None, 1, 1)]


def test_graphs_count_and_copies_do_not() -> None:
    found = sum_kernels(
        ops(
            [
                ("graph", 0, "CUDA graph 1", 0, 5),
                ("memcpy", 0, "Memcpy HtoD", 0, 5),
                ("memset", 0, "Memset", 0, 5),
            ]
        ),
        steps([(0, 1, 0, 10)]),
    )
    assert found["name"].to_list() == ["CUDA graph 1"]


def test_of_nothing_comes_nothing() -> None:
    assert sum_kernels(ops([]), steps([(0, 1, 0, 10)])).equals(KERNEL_AGGREGATES.to_frame())
    alone = sum_kernels(ops([("kernel", 0, "gemm", 3, 5)]), steps([]))
    assert alone.select("step", "total_ns").rows() == [(None, 2)]


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


def ops_of(spans: list[Span]) -> pl.DataFrame:
    return pl.DataFrame(spans, schema=["start_ns", "end_ns"], orient="row").with_columns(
        op_id=pl.int_range(pl.len()), kind=pl.lit("kernel"), process_key=pl.lit(1), device_id=pl.lit(0),
        context_id=pl.lit(1), stream_id=pl.lit(7), correlation_id=pl.lit(None), name=pl.lit("gemm"),
        is_communication=pl.lit(False), graph_id=pl.lit(None),
    ).pipe(conform, GPU_OPS)  # fmt: skip


def steps_of(spans: list[Span]) -> pl.DataFrame:
    return pl.DataFrame(spans, schema=["start_ns", "end_ns"], orient="row").with_columns(
        process_key=pl.lit(1), device_id=pl.lit(0), step=pl.int_range(pl.len()), is_numbered=pl.lit(False),
        name=pl.lit(None), source=pl.lit("jobs"), host_start_ns=pl.lit(None), host_end_ns=pl.lit(None),
        is_partial=pl.lit(False), confidence=pl.lit(None), reason=pl.lit(None),
    ).pipe(conform, STEPS)  # fmt: skip


def compute_segments_of(ops: list[Span], steps: list[Span]) -> pl.DataFrame:
    launched = LaunchedOps(gpu_ops=ops_of(ops), api_calls=API_CALLS.to_frame(), launches=LAUNCHES.to_frame())
    return build_compute_segments(find_segments(launched, steps_of(steps)), launched.devices)


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
    at = [edge * 1000 for edge in sorted(edges)]
    steps = list(pairwise(at))
    found = compute_segments_of(ops, steps)
    assert found.schema == COMPUTE_SEGMENTS
    assert found.select("step", "start_ns", "end_ns", "compute_ns").rows() == defined(ops, steps)


def test_an_operation_at_the_earliest_time_is_a_stretch() -> None:
    """As damaged reports have: its pause after no operation at all cannot be computed."""
    start = -(1 << 62) + 1
    found = compute_segments_of([(start, 500), (2_000_000, 3_000_000)], [])
    assert found.select("start_ns", "end_ns").rows() == [(start, 500), (2_000_000, 3_000_000)]


def test_no_operations_no_stretches() -> None:
    assert compute_segments_of([], [(0, 1000)]).equals(COMPUTE_SEGMENTS.to_frame())
