"""Phases of iterations against random programs with known phases, and their times against plain loops."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES
from nsys_pp.frames.training import PHASE_KINDS, PHASES, STEPS
from nsys_pp.training.report.inferred_phases import find_inferred_phases
from nsys_pp.training.report.iteration_phases import find_iteration_phases
from nsys_pp.training.report.iterations import Iterations, find_iterations
from nsys_pp.training.report.launch_order import order_operations
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.phase_spans import IterationPhases, Spans, keep_regular, number_iterations
from nsys_pp.training.report.repetition import Launches
from tests.training.report.phase_programs import AUTOGRAD, MAIN, PhasedProgram, draw_phased_program
from tests.training.report.test_jobs import complete

COUNT = 70  # random programs
FIRST = 3_000_000
MEANINGS = ("forward", "backward", "optimizer")

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


def frames_of(program: PhasedProgram) -> Frames:
    """Build the operations of a program, their calls, and the launches."""
    times = np.cumsum(np.array(program.pauses, dtype=np.int64))
    row = np.arange(len(times))
    ops = complete(
        {
            "op_id": row.tolist(),
            "process_key": [1] * len(row),
            "device_id": [0] * len(row),
            "kind": ["memcpy" if name.startswith("Mem") else "kernel" for name in program.names],
            "name": program.names,
            "is_communication": [name.startswith("nccl") for name in program.names],
            "start_ns": (times + 2_000).tolist(),
            "end_ns": (times + 2_000 + np.array(program.busy, dtype=np.int64)).tolist(),
        },
        GPU_OPS,
    )
    calls = complete(
        {
            "process_key": [1] * len(row),
            "thread_key": program.threads,
            "start_ns": times.tolist(),
            "end_ns": (times + 1_000).tolist(),
        },
        API_CALLS,
    )
    return ops, calls, pl.DataFrame({"op_id": row, "call_row": row}, schema=dict(LAUNCHES))


def build_launches(program: PhasedProgram) -> Launches:
    ops, calls, launches = frames_of(program)
    return order_operations(ops, api_calls=calls, launches=launches)[0]


def label(phases: IterationPhases, count: int) -> list[str]:
    """Name the phase of each launch; "" without one."""
    labels = [""] * count
    spans = phases.spans
    for first, last, kind in zip(spans.first, spans.last, spans.kind, strict=True):
        for row in range(first, last):
            assert labels[row] == ""
            labels[row] = PHASE_KINDS[kind]
    return labels


@pytest.fixture(scope="module")
def judged() -> list[tuple[PhasedProgram, Iterations, IterationPhases | str]]:
    results = []
    for seed in range(FIRST, FIRST + COUNT):
        program = draw_phased_program(seed)
        launches = build_launches(program)
        found = find_iterations(launches)
        if isinstance(found, Iterations):
            results.append((program, found, find_iteration_phases(launches, found.begin, found.end)))
    return results


def test_meanings_are_right(judged: list[tuple[PhasedProgram, Iterations, IterationPhases | str]]) -> None:
    right, total, trainings = 0, 0, 0
    for program, _, phases in judged:
        if isinstance(phases, IterationPhases):
            labels = label(phases, len(program.names))
            pairs = [pair for pair in zip(labels, program.phases, strict=True) if pair[0] in MEANINGS]
            right, total = right + sum(own == true for own, true in pairs), total + len(pairs)
            trainings += bool(pairs)
    assert trainings > 20
    assert right / total >= 0.985


def test_many_launches_have_a_meaning(
    judged: list[tuple[PhasedProgram, Iterations, IterationPhases | str]],
) -> None:
    named, total = 0, 0
    for program, found, phases in judged:
        labels = (
            label(phases, len(program.names))
            if isinstance(phases, IterationPhases)
            else [""] * len(program.names)
        )
        inside = number_iterations(found.begin, found.end, len(labels)) >= 0
        true = np.isin(program.phases, MEANINGS) & inside
        named, total = named + int((true & np.isin(labels, MEANINGS)).sum()), total + int(true.sum())
    assert named / total >= 0.4


def test_inference_and_solvers_have_no_backward(
    judged: list[tuple[PhasedProgram, Iterations, IterationPhases | str]],
) -> None:
    others = [phases for program, _, phases in judged if program.kind in ("serving", "solver")]
    assert len(others) > 15
    for phases in others:
        assert isinstance(phases, str) or set(phases.spans.kind) == {PHASE_KINDS.index("segment")}


def build_program(
    blocks: list[tuple[str, int, list[str]]], *, times: int = 5, pause: int = 5_000
) -> PhasedProgram:
    """Build a program that repeats blocks of (phase, thread, names)."""
    program = PhasedProgram("test")
    for step in range(times):
        for phase, thread, names in blocks:
            count = len(names)
            program.names += names
            program.threads += [thread] * count
            program.phases += [phase] * count
            program.pauses += [pause] * count
            program.busy += [3_000] * count
            program.iterations += [step] * count
    return program


def find(program: PhasedProgram) -> IterationPhases | str:
    size = program.iterations.count(0)
    begin = np.arange(0, len(program.names), size)
    return find_iteration_phases(build_launches(program), begin, begin + size)


LAYERS = ["gemm", "gelu", "norm"] * 4
BACKS = ["gemm", "gelu_backward", "gemm"] * 4
ADAM = ["multi_tensor_apply_kernel"] * 4


def test_micro_batches_have_a_forward_and_a_backward_each() -> None:
    halves = [("other", MAIN, ["Memcpy HtoD"]), ("forward", MAIN, LAYERS), ("backward", AUTOGRAD, BACKS)]
    program = build_program(
        [*halves, *halves, ("optimizer", MAIN, ["norm", *ADAM]), ("other", MAIN, ["log"])]
    )
    phases = find(program)
    assert isinstance(phases, IterationPhases)
    assert label(phases, len(program.names)) == [name.replace("other", "") for name in program.phases]
    assert [PHASE_KINDS[kind] for kind in phases.spans.kind[:5]] == [
        *("forward", "backward", "forward", "backward", "optimizer")
    ]


def test_recomputed_layers_and_gradients_of_all_ranks_are_of_the_backward() -> None:
    backs = [name for _ in range(4) for name in (*LAYERS[:3], *BACKS[:3], "ncclDevKernel_AllReduce")]
    blocks = [("forward", MAIN, LAYERS), ("backward", AUTOGRAD, backs), ("optimizer", MAIN, ADAM)]
    program = build_program(blocks)
    phases = find(program)
    assert isinstance(phases, IterationPhases)
    assert label(phases, len(program.names)) == program.phases


def test_by_names_the_launches_around_a_backward_are_in_no_phase() -> None:
    program = build_program(
        [("forward", MAIN, [*LAYERS * 3, "loss"]), ("backward", MAIN, BACKS * 3), ("optimizer", MAIN, ADAM)]
    )
    phases = find(program)
    assert isinstance(phases, IterationPhases)
    labels = label(phases, len(program.names))
    assert {own for own, true in zip(labels, program.phases, strict=True) if own not in ("", true)} == set()
    assert {"forward", "backward", "optimizer", ""} == set(labels)


def test_threads_without_names_separate_segments() -> None:
    program = build_program([("other", MAIN, LAYERS), ("other", AUTOGRAD, ["sample", "sort", "copy"])])
    phases = find(program)
    assert isinstance(phases, IterationPhases)
    assert set(label(phases, len(program.names))) == {"segment"}
    assert len(phases.spans.first) == 10


def test_pauses_separate_segments() -> None:
    program = build_program([("other", MAIN, LAYERS), ("other", MAIN, ["exchange", "norm", "update"])])
    for row in range(12, len(program.names), 15):
        program.pauses[row] = 300_000
    phases = find(program)
    assert isinstance(phases, IterationPhases)
    assert phases.spans.first.tolist() == [row + at for row in range(0, 75, 15) for at in (0, 12)]
    assert phases.reason == "the host pauses at the same launches"


def test_a_graph_has_no_phases() -> None:
    assert isinstance(find(build_program([("other", MAIN, ["CUDA graph 1"])])), str)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30), st.integers(1, 31))
def test_launches_are_numbered_as_in_plain_loops(lengths: list[tuple[int, int]], count: int) -> None:
    ends = list(accumulate(sum(pair) for pair in lengths))
    begin = [end - sum(pair) for pair, end in zip(lengths, ends, strict=True)]
    end = [first + own for first, (own, _) in zip(begin, lengths, strict=True)]
    kept = [row for row in range(len(begin)) if begin[row] < end[row]]
    begin, end = [begin[row] for row in kept], [end[row] for row in kept]
    expected = [next((n for n in range(len(begin)) if begin[n] <= row < end[n]), -1) for row in range(count)]
    numbered = number_iterations(np.array(begin, dtype=np.int64), np.array(end, dtype=np.int64), count)
    assert numbered.tolist() == expected


def test_iterations_with_other_phases_have_none() -> None:
    spans = Spans(
        iteration=np.repeat(np.arange(8), 2),
        first=np.arange(0, 160, 10),
        last=np.arange(0, 160, 10) + 8,
        kind=np.array([0, 1] * 7 + [1, 0]),
    )
    kept, share = keep_regular(spans, 8)
    assert kept.iteration.tolist() == np.repeat(np.arange(7), 2).tolist()
    assert share == 7 / 8
    assert keep_regular(spans, 12)[1] == 0


def test_phases_have_the_times_of_their_operations() -> None:
    blocks = [("forward", MAIN, LAYERS), ("backward", AUTOGRAD, BACKS), ("optimizer", MAIN, ADAM)]
    program = build_program(blocks, times=4)
    program.busy = [1_000 + 997 * row % 12_000 for row in range(len(program.busy))]
    ops, calls, launches = frames_of(program)
    size = program.iterations.count(0)
    starts, ends = calls["start_ns"][::size].to_list(), calls["end_ns"][size - 1 :: size].to_list()
    steps = complete(
        {
            "process_key": [1] * 4,
            "device_id": [0] * 4,
            "step": list(range(4)),
            "source": ["repetition"] * 4,
            "host_start_ns": starts,
            "host_end_ns": ends,
        },
        STEPS,
    )
    launched = LaunchedOps(gpu_ops=ops, api_calls=calls, launches=launches)
    phases = find_inferred_phases(steps, launched)
    assert dict(phases.schema) == dict(PHASES)
    assert phases["kind"].to_list() == [phase for phase, _, _ in blocks] * 4
    assert phases["number"].to_list() == [0, 1, 2] * 4
    assert set(phases["index"]) == {0}
    for row in phases.iter_rows(named=True):
        at = [
            n
            for n in range(len(program.names))
            if (program.iterations[n], program.phases[n]) == (row["step"], row["kind"])
        ]
        spans = [(ops["start_ns"][n], ops["end_ns"][n]) for n in at]
        covered = {nanosecond for start, end in spans for nanosecond in range(start, end)}
        assert (row["start_ns"], row["end_ns"]) == (min(covered), max(covered) + 1)
        assert (row["busy_ns"], row["op_count"]) == (len(covered), len(at))
    named = steps.with_columns(source=pl.lit("range", STEPS["source"]))
    assert find_inferred_phases(named, launched).is_empty()
