"""Random programs that repeat: sequences of launches with known iterations, or with none.

Names are of this program, except those of copies, collectives and optimizers, which are sometimes those of
real libraries."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.search import find_rows
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES, PROJECTIONS
from nsys_pp.frames.training import JOBS, STEPS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import NAMED_STEPS
from nsys_pp.training.steps import (
    RepeatedSteps,
    StepHosts,
    StepOps,
    find_repeated_steps,
    find_step_edges,
    find_steps,
)
from tests.training.expected_training import (
    APART,
    AnalysedReport,
    analyse_reports,
    read_events,
    simulate_reports,
)
from tests.training.test_jobs import complete

Names = list[str]


MILLISECOND = 1_000_000


@dataclass
class Program:
    """Launches of one device, in order, with the truth.

    `begins` are positions of the first launch of each whole iteration of the host's loop, then the end of the
    last one.
    """

    kind: str
    names: Names = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)  # of the host before each launch
    busy: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    period: float = 0  # launches from one iteration to the next

    @property
    def iteration_count(self) -> int:
        """Number of whole iterations."""
        return max(len(self.begins) - 1, 0)

    def launch_times(self) -> npt.NDArray[np.int64]:
        """Compute the time of each launch."""
        return np.cumsum(np.array(self.pauses, dtype=np.int64))

    def keep(self, first: int, last: int) -> None:
        """Keep the launches of [first, last)."""
        self.names, self.pauses, self.busy = (
            self.names[first:last],
            self.pauses[first:last],
            self.busy[first:last],
        )
        self.begins = [begin - first for begin in self.begins if first <= begin <= last]


class _Host:
    """Host that launches the kernels of a program; some are left out or added."""

    def __init__(self, program: Program, random: Random, noise: float) -> None:
        self.program, self.random, self.noise = program, random, noise
        self.lengths: dict[str, int] = {}
        self.pause = 0

    def launch(self, names: Names) -> None:
        for name in names:
            if self.noise and self.random.random() < self.noise:
                if self.random.random() < 0.5:
                    continue
                self._append(f"odd_{self.random.randrange(4)}")
            self._append(name)

    def wait(self, nanoseconds: float) -> None:
        self.pause += int(nanoseconds * self.random.uniform(0.6, 1.6))

    def _append(self, name: str) -> None:
        if name not in self.lengths:
            self.lengths[name] = int(2_000 * 2 ** self.random.uniform(0, 7))
        self.program.names.append(name)
        self.program.pauses.append(int(self.random.uniform(3_000, 9_000)) + self.pause)
        self.program.busy.append(int(self.lengths[name] * self.random.uniform(0.9, 1.1)))
        self.pause = 0


def draw_program(seed: int) -> Program:
    """Draw a random program: a training, a serving run, or one without iterations that could be found."""
    random = Random(f"program {seed}")
    draw = random.choices(
        [_draw_training, _draw_serving, _draw_layers, _draw_noise, _draw_solver], [10, 5, 2, 2, 2]
    )[0]
    return draw(random)


def _block(random: Random, prefix: str, least: int, most: int, shared: Names) -> Names:
    """Draw the kernels of a block: some of its own, some of names that all blocks share."""
    size = random.randint(least, most)
    own = [f"{prefix}_{number}" for number in range(max(1, size // 2))]
    return [random.choice(shared) if random.random() < 0.45 else random.choice(own) for _ in range(size)]


def _draw_training(random: Random) -> Program:
    """Draw a training: embedding, layers, loss, backward layers, optimizer.

    Perhaps micro-batches and evaluations.
    """
    program = Program("training")
    host = _Host(program, random, random.choice([0, 0, 0, 0.0005, 0.003]))
    shared = [f"elementwise_{number}" for number in range(random.randint(1, 4))]
    layers, micro_batches = random.choice([1, 2, 4, 6, 12, 24]), random.choice([1, 1, 1, 2, 4, 8])
    embed = _block(random, "embed", 1, 4, shared)
    layer = _block(random, "layer", 4, 14, shared)
    loss = _block(random, "loss", 2, 6, shared)
    back = _block(random, random.choice(["back", "layer_bwd"]), 5, 20, shared)
    own_names = [["multi_tensor_apply_kernel"], ["FusedAdamKernel"], ["update_0", "update_1"], shared, shared]
    update_names = random.choice(own_names)
    update = [random.choice(update_names) for _ in range(random.choice([1, 2, 6, 20, 60]))]
    update = random.choice([[], ["norm_0", "norm_1"], [shared[0]] * 5]) + update
    update = random.choice([[], ["ncclDevKernel_AllReduce"]]) + update
    batch = random.choice([[], ["Memcpy HtoD"], ["Memcpy HtoD"] * 2])
    log = random.choice([[], ["Memcpy DtoH"], ["reduce_log", "Memcpy DtoH"]])
    log_every = random.choice([1, 1, 3, 5, 10])
    evaluate_every = random.choice([0, 0, 0, 4, 10])
    is_recomputed = random.random() < 0.2
    steps = random.choice([1, 2, 3, 4, 6, 12, 25, 40])
    load_ns, sync_ns = random.choice([0, 40_000, 2_000_000]), random.choice([0, 60_000, 3_000_000])
    if random.random() < 0.4:
        _initialise(host)
    before = len(program.names)
    for step in range(steps):
        program.begins.append(len(program.names))
        for _ in range(micro_batches):
            host.wait(load_ns)
            host.launch(batch + embed)
            for _ in range(layers):
                host.launch(layer)
            host.launch(loss)
            for _ in range(layers):
                host.launch([*layer, *back] if is_recomputed else back)
            host.launch([f"{name}_back" if name.startswith("embed") else name for name in embed])
        host.launch(update)
        if step % log_every == log_every - 1:
            host.launch(log)
            host.wait(sync_ns)
        program.period = (len(program.names) - program.begins[-1]) or 1
        if step == steps - 1:
            program.begins.append(len(program.names))
        if evaluate_every and step % evaluate_every == evaluate_every - 1:
            for _ in range(random.randint(1, 4)):
                host.wait(load_ns)
                host.launch(batch + embed)
                for _ in range(layers):
                    host.launch(layer)
                host.launch(["metric_0", "metric_1"])
    _cut_capture(program, random, before)
    return program


def _draw_serving(random: Random) -> Program:
    """Draw a serving run: decodes replay a graph or launch layers, prefills launch layers.

    Then kernels sample.
    """
    program = Program("serving")
    host = _Host(program, random, random.choice([0, 0, 0, 0.001]))
    shared = [f"elementwise_{number}" for number in range(random.randint(1, 3))]
    layers = random.choice([2, 8, 24])
    layer, head = _block(random, "layer", 5, 12, shared), _block(random, "head", 1, 3, shared)
    embed = _block(random, "embed", 1, 2, shared)
    decode_layer = random.choice([layer, _block(random, "decode", 5, 12, shared)])
    sample = _block(random, "sample", 1, 8, shared)
    copies = ["Memcpy HtoD"] * random.choice([0, 1, 3])
    token = ["Memcpy DtoH"] * random.choice([0, 1, 1, 1])
    is_graph, chance = random.random() < 0.6, random.choice([0, 0.02, 0.1, 0.3])
    graphs = random.choice([1, 1, 3])
    steps = random.choice([2, 5, 20, 80])
    if random.random() < 0.4:
        _initialise(host)
    before = len(program.names)
    wait_ns = random.choice([0, 50_000, 500_000])
    lengths = []
    for _ in range(steps):
        program.begins.append(len(program.names))
        host.wait(wait_ns)
        host.launch(copies)
        if random.random() < chance:
            host.launch(embed)
            for _ in range(layers):
                host.launch(layer)
        elif is_graph:
            host.launch([f"CUDA graph {random.randrange(graphs)}"])
        else:
            host.launch(embed)
            for _ in range(layers):
                host.launch(decode_layer)
        host.launch(head + sample + token)
        lengths.append(len(program.names) - program.begins[-1])
    program.begins.append(len(program.names))
    program.period = float(np.median(lengths))
    _cut_capture(program, random, before)
    return program


def _draw_layers(random: Random) -> Program:
    """Draw a capture inside one iteration.

    Only layers, perhaps with the begin or the end of the iteration.
    """
    program = Program("layers")
    host = _Host(program, random, 0)
    shared = [f"elementwise_{number}" for number in range(random.randint(1, 4))]
    if random.random() < 0.5:
        host.launch(_block(random, "embed", 1, 4, shared))
    layer = _block(random, "layer", 2, 14, shared)
    layer += random.choice([[], [], ["Memcpy HtoD"], ["Memcpy DtoD"] * 8])
    for _ in range(random.choice([6, 12, 40, 100])):
        host.launch(layer)
    if random.random() < 0.5:
        host.launch(_block(random, "loss", 2, 6, shared))
    if random.random() < 0.4:
        back = _block(random, "back", 5, 20, shared)
        for _ in range(random.choice([6, 12, 40])):
            host.launch(back)
    return program


def _draw_noise(random: Random) -> Program:
    """Draw a program that calls kernels in random order and number."""
    program = Program("noise")
    host = _Host(program, random, 0)
    calls = [_block(random, f"call_{number}", 1, 6, ["shared_0"]) for number in range(random.randint(2, 12))]
    for _ in range(random.choice([5, 30, 200])):
        host.wait(random.choice([0, 100_000]))
        host.launch(random.choice(calls) * random.choice([1, 1, 2, 3]))
    return program


def _draw_solver(random: Random) -> Program:
    """Draw one or two kernels that alternate: an iteration cannot be told from a part of one."""
    program = Program("solver")
    host = _Host(program, random, 0)
    for _ in range(random.choice([10, 200])):
        host.launch(["solve", "copy"] if random.random() < 0.99 else ["solve"])
    return program


def _initialise(host: _Host) -> None:
    for _ in range(host.random.randint(1, 5)):
        host.wait(50_000)
        host.launch([f"init_{host.random.randrange(6)}"] * host.random.randint(1, 40))
    host.wait(host.random.choice([0, 20 * MILLISECOND]))


def _cut_capture(program: Program, random: Random, before: int) -> None:
    """Perhaps begin the capture inside the first iteration, or end it inside the last one."""
    first, last = 0, len(program.names)
    if random.random() < 0.25 and program.begins[1] > before + 1:
        first = random.randrange(before + 1, program.begins[1])
    if random.random() < 0.25:
        last = random.randrange(program.begins[-2], program.begins[-1] + 1)
    program.keep(min(first, last), last)


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
