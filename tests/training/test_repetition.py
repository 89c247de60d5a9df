"""Steps from the order of launches alone, against programs with known iterations, or with none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nsys_pp.arrays.search import find_rows
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES, PROJECTIONS
from nsys_pp.frames.training import JOBS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import NAMED_STEPS
from nsys_pp.training.repetition import RepeatedSteps, find_repeated_steps, order_launches
from nsys_pp.training.steps import find_steps
from tests.training.analysed_reports import read_events, simulate_reports
from tests.training.repeating_programs import Program, draw_program
from tests.training.test_jobs import complete
from tests.training.test_steps import true_steps

COUNT = 80  # random programs


def find_program_steps(program: Program) -> RepeatedSteps:
    """Find the steps of a program, each of whose launches is a call and an operation."""
    row = list(range(len(program.names)))
    times = program.launch_times()
    graphs = [7 if name.startswith("CUDA graph") else None for name in program.names]
    ops = {
        "op_id": row,
        "process_key": [1] * len(row),
        "device_id": [0] * len(row),
        "kind": ["memcpy" if name.startswith("Mem") else "kernel" for name in program.names],
        "name": program.names,
        "graph_id": graphs,
        "start_ns": (times + 2_000).tolist(),
        "end_ns": (times + 2_000 + np.array(program.busy, dtype=np.int64)).tolist(),
    }
    calls = {
        "process_key": [1] * len(row),
        "thread_key": [1] * len(row),
        "start_ns": times.tolist(),
        "end_ns": (times + 1_000).tolist(),
    }
    launches = pl.DataFrame({"op_id": row, "call_row": row}, schema=dict(LAUNCHES))
    return find_repeated_steps(
        complete(ops, GPU_OPS), api_calls=complete(calls, API_CALLS), launches=launches
    )


def is_right(program: Program, steps: RepeatedSteps) -> bool:
    """Return whether each whole step is in the true one after that of the one before, and few are missing."""
    true = np.array(program.begins)
    begin = find_rows(program.launch_times() + 2_000, steps.first[~steps.is_partial])
    if len(true) < 3:
        return False
    shifts = program.period * np.array([0, 0.1, -0.1, 0.3, -0.3])
    of = [np.searchsorted(true, begin + shift, side="right") for shift in shifts]
    follows = max((np.diff(index) == 1).mean() for index in of)
    least = min(0.8 * (len(true) - 1), len(true) - 2)
    return bool(follows >= 0.9 and least <= len(begin) <= 1.15 * len(true))


def test_steps_are_found_only_where_they_are_clear() -> None:
    programs = [draw_program(seed) for seed in range(1_000_000, 1_000_000 + COUNT)]
    judged = [(program, find_program_steps(program)) for program in programs if program.names]
    right = [is_right(program, steps) for program, steps in judged if len(steps.first)]
    assert np.mean(right) >= 0.95
    found = [len(steps.first) > 0 for program, steps in judged if program.iteration_count >= 4]
    assert np.mean(found) >= 0.3
    none = [steps for program, steps in judged if program.kind in ("layers", "noise", "solver")]
    assert len(none) > 20
    assert not any(len(steps.first) for steps in none)
    assert all(steps.reason for _, steps in judged)


def frames_of(
    rows: list[tuple[str, str, int | None, int, int]],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Build operations of (kind, name, graph, call, start), and their calls: call n starts at 10 n.

    -1: none.
    """
    kind, name, graph, call, start = (list(column) for column in zip(*rows, strict=True))
    row = list(range(len(rows)))
    ops = complete({"op_id": row, "kind": kind, "name": name, "graph_id": graph, "start_ns": start}, GPU_OPS)
    times = [10 * number for number in range(max(call) + 1)]
    calls = complete({"start_ns": times, "end_ns": [time + 5 for time in times]}, API_CALLS)
    known = [(op, number) for op, number in zip(row, call, strict=True) if number >= 0]
    launches = pl.DataFrame(known, schema=dict(LAUNCHES), orient="row")
    return ops, calls.with_columns(process_key=1, thread_key=1), launches


def test_a_graph_is_one_launch_and_launches_are_in_the_order_of_their_calls() -> None:
    ops, calls, launches = frames_of(
        [
            ("kernel", "late", None, 2, 5),
            ("kernel", "first of graph", 7, 1, 40),
            ("kernel", "second of graph", 7, 1, 50),
            ("memcpy", "Memcpy DtoH", None, 0, 60),
        ]
    )
    order = order_launches(ops, api_calls=calls, launches=launches)
    assert order.launch.tolist() == [0, 10, 20]
    assert order.start.tolist() == [60, 40, 5]
    assert order.is_loop[order.name].tolist() == [True, True, False]


def test_operations_without_calls_are_in_the_order_of_their_starts() -> None:
    ops, calls, launches = frames_of([("kernel", "b", None, -1, 20), ("kernel", "a", None, -1, 10)])
    assert order_launches(ops, api_calls=calls, launches=launches).start.tolist() == [10, 20]


@pytest.mark.parametrize(
    "options", ["--pp 1 --micro-batches 2 --steps 5", "--pp 1 --graphs node --steps 4 --layers 2"]
)
def test_steps_of_a_report_without_ranges_are_those_of_the_truth(options: str, tmp_path: Path) -> None:
    simulate_reports(tmp_path, options)
    clocks = pl.read_parquet(tmp_path / "truth" / "clocks.parquet")
    name, zero_ns = clocks.select("report", "capture_utc_ns").row(0)
    report = read_events(tmp_path / name)
    launches = match_launches(report.api_calls, report.gpu_ops)
    steps = find_steps(
        NAMED_STEPS.to_frame(),
        compute=PROJECTIONS.to_frame(),
        jobs=JOBS.to_frame(),
        launched_ops=LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches),
    )
    truth = true_steps(tmp_path)
    assert set(steps["source"]) == {"repetition"}
    assert steps["step"].to_list() == list(range(len(truth)))
    length = (truth["end_ns"] - truth["start_ns"]).median()
    assert isinstance(length, float)
    assert ((steps["start_ns"] + zero_ns - truth["start_ns"]).abs() <= 0.05 * length).all()
    assert f"repeat {len(truth)} times" in steps["reason"][0]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("zx3xyy__result_2_7B_compile", 10),  # ten graphs, each with three kernels before it
        ("hpcgroup__saxpy", 5),  # two copies in, a kernel, and a copy back
        ("zx3xyy__result_2_7B_nvtx", 0),  # four forwards of 32 layers
        ("Athrun0109__result", 0),  # five forwards of 12 layers, after the weights are made
        ("GindaChen__mfu_2gpu", 0),  # 17 blocks of one forward
        ("GindaChen__healthy", 0),  # two kernels in turn
        ("quasiben__cudf-groupby", 0),
        ("LeiWang1999__report1", 0),  # one inference
        ("caoye310__la", 0),  # one kernel, and a copy before each
    ],
)
def test_iterations_of_real_reports(name: str, count: int, shared_reports: list[Path]) -> None:
    path = next(path for path in shared_reports if path.name.startswith(name))
    report = read_events(path)
    steps = find_repeated_steps(
        report.gpu_ops.filter(pl.col("device_id") == pl.col("device_id").min()),
        api_calls=report.api_calls,
        launches=match_launches(report.api_calls, report.gpu_ops),
    )
    assert len(steps.first) == count
    assert steps.reason
