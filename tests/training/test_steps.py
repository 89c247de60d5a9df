"""Steps of simulated reports against their truth, and odd cases on small frames."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES, PROJECTIONS
from nsys_pp.frames.training import JOBS, STEPS
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import NAMED_STEPS
from nsys_pp.training.steps import StepHosts, StepOps, find_step_edges, find_steps
from tests.training.analysed_reports import APART, AnalysedReport, analyse_reports, simulate_reports
from tests.training.test_jobs import complete


def true_steps(folder: Path) -> pl.DataFrame:
    steps = pl.read_parquet(folder / "truth" / "steps.parquet")
    return steps.select("rank", "step", "start_ns", "end_ns").sort("rank", "step")


def steps_of(found: list[AnalysedReport]) -> pl.DataFrame:
    return pl.concat([one.steps for one in found]).sort("rank", "start_ns")


@pytest.mark.parametrize("names", ["plain", "megatron", "zero-bubble", "deepspeed"])
def test_steps_are_those_of_the_truth(names: str, tmp_path: Path) -> None:
    simulate_reports(tmp_path, f"--schedule 1f1b --steps 3 --names {names}")
    steps, truth = steps_of(list(analyse_reports(tmp_path))), true_steps(tmp_path)
    is_numbered = names != "deepspeed"
    assert (steps["is_numbered"] == is_numbered).all()
    counted = steps if is_numbered else steps.with_columns(pl.col("step") + 10)
    assert counted.select(truth.columns).equals(truth)
    assert not steps["is_partial"].any()
    assert set(steps["source"]) == {"range"}
    assert (steps["host_start_ns"] < steps["host_end_ns"]).all()


@pytest.mark.parametrize(
    "options",
    [
        "--schedule gpipe --tp 2 --autograd part --layers 2",
        "--schedule interleaved --graphs node --free-running",
        f"--schedule dualpipev --visible {APART}",
        "--schedule zb-h1 --stall 11=8 --host-bound 10=3 --sharded-optimizer --dp 2",
    ],
)
def test_steps_of_every_schedule_are_those_of_the_truth(options: str, tmp_path: Path) -> None:
    simulate_reports(tmp_path, options)
    steps, truth = steps_of(list(analyse_reports(tmp_path))), true_steps(tmp_path)
    assert steps.select(truth.columns).equals(truth)


@pytest.mark.parametrize(
    "options",
    [
        "--schedule interleaved --names plain",  # micro-batches of several chunks
        "--schedule dualpipev --names torch",  # of virtual stages, in overlapped jobs
        "--schedule 1f1b --names msprof",
        "--schedule zb-h1 --names paddle",  # no numbers: a forward after an optimizer
        "--schedule 1f1b --names deepspeed",
    ],
)
def test_without_ranges_jobs_tell_the_steps(options: str, tmp_path: Path) -> None:
    simulate_reports(tmp_path, f"--steps 3 {options}")
    found = list(analyse_reports(tmp_path, with_steps=False))
    steps, truth = steps_of(found), true_steps(tmp_path)
    counted = steps.with_columns(pl.col("step") + 10)
    assert counted.select("rank", "step").equals(truth.select("rank", "step"))
    for name in ("start_ns", "end_ns"):  # the host is between steps for 0.3 to 0.4 ms
        assert (counted[name] - truth[name]).abs().max() < 500_000  # type: ignore[operator]
    assert set(steps["source"]) == {"jobs"}
    assert not steps["is_numbered"].any()
    assert not steps["is_partial"].any()
    jobs = pl.concat([one.jobs for one in found]).filter(kind="receive")
    assert jobs["step"].is_not_null().all()
    assert jobs.group_by("rank", "step").len()["len"].n_unique() == 1  # the same number in every step


def test_a_single_step_without_a_range_is_the_whole_capture(tmp_path: Path) -> None:
    simulate_reports(tmp_path, f"--steps 1 --names paddle {APART}")
    for found in analyse_reports(tmp_path, with_steps=False):
        assert found.steps.select("step", "source", "is_partial").rows() == [(0, "capture", False)]
        kernels = found.report.gpu_ops.filter(pl.col("kind") == "kernel", ~pl.col("is_communication"))
        (span,) = (found.steps["end_ns"] - found.steps["start_ns"]).to_list()
        assert span == kernels["end_ns"].max() - kernels["start_ns"].min()  # type: ignore[operator]
        assert (found.jobs["step"] == 0).all()


@pytest.mark.parametrize("seed", range(2))
def test_captures_that_begin_or_end_inside_a_step_mark_it(seed: int, tmp_path: Path) -> None:
    simulate_reports(tmp_path, f"--schedule 1f1b --steps 4 --window-ms 25 --seed {seed} {APART}")
    truth, clocks = true_steps(tmp_path), pl.read_parquet(tmp_path / "truth" / "clocks.parquet")
    ranges = pl.read_parquet(tmp_path / "truth" / "jobs.parquet")
    for found in analyse_reports(tmp_path):
        begin, duration = clocks.filter(report=found.name).select("capture_utc_ns", "duration_ns").row(0)
        both = found.steps.join(truth, on=["rank", "step"], suffix="_true").sort("step")
        assert both["step"].to_list() == list(range(10, 14))
        is_cut = (both["start_ns_true"] < begin) | (both["end_ns_true"] > begin + duration)
        assert (
            both.filter(~is_cut).select("start_ns", "end_ns").rows()
            == both.filter(~is_cut).select("start_ns_true", "end_ns_true").rows()
        )
        jobs = ranges.filter(pl.col("report") == found.name, ~pl.col("is_part"))
        loses = jobs.group_by("step").agg(lost=~pl.col("is_recorded").all()).sort("step")["lost"]
        # a capture may also begin between the start of a step on the CPU and that on the GPU
        is_shown = both["host_start_ns"].is_not_null() & (both["host_end_ns"] < duration)
        assert both["is_partial"].equals((is_cut | loses | ~is_shown).alias("is_partial"))
        # inner edges are true, and every job that is there has the step that it truly has
        assert both["end_ns"][:-1].equals(both["end_ns_true"].alias("end_ns")[:-1])
        work = found.jobs.filter(pl.col("kind").is_in(["forward", "backward"]))
        true = jobs.select("step", pl.col("kind"), "micro_batch", start_ns="start_ns")
        placed = work.with_columns(pl.col("kind").cast(pl.String)).join(
            true,
            left_on=["kind", "micro_batch", "compute_start_ns"],
            right_on=["kind", "micro_batch", "start_ns"],
        )
        assert placed["step"].equals(placed["step_right"].alias("step"))
        assert len(placed) >= 0.9 * len(work)


NOTHING = {"api_calls": API_CALLS.to_frame(), "launches": LAUNCHES.to_frame()}


def kernels(*spans: tuple[int, int]) -> pl.DataFrame:
    """Make kernels of one stream."""
    count = len(spans)
    return complete(
        {
            "op_id": range(count),
            "kind": ["kernel"] * count,
            "process_key": [1] * count,
            "device_id": [0] * count,
            "context_id": [1] * count,
            "stream_id": [7] * count,
            "start_ns": [start for start, _ in spans],
            "end_ns": [end for _, end in spans],
            "is_communication": [False] * count,
        },
        GPU_OPS,
    )


def step_ranges(*rows: tuple[int, int, int | None, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make step ranges of (host start, host end, number, first kernel), and their projections."""
    count = len(rows)
    named = complete(
        {
            "range_id": range(count),
            "process_key": [1] * count,
            "thread_key": [1] * count,
            "start_ns": [row[0] for row in rows],
            "end_ns": [row[1] for row in rows],
            "is_open": [False] * count,
            "step": [row[2] for row in rows],
        },
        NAMED_STEPS,
    )
    placed = complete(
        {"range_id": range(count), "device_id": [0] * count, "gpu_start_ns": [row[3] for row in rows]},
        PROJECTIONS,
    )
    return named, placed


