"""The sample that Paddle's Profiler documentation prints, computed again from its own sums (seeds.md, 3.12)."""

from __future__ import annotations

import pytest

import nsys_pp
from nsys_pp.frames.table import FilledTable
from nsys_pp.output.tables.text import ShownTable, arrange_table
from nsys_pp.tables.registry import PADDLE_TABLES
from tests.cli.calls import PIPELINE
from tests.tables.test_summary import build, make_summary

T = 1_859_104


def percent(fraction: float) -> float:
    return round(100 * fraction, 2)


def test_overview_has_the_ratios_of_the_sample() -> None:
    host = {"span": T, "cuda": 855_511, "operator": 188_311}
    summary = make_summary(
        host_times=[
            {"activity": name, "count": 1, "union_ns": time_ns, "total_ns": time_ns}
            for name, time_ns in host.items()
        ],
        gpu_times=[_gpu_times(kernel_ns=492_490, memcpy_ns=361_726, communication_ns=236_313)],
    )
    shown = {
        (side, activity): percent(share)
        for side, share, activity in build("overview", summary).select("side", "fraction", "activity").rows()
    }
    of_cpu = {("CPU", "span"): 100, ("CPU", "CUDA calls"): 46.02, ("CPU", "operators"): 10.13}
    of_gpu = {("GPU", "kernels"): 26.49, ("GPU", "copies"): 19.46, ("GPU", "communication"): 12.71}
    assert {of: shown[of] for of in of_cpu | of_gpu} == of_cpu | of_gpu


