from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import GPU_OPS
from nsys_pp.frames.training import KERNEL_AGGREGATES, STEPS
from nsys_pp.training.kernels import sum_kernels

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