def found_steps(*rows: tuple[int, int, int | None, int]) -> list[tuple[object, ...]]:
    named, placed = step_ranges(*rows)
    ops = kernels(*((row[3], row[3] + 50) for row in rows))
    steps = find_steps(
        named, compute=placed, jobs=JOBS.to_frame(), launched_ops=LaunchedOps(gpu_ops=ops, **NOTHING)
    )
    assert steps.schema == STEPS
    return steps.select("step", "is_numbered", "start_ns", "end_ns").rows()


def test_steps_last_until_the_next_one_begins() -> None:
    assert found_steps((0, 100, 3, 20), (100, 200, 4, 120)) == [(3, True, 0, 100), (4, True, 100, 200)]


def test_the_same_step_once_more_is_left_out() -> None:
    nested = (0, 100, 3, 20), (10, 90, 0, 25), (100, 200, 4, 120)
    assert found_steps(*nested) == [(3, True, 0, 100), (4, True, 100, 200)]
    other_thread = (0, 100, 3, 20), (1, 101, 3, 20), (102, 200, 4, 120), (103, 210, 4, 125)
    assert [row[:3] for row in found_steps(*other_thread)] == [(3, True, 0), (4, True, 102)]


def test_numbers_that_come_twice_are_not_taken() -> None:
    rows = (0, 100, 0, 20), (100, 200, 1, 120), (200, 300, 0, 220), (300, 400, 1, 320)
    assert [row[:2] for row in found_steps(*rows)] == [(0, False), (1, False), (2, False), (3, False)]


