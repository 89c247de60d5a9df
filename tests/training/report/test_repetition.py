"""Iterations from the order of launches, against programs with known iterations, and their parts against plain loops."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.types import Bools
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES, PROJECTIONS
from nsys_pp.frames.training import JOBS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.report.iterations import Iterations, find_iterations
from nsys_pp.training.report.launch_order import order_launches
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.repeated_steps import find_repeated_steps
from nsys_pp.training.report.repetition import Launches, cut_at, list_candidates
from nsys_pp.training.report.steps import find_steps
from nsys_pp.training.report.vocabulary import NAMED_STEPS
from tests.training.analysed_reports import read_events, simulate_reports
from tests.training.report.repeating_programs import Program, draw_program
from tests.training.report.test_jobs import complete
from tests.training.report.test_steps import true_steps

COUNT = 80  # random programs


def build_launches(program: Program) -> Launches:
    names = ["CUDA graph" if name.startswith("CUDA graph") else name for name in program.names]
    distinct = sorted(set(names))

    def mark(pattern: str) -> Bools:
        return np.array([re.search(pattern, name) is not None for name in distinct])

    times = program.launch_times()
    return Launches(
        name=np.array([distinct.index(name) for name in names], dtype=np.int64),
        launch=times,
        launched=times + 1_000,
        start=times + 2_000,
        end=times + 2_000 + np.array(program.busy, dtype=np.int64),
        thread=np.zeros(len(names), dtype=np.int64),
        is_update=mark("multi_tensor|Adam"),
        is_backward=mark("bwd"),
        is_gradient=mark("bwd"),
        is_communication=mark("^nccl"),
        is_message=mark("SendRecv"),
        is_copy=mark("^Mem"),
        to_host=mark("DtoH"),
        is_input=mark("HtoD"),
        is_graph=mark("^CUDA graph"),
    )


def is_right(program: Program, found: Iterations) -> bool:
    """Return whether each whole iteration found is in the true one after that of the one before, and few are missing."""
    true, begin = np.array(program.begins), found.begin[found.is_whole]
    if len(true) < 3:
        return False
    shifts = program.period * np.array([0, 0.1, -0.1, 0.3, -0.3])
    of = [np.searchsorted(true, begin + shift, side="right") for shift in shifts]
    follows = max((np.diff(index) == 1).mean() for index in of)
    least = min(0.8 * (len(true) - 1), len(true) - 2)
    return bool(follows >= 0.9 and least <= len(begin) <= 1.15 * len(true))


@pytest.fixture(scope="module")
def judged() -> list[tuple[Program, Iterations | str]]:
    programs = [draw_program(seed) for seed in range(1_000_000, 1_000_000 + COUNT)]
    return [(program, find_iterations(build_launches(program))) for program in programs if program.names]


def test_iterations_that_are_found_are_right(judged: list[tuple[Program, Iterations | str]]) -> None:
    found = [(program, result) for program, result in judged if isinstance(result, Iterations)]
    right = [is_right(program, result) for program, result in found]
    assert np.mean(right) >= 0.9
    sure = [is_so for is_so, (_, result) in zip(right, found, strict=True) if result.confidence >= 0.95]
    assert len(sure) > 10
    assert np.mean(sure) >= 0.96


def test_most_programs_with_iterations_have_them_found(
    judged: list[tuple[Program, Iterations | str]],
) -> None:
    of = [isinstance(result, Iterations) for program, result in judged if program.iteration_count >= 4]
    assert np.mean(of) >= 0.6


def test_programs_without_iterations_have_none(judged: list[tuple[Program, Iterations | str]]) -> None:
    none = [
        isinstance(result, str) for program, result in judged if program.kind in ("layers", "noise", "solver")
    ]
    assert len(none) > 20
    assert all(none)


def test_devices_that_communicate_have_less_confidence(
    judged: list[tuple[Program, Iterations | str]],
) -> None:
    sure = [(program, result) for program, result in judged if isinstance(result, Iterations)]
    for program, result in sure:
        doubtful = find_iterations(build_launches(program), is_one_of_many=True)
        if isinstance(doubtful, str):
            assert result.confidence * 0.7 < 0.6
            assert doubtful == f"launches repeat, but with a confidence of {result.confidence * 0.7:.2f} only"
        else:
            assert doubtful.confidence == pytest.approx(0.7 * result.confidence)


@given(st.lists(st.integers(0, 4), min_size=8, max_size=40))
def test_segments_are_compared_as_in_plain_loops(names: list[int]) -> None:
    ones = [1] * len(names)
    program = Program("any", names=[f"kernel {name}" for name in names], pauses=ones, busy=ones)
    launches = build_launches(program)
    for begin in list_candidates(launches.name):
        cut = cut_at(launches, begin)
        segments = [launches.name[a:b].tolist() for a, b in pairwise(begin)]
        counts = [Counter(segment) for segment in segments]
        for name in range(len(launches.is_update)):
            usual = int(median(count[name] for count in counts))
            assert cut.median[name] == usual
            same = np.mean([abs(count[name] - usual) <= 0.02 * usual for count in counts])
            assert cut.is_constant[name] == (usual >= 1 and same >= 0.75)
        assert cut.size == int(median(len(segment) for segment in segments))


def frames_of(
    rows: list[tuple[str, str, int | None, int, int]],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Build operations of (kind, name, graph, call, start), and their calls: call n starts at 10 n; -1: none."""
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
    assert order.to_host[order.name].tolist() == [True, False, False]
    assert order.is_graph[order.name].tolist() == [False, True, False]


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
    assert (steps["confidence"] > 0.9 * 0.7).all()  # the device communicates


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("zx3xyy__result_2_7B_compile", 10),  # ten graphs, each with three kernels before it
        ("zx3xyy__result_2_7B_nvtx", 4),  # forwards of 32 layers: a warm-up, and three that are measured
        ("Athrun0109__result", 5),  # forwards of 12 layers, after the weights are made
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
