"""Summaries of a few rows, written down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES, DISTRIBUTION, SUMMARY_PROCESSES, Summary
from nsys_pp.frames.conform import build_schema
from nsys_pp.options import SUMMARY_GROUPS as GROUPS
from nsys_pp.tables.registry import PADDLE_TABLES
from nsys_pp.tables.registry import SUMMARY_TABLES as TABLES
from nsys_pp.tables.summary import GROUP_COLUMNS


def schema_of_aggregates(name: str) -> pl.Schema:
    """`process` replaces process_key and device_id."""
    keys = ("process_key", "device_id")
    own = {column: dtype for column, dtype in AGGREGATE_FRAMES[name].items() if column not in keys}
    return build_schema({"process": SUMMARY_PROCESSES["process"], **own})


def make_summary(processes: pl.DataFrame | None = None, **frames: list[dict[str, Any]]) -> Summary:
    """Make a summary; a row may have `durations` (or `bytes`) instead of the columns of a spread."""
    return Summary(
        processes=make_processes(1) if processes is None else processes,
        frames={name: make_frame(name, frames.get(name, [])) for name in AGGREGATE_FRAMES},
        recorded=(frozenset(),),
    )


def make_frame(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = schema_of_aggregates(name)
    full = [{"process": 0, **row, **_spread(row.get("values"))} for row in rows]
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in full], schema=schema)


def make_processes(count: int, *, gpus_per_process: int = 1, stages: int = 1) -> pl.DataFrame:
    """Ranks 0, 1, ... with two GPUs on each machine."""
    rows = [
        {
            "process": rank,
            "report": rank // gpus_per_process,
            "process_key": rank // gpus_per_process,
            "device_id": rank % gpus_per_process,
            "machine": f"node{rank // 2 + 1}",
            "gpu": f"GPU {rank % 2}",
            "stage": rank * stages // max(count, 1),
            "label": f"rank {rank}",
        }
        for rank in range(count)
    ]
    return pl.DataFrame(rows, schema=SUMMARY_PROCESSES)


def build(table: str, summary: Summary, *, by: str = "run", paddle_compat: bool = False) -> pl.DataFrame:
    return (PADDLE_TABLES if paddle_compat else TABLES)[table].build(summary, by)


def rows_of(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.select(columns).rows()


def _spread(values: Sequence[int] | None) -> dict[str, Any]:
    if values is None:
        return {}
    found = build_distributions(pl.DataFrame({"value": values}, schema={"value": pl.Int64}), [], "value")
    return found.select(list(DISTRIBUTION)).row(0, named=True)


def _gpu_times(process: int = 0, step: int | None = None, **times: int) -> dict[str, Any]:
    names = (
        "busy kernel compute communication overlap memcpy memset memory any_communication any_overlap span"
    )
    return {"process": process, "step": step, **{f"{name}_ns": times.get(name, 0) for name in names.split()}}


def _host(
    process: int, activity: str, time_ns: int, *, count: int = 1, step: int | None = None
) -> dict[str, Any]:
    times = {"union_ns": time_ns, "total_ns": time_ns}
    return {"process": process, "step": step, "activity": activity, "count": count, **times}


def _op(
    name: str, values: list[int], *, kind: str = "kernel", process: int = 0, **more: object
) -> dict[str, Any]:
    return {
        "process": process,
        "kind": kind,
        "name": name,
        "base_name": name,
        "is_communication": False,
        "values": values,
        **more,
    }


def _item(
    item: str, name: str | None, measure: str, values: list[int], *, process: int = 0, **more: object
) -> dict[str, Any]:
    return {"process": process, "item": item, "name": name, "measure": measure, "values": values, **more}


def test_overview_adds_up_unions_of_places_and_counts_what_can_be_counted() -> None:
    summary = make_summary(
        make_processes(2),
        host_times=[_host(process, "span", 100) for process in (0, 1)]
        + [_host(0, "cuda", 30, count=5), _host(1, "os", 0, count=0)],
        gpu_times=[
            _gpu_times(span=80, busy=50, kernel=40, compute=35, communication=10, overlap=5, memcpy=12)
        ],
        op_aggregates=[
            _op("a", [1, 2]),
            _op("nccl", [3], is_communication=True),
            _op("graph", [3], kind="graph"),
            _op("copy", [1, 1], kind="memcpy"),
        ],
    )
    table = build("overview", summary)
    assert rows_of(table, "side", "count", "time_ns", "fraction", "activity") == [
        ("CPU", None, 200, 1.0, "span"),
        ("CPU", 5, 30, 0.15, "CUDA calls"),
        ("GPU", None, 80, 1.0, "span"),
        ("GPU", 6, 50, 0.625, "anything"),
        ("GPU", 4, 40, 0.5, "kernels"),
        ("GPU", 3, 35, 0.4375, "computation"),
        ("GPU", None, 30, 0.375, "nothing"),
        ("GPU", 2, 12, 0.15, "copies"),
        ("GPU", 1, 10, 0.125, "communication"),
        ("GPU", 0, 0, 0.0, "sets"),
    ]
    assert rows_of(table, "rank_min_ns", "rank_max_ns", "slowest_rank")[1] == (0, 30, "rank 0")


def test_devices_are_a_row_each_with_the_cpu_time_of_their_process() -> None:
    summary = make_summary(
        make_processes(2, gpus_per_process=2),
        host_times=[_host(0, "span", 200), _host(0, "cpu", 300)],
        gpu_times=[
            _gpu_times(0, span=100, busy=60, kernel=50, compute=40),
            _gpu_times(1, 5, span=50, busy=50, kernel=25, compute=0),
            _gpu_times(1, span=50, busy=0, kernel=0, compute=0),
        ],
    )
    assert build("device", summary).rows() == [
        (100, 1.5, 0.5, 0.4, 0.6, "rank 0"),
        (100, 1.5, 0.25, 0.0, 0.5, "rank 1"),
    ]
    assert build("device", summary, by="rank").equals(build("device", summary))
    assert rows_of(build("device", summary, by="step"), "step", "span_ns", "cpu_fraction", "label") == [
        (5, 50, None, "rank 1"),
        (None, 100, 1.5, "rank 0"),
        (None, 50, 1.5, "rank 1"),
    ]


def test_a_process_without_a_gpu_has_its_span_on_the_cpu() -> None:
    processes = make_processes(1).with_columns(device_id=pl.lit(None, pl.Int32), gpu=pl.lit(None, pl.String))
    summary = make_summary(processes, host_times=[_host(0, "span", 200)])
    assert build("device", summary).rows() == [(200, None, None, None, None, "rank 0")]


def test_the_parts_of_the_distribution_add_up_to_the_span() -> None:
    times = {"span": 100, "busy": 70, "kernel": 60, "compute": 50, "communication": 25, "overlap": 15}
    table = build(
        "distribution",
        make_summary(make_processes(2), gpu_times=[_gpu_times(0, **times), _gpu_times(1, **times)]),
    )
    time_ns = dict(rows_of(table, "part", "time_ns"))
    assert time_ns == {
        "span": 200,
        "computation": 100,
        "communication": 50,
        "overlap": 30,
        "exposed communication": 20,
        "exposed copies": 20,
        "idle": 60,
    }
    parts = ("computation", "exposed communication", "exposed copies", "idle")
    assert sum(time_ns[part] for part in parts) == time_ns["span"]
    assert table["part"].to_list() == [*time_ns]
    assert table["rank_max_ns"].to_list() == [value // 2 for value in time_ns.values()]


def test_the_model_leaves_out_phases_of_processes_whose_steps_have_no_time_on_the_cpu() -> None:
    """Else the phases of two ranks are subtracted from the steps of one: a negative time outside of phases."""
    summary = make_summary(
        make_processes(2),
        item_aggregates=[
            _item("phase", "step", "host", [100], step=1),
            _item("phase", "forward", "host", [50], step=1),
            _item("phase", "jobs", "host", [50], step=1),
            {**_item("phase", "step", "gpu", [50], step=1), "process": 1},
            {**_item("phase", "forward", "gpu", [40], step=1), "process": 1},
            {**_item("phase", "jobs", "gpu", [40], step=1), "process": 1},
            {**_item("phase", "forward", "host", [1000], step=1), "process": 1},
            {**_item("phase", "jobs", "host", [1000], step=1), "process": 1},
            # of a step that the capture cuts
            _item("phase", "forward", "host", [700], step=2),
            _item("phase", "jobs", "host", [700], step=2),
        ],
    )
    columns = ("phase", "host_total_ns", "host_fraction", "gpu_total_ns")
    expected = [
        ("step", 100, 1.0, 50),
        ("  forward", 50, 0.5, 40),
        ("  outside phases", 50, 0.5, 10),
    ]
    for by in ("run", "step"):
        assert rows_of(build("model", summary, by=by), *columns)[:3] == expected
    of_rank = build("model", summary, by="rank").filter(pl.col("rank") == "rank 1")
    assert rows_of(of_rank, *columns)[1] == ("  forward", None, None, 40)


def test_operators_stand_above_their_kernels_and_these_above_inner_operators() -> None:
    def operator(name: str, host: int | None, gpu: int, **levels: str) -> list[dict[str, Any]]:
        return [
            _item("operator", name, side, [value], inner=levels.get("inner"), kernel=levels.get("kernel"))
            for side, value in {"host": host, "gpu": gpu}.items()
            if value is not None
        ]

    summary = make_summary(
        item_aggregates=[
            *operator("small", 1, 5),
            *operator("big", 20, 35),
            *operator("big", None, 4, kernel="k2"),
            *operator("big", None, 6, kernel="k1"),
            *operator("big", 3, 5, inner="less"),
            *operator("big", 7, 20, inner="more"),
            *operator("big", None, 20, inner="more", kernel="k1"),
        ]
    )
    table = build("operators", summary)
    assert rows_of(table, "name", "host_fraction", "gpu_fraction") == [
        ("big", 20 / 21, 35 / 40),
        ("    k1", None, 6 / 35),
        ("    k2", None, 4 / 35),
        ("  more", 7 / 20, 20 / 35),
        ("    k1", None, 1.0),
        ("  less", 3 / 20, 5 / 35),
        ("small", 1 / 21, 5 / 40),
    ]
    assert table["count"].to_list() == [1] * 7


def test_copies_have_bytes_and_bandwidth_where_sizes_are_recorded() -> None:
    summary = make_summary(
        op_aggregates=[
            _op("Memcpy HtoD", [100, 300], kind="memcpy"),
            _op("Memset", [100], kind="memset"),
            _op("k", [7]),
        ],
        copy_sizes=[{"kind": "memcpy", "name": "Memcpy HtoD", "values": [1000, 3000]}],
    )
    table = build("copies", summary)
    columns = [
        "name",
        "count",
        "fraction",
        "total_bytes",
        "mean_bytes",
        "median_bytes",
        "max_bytes",
        "bytes_per_s",
    ]
    assert rows_of(table, *columns) == [
        ("Memcpy HtoD", 2, 0.8, 4000, 2000.0, 2000.0, 3000, 1e10),
        ("Memset", 1, 0.2, None, None, None, None, None),
    ]


def test_memory_has_a_row_for_each_kind_and_its_peak_is_that_of_one_gpu() -> None:
    def memory(process: int, name: str | None, job: str | None, allocated: int, freed: int) -> dict[str, Any]:
        counts = {"allocation_count": 1, "free_count": int(freed > 0)}
        sizes = {"allocated_bytes": allocated, "freed_bytes": freed}
        return {"process": process, "kind": "device", "name": name, "job": job, **counts, **sizes}

    summary = make_summary(
        make_processes(2),
        memory_aggregates=[
            memory(0, "F0", "forward", 100, 0),
            memory(1, "F1", "forward", 50, 10),
            memory(0, "setup", None, 30, 30),
            memory(0, None, None, 300, 0),
        ],
        memory_peaks=[
            {"process": process, "kind": "device", "step": step, "peak_bytes": peak, "end_bytes": 0}
            for process, step, peak in [(0, 1, 400), (0, 2, 430), (1, 1, 50)]
        ],
        job_memory_peaks=[
            {"process": process, "kind": "device", "step": 1, "job": job, "peak_bytes": peak}
            for process, job, peak in [(0, "forward", 390), (1, "forward", 60), (1, "backward", 20)]
        ],
    )
    assert rows_of(
        build("memory", summary),
        "kind",
        "allocation_count",
        "free_count",
        "increased_bytes",
        "peak_bytes",
        "name",
    ) == [
        ("device", 4, 2, 440, 430, "all"),
        ("device", 1, 0, 300, None, "  outside all ranges"),
        ("device", 2, 1, 140, 390, "  forward"),
        ("device", 0, 0, 0, 20, "  backward"),
        ("device", 1, 1, 0, None, "  setup"),
    ]


@pytest.mark.parametrize(
    ("call", "algorithm", "bus"),
    [
        ("AllReduce", 1.0, 1.5),
        ("AllGather", 4.0, 3.0),
        ("ReduceScatter", 4.0, 3.0),
        ("AlltoAll", 4.0, 3.0),
        ("Broadcast", 1.0, 1.0),
        ("Send", 1.0, 1.0),
        ("SendRecv", None, None),
        (None, None, None),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(
    call: str | None, algorithm: float | None, bus: float | None
) -> None:
    row = {"call": call, "size_bytes": 1000, "rank_count": 4, "values": [500, 1000, 2000]}
    found = build("communication", make_summary(collective_aggregates=[row])).row(0, named=True)
    per_s = 1e9  # 1000 bytes in 1000 ns
    names = ("algorithm_bytes_per_s", "bus_bytes_per_s")
    speeds = [value if value is None else value * per_s for value in (algorithm, bus)]
    assert [found[name] for name in names] == speeds
    assert [found[f"best_{name}"] for name in names] == [
        value if value is None else 2 * value for value in speeds
    ]
    assert found["call"] == (call or "unknown")


def test_idle_time_is_of_the_gpus_that_have_the_stream() -> None:
    def idle(process: int, stream: int | None, cause: str, total: int, *, count: int = 1) -> dict[str, Any]:
        times = {"count": count, "total_ns": total, "most_ns": total}
        return {"process": process, "stream_id": stream, "cause": cause, **times}

    summary = make_summary(
        make_processes(2),
        gpu_times=[_gpu_times(0, span=100), _gpu_times(1, span=100), _gpu_times(1, 3, span=200)],
        idle_times=[
            idle(0, 17, "other", 50),
            idle(0, 7, "edges", 40, count=0),
            idle(0, None, "host_late", 10, count=2),
            idle(1, None, "host_late", 30, count=2),
            idle(1, None, "edges", 60),
        ],
    )
    columns = ["where", "cause", "count", "total_ns", "fraction", "mean_ns", "max_ns"]
    assert rows_of(build("idle", summary), *columns) == [
        ("device", "nothing before, or nothing after", 1, 60, 0.15, 60.0, 60),
        ("device", "launched too late", 4, 40, 0.1, 10.0, 30),
        ("stream 7", "nothing before, or nothing after", 0, 40, 0.4, None, 40),
        ("stream 17", "launched in time, but waited", 1, 50, 0.5, 50.0, 50),
    ]
    by_step = build("idle", summary, by="step")
    assert rows_of(by_step, "step", "where", "total_ns", "fraction")[0] == (None, "device", 60, 0.3)


def test_launches_have_delays_and_queues_per_gpu() -> None:
    def launches(process: int, step: int, values: list[int], queued: int, most: int) -> dict[str, Any]:
        counts = {
            "short_count": 1,
            "slow_call_count": 0,
            "late_count": 2,
            "queued_ns": queued,
            "queue_most": most,
        }
        return {"process": process, "step": step, "values": values, **counts}

    summary = make_summary(
        make_processes(2),
        gpu_times=[_gpu_times(0, 1, span=100), _gpu_times(0, 2, span=100)],
        launch_aggregates=[launches(0, 1, [10, 20], 150, 3), launches(0, 2, [60], 250, 7)],
    )
    assert build("launches", summary).rows() == [(3, 30.0, 20.0, 10, 60, 2.0, 7, 2, 0, 4, "rank 0")]
    assert rows_of(build("launches", summary, by="step"), "step", "mean_queue_count", "label") == [
        (1, 1.5, "rank 0"),
        (2, 2.5, "rank 0"),
    ]


def test_waiting_for_the_gpu_is_told_by_call_and_across_threads() -> None:
    names = {
        "cudaStreamSynchronize": [30, 30],
        "cudaMemcpy": [5],
        "cudaMemcpyAsync": [9],
        "cudaLaunchKernel": [9],
    }
    summary = make_summary(
        call_aggregates=[{"api": "cuda", "name": name, "values": values} for name, values in names.items()],
        host_times=[_host(0, "span", 100), _host(0, "sync", 40, count=3)],
    )
    assert rows_of(build("sync", summary), "name", "count", "total_ns", "fraction") == [
        ("cudaStreamSynchronize", 2, 60, 0.6),
        ("any of them", 3, 40, 0.4),
        ("cudaMemcpy", 1, 5, 0.05),
    ]


def test_families_have_their_kernels_below_them_and_shares_of_tensor_cores() -> None:
    summary = make_summary(
        op_aggregates=[
            _op("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn", [30]),
            _op("ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x3_nn", [20]),
            _op("ampere_sgemm_128x64_tn", [10]),
            _op("fused_moe_kernel", [40]),
            _op("triton_poi_fused_add_mul_3", [5]),
            _op("mystery", [15]),
            _op("ncclDevKernel_SendRecv", [50], is_communication=True),
            _op("Memcpy DtoH", [10, 10], kind="memcpy"),
            _op("CUDA graph 7", [10], kind="graph"),
        ]
    )
    assert rows_of(
        build("families", summary),
        "count",
        "total_ns",
        "fraction",
        "tensor_core_fraction",
        "tensor_core_unknown_fraction",
        "library",
        "name",
    ) == [
        (4, 100, 0.5, 0.5, 0.4, None, "GEMM"),
        (2, 50, 0.25, 1.0, 0.0, "cuBLAS", "  ampere_bf16_s16816gemm_bf16_f2f_nn"),
        (1, 40, 0.2, None, 1.0, "vLLM", "  fused_moe_kernel"),
        (1, 10, 0.05, 0.0, 0.0, "cuBLAS", "  ampere_sgemm_tn"),
        (1, 50, 0.25, None, None, "NCCL", "communication"),
        (1, 50, 0.25, None, None, "NCCL", "  ncclDevKernel_SendRecv"),
        (2, 20, 0.1, None, None, None, "copy"),
        (2, 20, 0.1, None, None, None, "  Memcpy DtoH"),
        (1, 15, 0.075, None, None, None, "unknown"),
        (1, 15, 0.075, None, None, None, "  mystery"),
        (1, 10, 0.05, None, None, None, "graph"),
        (1, 10, 0.05, None, None, None, "  CUDA graph"),
        (1, 5, 0.025, None, None, "Inductor", "elementwise"),
        (1, 5, 0.025, None, None, "Inductor", "  triton_poi_fused_add_mul"),
    ]


OF_GROUP = {
    "rank": ["rank"],
    "machine": ["machine"],
    "stage": ["stage"],
    "device": ["machine", "gpu"],
    "step": ["step"],
}


Row = tuple[int, int | None, str, list[int]]


kernel_rows = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([None, 0, 1, 10]),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.integers(0, 50), min_size=1, max_size=3),
    ),
    max_size=12,
)


def _kernels(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "process": process,
            "step": step,
            "kind": "kernel",
            "name": name,
            "base_name": name,
            "values": values,
        }
        for process, step, name, values in rows
    ]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("by", GROUPS)
def test_without_sums_a_table_is_empty_and_has_its_columns(name: str, by: str) -> None:
    for processes in (make_processes(0), make_processes(4)):
        table = build(name, make_summary(processes), by=by)
        groups = [] if by == "rank" and name in ("device", "launches") else OF_GROUP.get(by, [])
        assert table.is_empty()
        own = {column.name: column.dtype for column in TABLES[name].columns}
        of_groups = {column.name: column.dtype for column in GROUP_COLUMNS if column.name in groups}
        assert (table.columns, dict(table.schema)) == ([*groups, *own], {**of_groups, **own})


@settings(deadline=None, max_examples=60)
@given(rows=kernel_rows, by=st.sampled_from([by for by in GROUPS if by != "run"]))
def test_groups_add_up_to_the_run(rows: list[Row], by: str) -> None:
    summary = make_summary(make_processes(6, stages=3), op_aggregates=_kernels(rows))
    whole = build("kernels", summary)
    parts = build("kernels", summary, by=by)
    sums = parts.group_by("name").agg(
        pl.col("count", "total_ns").sum(), pl.col("min_ns").min(), pl.col("max_ns").max()
    )
    columns = ["name", "count", "total_ns", "min_ns", "max_ns"]
    assert sorted(sums.select(columns).rows()) == sorted(whole.select(columns).rows())
    shares = parts.group_by(OF_GROUP[by]).agg(pl.col("fraction").sum(), pl.col("total_ns").sum())
    assert all(
        share == pytest.approx(1) for share, total in shares.select("fraction", "total_ns").rows() if total
    )


@settings(deadline=None, max_examples=60)
@given(rows=kernel_rows)
def test_rows_are_those_of_plain_loops(rows: list[Row]) -> None:
    values: dict[str, list[int]] = defaultdict(list)
    of_rank: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for process, _, name, own in rows:
        values[name] += own
        of_rank[name][process] += sum(own)
    ranks = {process for process, *_ in rows}
    table = build("kernels", make_summary(make_processes(6), op_aggregates=_kernels(rows)))
    assert ("rank_min_ns" in table.columns) == (len(ranks) > 1)
    assert table["total_ns"].to_list() == sorted((sum(own) for own in values.values()), reverse=True)
    for row in table.iter_rows(named=True):
        own = values[row["name"]]
        assert (row["count"], row["median_ns"], row["max_ns"]) == (len(own), median(own), max(own))
        if len(ranks) > 1:
            totals = [of_rank[row["name"]].get(rank, 0) for rank in sorted(ranks)]
            spread = row["rank_min_ns"], row["rank_median_ns"], row["rank_max_ns"]
            assert spread == (min(totals), median(totals), max(totals))
            slowest = row["slowest_rank"]
            assert (slowest is None) == (max(totals) == 0)
            if slowest is not None:
                assert of_rank[row["name"]][int(slowest.removeprefix("rank "))] == max(totals)


def test_groups_stand_in_natural_order_and_the_unknown_last() -> None:
    rows: list[Row] = [(process, step, "a", [1]) for process, step in [(10, 10), (2, None), (0, -1), (1, 2)]]
    summary = make_summary(make_processes(12, stages=12), op_aggregates=_kernels(rows))
    assert build("kernels", summary, by="rank")["rank"].to_list() == ["rank 0", "rank 1", "rank 2", "rank 10"]
    assert build("kernels", summary, by="step")["step"].to_list() == [-1, 2, 10, None]
    assert build("kernels", summary, by="stage")["stage"].to_list() == [0, 1, 2, 10]
    assert rows_of(build("kernels", summary, by="device"), "machine", "gpu") == [
        ("node1", "GPU 0"),
        ("node1", "GPU 1"),
        ("node2", "GPU 0"),
        ("node6", "GPU 0"),
    ]
    unknown = make_summary(
        make_processes(2).with_columns(stage=pl.when(pl.col("process") > 0).then("stage")),
        op_aggregates=_kernels(rows[2:]),
    )
    assert build("kernels", unknown, by="stage")["stage"].to_list() == [0, None]