def test_steps_without_numbers_are_counted() -> None:
    rows = (0, 100, None, 20), (100, 200, None, 120)
    assert [row[:2] for row in found_steps(*rows)] == [(0, False), (1, False)]


def test_a_step_that_computes_nothing_has_no_row() -> None:
    named, placed = step_ranges((0, 100, 3, 20), (100, 200, 4, 120))
    ops = kernels((20, 70))
    steps = find_steps(
        named, compute=placed[:1], jobs=JOBS.to_frame(), launched_ops=LaunchedOps(gpu_ops=ops, **NOTHING)
    )
    assert steps.select("step", "start_ns", "end_ns").rows() == [(3, 0, 100)]


def test_kernels_after_the_last_step_do_not_belong_to_it() -> None:
    named, placed = step_ranges((0, 100, 3, 20))
    ops = kernels((20, 70), (300, 400))
    steps = find_steps(
        named, compute=placed, jobs=JOBS.to_frame(), launched_ops=LaunchedOps(gpu_ops=ops, **NOTHING)
    )
    assert steps["end_ns"].to_list() == [100]


def test_a_report_without_kernels_has_no_steps() -> None:
    steps = find_steps(
        NAMED_STEPS.to_frame(),
        compute=PROJECTIONS.to_frame(),
        jobs=JOBS.to_frame(),
        launched_ops=LaunchedOps(gpu_ops=GPU_OPS.to_frame(), **NOTHING),
    )
    assert steps.schema == STEPS
    assert steps.is_empty()


def test_the_first_step_is_partial_where_only_computation_tells_the_steps(tmp_path: Path) -> None:
    """Later stages wait before their first forward, and nothing says how long."""
    simulate_reports(tmp_path / "run", "--steps 3 --schedule 1f1b --names plain")
    rules = tmp_path / "rules.toml"
    kinds = ("forward", "backward")
    patterns = (f"[[job]]\nkind = '{kind}'\npattern = '^{kind}_(?<micro_batch>[0-9]+)'\n" for kind in kinds)
    rules.write_text("title = 'computation'\n" + "".join(patterns))
    found = analyse_reports(tmp_path / "run", preset=str(rules), with_steps=False)
    steps = steps_of(list(found))
    assert set(steps["source"]) == {"jobs"}
    assert steps.filter("is_partial").select("rank", "step").rows() == [(0, 0), (1, 0)]
    assert steps.group_by("rank").len()["len"].to_list() == [3, 3]


LATE = 50_000


@dataclass(frozen=True, slots=True)
class Op:
    launch: int
    start: int
    end: int
    kind: str  # "kernel", "set", "communication", "aside"


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    begin: int
    end: int


def find(steps: list[Step], ops: list[Op]) -> list[tuple[int, int]]:
    hosts = StepHosts(
        device=np.zeros(len(steps), np.int64),
        number=np.array([step.number for step in steps]),
        first=np.array(
            [
                min(op.start for op in ops if op.kind == "kernel" and of(op, steps) == n)
                for n in range(len(steps))
            ]
        ),
        begin=np.array([step.begin for step in steps]),
        end=np.array([step.end for step in steps]),
        is_open=np.zeros(len(steps), np.bool_),
        is_capture=np.zeros(len(steps), np.bool_),
        has_end=np.ones(len(steps), np.bool_),
    )  # fmt: skip
    kinds = np.array([op.kind for op in ops])
    edges = find_step_edges(
        hosts,
        StepOps(
            device=np.zeros(len(ops), np.int64),
            start=np.array([op.start for op in ops]),
            end=np.array([op.end for op in ops]),
            launch=np.array([op.launch for op in ops]),
            launched=np.array([op.launch + 1 for op in ops]),
            is_kernel=kinds == "kernel",
            is_communication=kinds == "communication",
            is_aside=kinds == "aside",
        ),
    )
    return list(zip(edges.start.tolist(), edges.end.tolist(), strict=True))