def test_others_of_the_model_are_what_the_phases_leave() -> None:
    phases = {  # name -> on the CPU, on the GPU
        "step": (T, 492_490),
        "data": (1_000, None),
        "forward": (60_000, 71_483),
        "backward": (101_056, 170_153),
        "optimizer": (10_000, 10_827),
    }
    # none lies inside another
    phases["jobs"] = (172_056, 71_483 + 170_153 + 10_827)
    assert T - phases["jobs"][0] == 1_687_048
    summary = make_summary(
        item_aggregates=[
            {"step": 1, "item": "phase", "measure": measure, "name": name}
            | {"values": [total // 4] * 3 + [total - 3 * (total // 4)]}  # four calls
            for name, sides in phases.items()
            for measure, total in zip(("host", "gpu"), sides, strict=True)
            if total is not None
        ]
    )
    table = build("model", summary)
    assert table["phase"].to_list() == [
        "step",
        "  data",
        "  forward",
        "  backward",
        "  optimizer",
        "  outside phases",
    ]
    others = table.row(-1, named=True)
    assert (others["host_total_ns"], others["gpu_total_ns"]) == (1_687_048, 240_027)
    assert percent(others["gpu_fraction"]) == 48.74
    assert [others[name] for name in ("count", "host_mean_ns", "gpu_max_ns")] == [None, None, None]
    step = table.row(0, named=True)
    assert (step["count"], step["gpu_total_ns"], step["gpu_fraction"]) == (4, 492_490, 1)


def test_operators_have_the_ratios_of_the_sample() -> None:
    rows = [  # name, inner, kernel, on the CPU, on the GPU
        ("matmul", None, None, 66_337, 162_987),
        ("matmul", "inner", None, 26_268, 66_118),
        ("matmul", "inner", "kernel", None, 19_935),
        ("add", None, None, 60_987, None),
        ("mul", None, None, 60_987, None),
    ]
    summary = make_summary(
        item_aggregates=[
            {"item": "operator", "measure": measure, "values": [value]}
            | {"name": name, "inner": inner, "kernel": kernel}
            for name, inner, kernel, *sides in rows
            for measure, value in zip(("host", "gpu"), sides, strict=True)
            if value is not None
        ]
    )
    table = build("operators", summary)
    assert table["name"].to_list() == ["matmul", "  inner", "    kernel", "add", "mul"]
    matmul, inner, kernel, *_ = table.iter_rows(named=True)
    assert percent(inner["host_fraction"]) == 39.60
    # The sample prints 40.57 % for 661.18 of 1629.87.
    assert percent(inner["gpu_fraction"]) == 40.57
    assert (kernel["host_total_ns"], kernel["host_fraction"]) == (None, None)
    assert percent(matmul["host_fraction"]) == percent(66_337 / 188_311)


@pytest.mark.parametrize("has_steps", [True, False])
def test_distribution_as_paddle_counts_is_of_the_steps_on_the_cpu(has_steps: bool) -> None:
    times = _gpu_times(
        span_ns=T + 5,
        compute_ns=256_177,
        any_communication_ns=300_000,
        any_overlap_ns=40_000,
        communication_ns=236_313,
    )
    spans = [{"step": 1 if has_steps else None, "activity": "span", "count": 1, "union_ns": T, "total_ns": T}]
    if has_steps:
        spans.append({"step": None, "activity": "span", "count": 1, "union_ns": 7, "total_ns": 7})
    table = build("distribution", make_summary(gpu_times=[times], host_times=spans), paddle_compat=True)
    assert table.select("part", "time_ns").rows() == [
        ("ProfileStep", T),
        ("Communication", 300_000),
        ("Computation", 256_177),
        ("Overlap", 40_000),
    ]
    assert table["fraction"].to_list() == [1, 300_000 / T, 256_177 / T, 40_000 / T]


def _gpu_times(**times: int) -> dict[str, int]:
    names = (
        "busy_ns",
        "kernel_ns",
        "compute_ns",
        "communication_ns",
        "overlap_ns",
        "memcpy_ns",
        "memset_ns",
        "memory_ns",
    )
    more = ("any_communication_ns", "any_overlap_ns")
    return {"span_ns": T, **dict.fromkeys((*names, *more), 0), **times}


CELL = "Total / Avg / Max / Min / Ratio(%)"


HEADINGS = {
    "device": ("Device Summary", ["Device", "Utilization (%)"]),
    "overview": ("Overview Summary", ["Side", "Event Type", "Calls", "Time", "Ratio (%)"]),
    "model": ("Model Summary", ["Name", "Calls", f"CPU {CELL}", f"GPU {CELL}"]),
    "distribution": ("Distribution Summary", ["Name", "Total Time", "Ratio (%)"]),
    "operators": ("Operator Summary", []),  # the fixtures have none
    "kernels": ("Kernel Summary", ["Name", "Calls", f"GPU {CELL}"]),
    "copies": ("Memory Manipulation Summary", ["Name", "Calls", f"CPU {CELL}", f"GPU {CELL}"]),
    "ranges": ("UserDefined Summary", ["Name", "Calls", f"CPU {CELL}", f"GPU {CELL}"]),
    "memory": ("Memory Summary", []),
}


@pytest.fixture(scope="module")
def summary() -> nsys_pp.SummaryResult:
    return nsys_pp.summary([PIPELINE], paddle_compat=True)


def shown(summary: nsys_pp.SummaryResult, name: str) -> ShownTable:
    return arrange_table(FilledTable(table=PADDLE_TABLES[name], frame=summary.tables[name]))


def rows_of(table: ShownTable) -> list[tuple[str, ...]]:
    rows = zip(*(column.texts for column in table.columns), strict=True)
    return [row for row, kind in zip(rows, table.kinds, strict=True) if kind == "row"]


@pytest.mark.parametrize("name", HEADINGS)
def test_titles_and_columns_are_those_of_paddle(summary: nsys_pp.SummaryResult, name: str) -> None:
    title, headings = HEADINGS[name]
    assert PADDLE_TABLES[name].title == title
    if name in summary.tables and headings:
        assert [column.heading for column in shown(summary, name).columns] == headings


def test_a_cell_holds_five_values_with_two_decimals(summary: nsys_pp.SummaryResult) -> None:
    for row, (name, calls, cell) in zip(
        summary.tables["kernels"].iter_rows(named=True), rows_of(shown(summary, "kernels")), strict=True
    ):
        times = (row["total_ns"], row["mean_ns"], row["max_ns"], row["min_ns"])
        values = [float(value) for value in cell.split(" / ")]
        assert values == [
            *(pytest.approx(time / 1e6, abs=0.00501) for time in times),
            pytest.approx(100 * row["fraction"], abs=0.00501),
        ]
        assert all(len(value.partition(".")[2]) == 2 for value in cell.split(" / "))
        assert int(calls.replace(",", "")) == row["count"]
        assert len(name) <= 90


def test_phases_have_names_of_paddle_and_are_indented(summary: nsys_pp.SummaryResult) -> None:
    names = [row[0] for row in rows_of(shown(summary, "model"))]
    assert names[0] == "ProfileStep"
    assert set(names[1:]) >= {"  Forward", "  Backward", "  Optimization", "  Others"}
    (others,) = (row for row in rows_of(shown(summary, "model")) if row[0] == "  Others")
    total, *rest = others[-1].split(" / ")
    assert float(total) >= 0
    assert rest[:3] == ["-", "-", "-"]


def test_each_gpu_has_a_row_for_its_process(summary: nsys_pp.SummaryResult) -> None:
    rows = rows_of(shown(summary, "device"))
    assert len(rows) == 2 * len(summary.tables["device"])
    for (process, _), (gpu, ratio), row in zip(
        rows[::2], rows[1::2], summary.tables["device"].iter_rows(named=True), strict=True
    ):
        assert (process, gpu) == (f"CPU(Process) of {row['label']}", f"GPU of {row['label']}")
        assert float(ratio) == pytest.approx(100 * row["kernel_fraction"], abs=0.00501)