def of(op: Op, steps: list[Step]) -> int | None:
    """Return the step in which an operation was launched; None between steps."""
    return next((n for n, step in enumerate(steps) if step.begin <= op.launch <= step.end), None)


def defined(steps: list[Step], ops: list[Op]) -> list[tuple[int, int]]:
    first = [
        min(op.start for op in ops if op.kind in ("kernel", "set") and of(op, steps) == number)
        for number in range(len(steps))
    ]
    starts, ends = [], []
    for number, step in enumerate(steps):
        launched = [op for op in ops if op.launch < step.begin and op.kind != "aside"]
        before = [op.end for op in launched if op.end <= first[number]]
        starts.append(min(max([step.begin, *before]), first[number]))
        until = first[number + 1] if number + 1 < len(steps) else 10**9
        own = [op.end for op in ops if of(op, steps) == number and op.kind != "aside"]
        ends.append(max([step.end, *(end for end in own if end <= until)]))
    for number, (step, following) in enumerate(pairwise(steps)):
        is_followed = not any(step.end < op.launch < following.begin for op in ops)
        is_followed &= following.number == step.number + 1
        ends[number] = starts[number + 1] if is_followed else min(ends[number], starts[number + 1])
    return list(zip(starts, ends, strict=True))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Step], list[Op]]:
    """Draw steps on the host and their operations: kernels and sets in order, others at any time."""
    steps: list[Step] = []
    ops: list[Op] = []
    lengths = st.integers(1, 40)
    now, free = draw(st.integers(0, 20)), 0
    for number in draw(st.lists(st.integers(3, 5), min_size=1, max_size=3).map(sorted)):
        begin = now
        others = st.lists(st.sampled_from(["kernel", "set", "communication", "aside"]), max_size=5)
        for kind in draw(st.permutations(["kernel", *draw(others)])):
            launch = now = now + draw(lengths)
            is_own = kind in ("kernel", "set")
            start = max(launch + 1, free) if is_own else launch + draw(lengths)
            end = start + draw(lengths)
            free = end if is_own else free
            ops.append(Op(launch, start, end, kind))
        end = now + draw(lengths)
        steps.append(Step(number, begin, end))
        now = end + draw(st.integers(0, 30))
        if draw(st.booleans()):  # something between steps
            launch = now = now + draw(lengths)
            start = max(launch + 1, free)
            free = start + draw(lengths)
            ops.append(Op(launch, start, free, draw(st.sampled_from(["kernel", "set", "aside"]))))
            now += draw(lengths)
    ops.append(Op(now + 1, max(free, now + 1), max(free, now + 1) + 5, "set"))  # after the last range
    return steps, ops


@settings(deadline=None, max_examples=300)
@given(runs())
def test_steps_are_cut_by_their_definition(drawn: tuple[list[Step], list[Op]]) -> None:
    steps, ops = drawn
    found = find(steps, ops)
    assert found == defined(steps, ops)
    assert all(end <= start for (_, end), (start, _) in pairwise(found))


def test_a_device_that_is_busy_with_unrecorded_work_cuts_its_first_step() -> None:
    steps = [Step(3, 1_000, 5_000)]
    late = Op(2_000, 900_000, 950_000, "kernel")
    assert find(steps, [late]) == [(900_000, 950_000)]
    message = Op(2_000, 3_000, 900_000 - LATE, "communication")
    assert find(steps, [late, message]) == [(1_000, 950_000)]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("lag", [0, 2])
def test_steps_whose_kernels_run_after_the_capture_are_partial(seed: int, lag: int, tmp_path: Path) -> None:
    """Their ranges may have ended: hosts run ahead by some steps."""
    options = (
        f"--schedule 1f1b --steps 4 --window-ms 20 --vary-micro-batches 0.5 --lag-steps {lag} --seed {seed}"
    )
    simulate_reports(tmp_path, f"{options} {APART}")
    truth = pl.read_parquet(tmp_path / "truth" / "steps.parquet")
    is_recorded = truth.select("rank", "step", "is_recorded")
    for found in analyse_reports(tmp_path):
        both = found.steps.join(is_recorded, on=["rank", "step"]).drop_nulls("host_start_ns")
        assert len(both) >= 2
        assert both["is_partial"].to_list() == both["is_recorded"].not_().to_list()
