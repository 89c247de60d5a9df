"""Random programs that repeat: sequences of launches with known iterations, or with none.

Names are of this program, except those of copies, collectives and optimizers, which are sometimes those of
real libraries."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from nsys_pp.arrays.search import find_rows
from nsys_pp.frames.report import API_CALLS, GPU_OPS, LAUNCHES, PROJECTIONS
from nsys_pp.frames.training import JOBS, STEPS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import NAMED_STEPS, choose_rules, name_steps
from nsys_pp.training.steps import (
    RepeatedSteps,
    find_repeated_steps,
    find_steps,
)
from tests.sql import edit
from tests.training.expected_training import (
    APART,
    AnalysedReport,
    analyse_reports,
    fill_columns,
    read_events,
    simulate_reports,
    survey,
)


@dataclass
class Program:
    """Launches of one device by a host, in order, with the truth; some are left out or added.

    `begins` are positions of the first launch of each whole iteration of the host's loop, then the end of the
    last one.
    """

    random: Random
    noise: float = 0
    names: list[str] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)  # of the host before each launch
    busy: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    period: float = 0  # launches from one iteration to the next
    pause: float = 0

    def launch(self, *names: str) -> None:
        for name in names:
            if self.random.random() < self.noise:
                name = f"odd_{self.random.randrange(4)}"
            self.names.append(name)
            self.pauses.append(int(self.random.uniform(3_000, 9_000) + self.pause))
            self.busy.append(int(2_000 * 2 ** (sum(name.encode()) % 7) * self.random.uniform(0.9, 1.1)))
            self.pause = 0

    def begin(self, pause: float) -> None:
        self.begins.append(len(self.names))
        self.pause += pause * self.random.uniform(0.6, 1.6)

    def launch_times(self) -> npt.NDArray[np.int64]:
        return np.cumsum(np.array(self.pauses, dtype=np.int64))

    def cut(self) -> None:
        """Perhaps begin the capture inside the first iteration, or end it inside the last one."""
        self.begins.append(len(self.names))
        self.period = float(np.median(np.diff(self.begins)))
        first, last = 0, len(self.names)
        if self.random.random() < 0.25:
            first = self.random.randrange(self.begins[0] + 1, self.begins[1])
        if self.random.random() < 0.25 and first < self.begins[-2]:
            last = self.random.randrange(self.begins[-2], self.begins[-1])
        for launches in (self.names, self.pauses, self.busy):
            del launches[last:], launches[:first]
        self.begins = [begin - first for begin in self.begins if first <= begin <= last]


def draw_block(random: Random, prefix: str, least: int, most: int) -> list[str]:
    """Draw the kernels of a block: some of its own, some of names that all blocks share."""
    size = random.randint(least, most)
    shared = [f"elementwise_{number}" for number in range(3)]
    own = [f"{prefix}_{number}" for number in range(max(1, size // 2))]
    return [random.choice(shared if random.random() < 0.45 else own) for _ in range(size)]


def draw_training(random: Random) -> Program:
    """Draw a training: embedding, layers, loss, backward layers, optimizer; perhaps micro-batches."""
    program = Program(random, random.choice([0, 0, 0, 0.0005, 0.003]))
    layers, micro_batches = random.choice([1, 2, 4, 12, 24]), random.choice([1, 1, 2, 8])
    embed, layer = draw_block(random, "embed", 1, 4), draw_block(random, "layer", 4, 14)
    loss, back = draw_block(random, "loss", 2, 6), draw_block(random, "back", 5, 20)
    update = random.choice([["multi_tensor_apply_kernel"], ["FusedAdamKernel"], ["update_0", "update_1"]])
    update = random.choice([[], ["ncclDevKernel_AllReduce"]]) + update * random.choice([1, 6, 20])
    forward = [*random.choice([[], ["Memcpy HtoD"]]), *embed, *layer * layers, *loss]
    load_ns = random.choice([0, 40_000, 2_000_000])
    program.launch(*["init"] * random.choice([0, 0, 9]))
    for _ in range(random.choice([2, 4, 6, 12, 25, 40])):
        program.begin(load_ns)
        program.launch(*[*forward, *back * layers] * micro_batches, *update)
    program.cut()
    return program


def draw_serving(random: Random) -> Program:
    """Draw a serving run: decodes replay a graph or launch layers, prefills launch layers; then kernels sample."""
    program = Program(random, random.choice([0, 0, 0, 0.001]))
    layers = random.choice([2, 8, 24])
    prefill = [*draw_block(random, "embed", 1, 2), *draw_block(random, "layer", 5, 12) * layers]
    decode = random.choice([["CUDA graph 1"], prefill, draw_block(random, "decode", 5, 12) * layers])
    sample = [*draw_block(random, "sample", 2, 11), *["Memcpy DtoH"] * random.choice([0, 1, 1])]
    copies, chance = ["Memcpy HtoD"] * random.choice([0, 1, 3]), random.choice([0, 0.02, 0.1, 0.3])
    wait_ns = random.choice([0, 50_000, 500_000])
    program.launch(*["init"] * random.choice([0, 0, 9]))
    for _ in range(random.choice([2, 5, 20, 80])):
        program.begin(wait_ns)
        program.launch(*copies, *(prefill if random.random() < chance else decode), *sample)
    program.cut()
    return program


def draw_layers(random: Random) -> Program:
    """Draw a capture inside one iteration: only layers, perhaps with the begin or the end of the iteration."""
    program = Program(random)
    layer = draw_block(random, "layer", 2, 14) + random.choice([[], [], ["Memcpy HtoD"], ["Memcpy DtoD"] * 8])
    ends = [random.choice([[], draw_block(random, name, 1, 6)]) for name in ("embed", "loss")]
    back = draw_block(random, "back", 5, 20) * random.choice([0, 6, 40])
    program.launch(*ends[0], *layer * random.choice([6, 12, 40, 100]), *ends[1], *back)
    return program


def draw_noise(random: Random) -> Program:
    """Draw a program that calls kernels in random order and number."""
    program = Program(random)
    calls = [draw_block(random, f"call_{number}", 1, 6) for number in range(random.randint(2, 12))]
    for _ in range(random.choice([5, 30, 200])):
        program.launch(*random.choice(calls) * random.choice([1, 1, 2, 3]))
    return program


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
    return find_repeated_steps(
        fill_columns(pl.DataFrame(ops), GPU_OPS),
        api_calls=fill_columns(pl.DataFrame(calls), API_CALLS),
        launches=pl.DataFrame({"op_id": row, "call_row": row}, schema=dict(LAUNCHES)),
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
    programs = [
        draw(Random(f"{draw.__name__} {seed}"))
        for draw, count in ((draw_training, 36), (draw_serving, 18), (draw_layers, 14), (draw_noise, 10))
        for seed in range(count)
    ]
    judged = [(program, find_program_steps(program)) for program in programs]
    assert np.mean([is_right(program, steps) for program, steps in judged if len(steps.first)]) >= 0.95
    assert np.mean([len(steps.first) > 0 for program, steps in judged if len(program.begins) > 4]) >= 0.3
    assert not any(len(steps.first) for program, steps in judged if not program.begins)
    assert all(steps.reason for _, steps in judged)


@pytest.mark.parametrize(
    "options", ["--pp 1 --micro-batches 2 --steps 5", "--pp 1 --graphs node --steps 4 --layers 2"]
)
def test_steps_of_a_report_without_ranges_are_those_of_the_truth(options: str, tmp_path: Path) -> None:
    simulate_reports(tmp_path, options)
    clocks = pl.read_parquet(tmp_path / "truth" / "clocks.parquet")
    name, zero_ns = clocks.select("report", "capture_utc_ns").row(0)
    steps = survey(edit(tmp_path / name, "DELETE FROM NVTX_EVENTS")).frames["steps"]
    truth = true_steps(tmp_path)
    assert (set(steps["source"]), steps["step"].to_list()) == ({"inferred"}, list(range(len(truth))))
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


def hide_steps(folder: Path) -> None:
    """Remove the ranges of steps from all reports of a run."""
    for path in folder.rglob("*.sqlite"):
        ranges = read_events(path).ranges
        named = name_steps(ranges, choose_rules(ranges)).select("start_ns", "end_ns")
        for start, end in named.unique().iter_rows():
            edit(path, "DELETE FROM NVTX_EVENTS WHERE start = :start AND end = :end", start=start, end=end)


def steps_of(found: list[AnalysedReport]) -> pl.DataFrame:
    return pl.concat([one.frames["steps"] for one in found]).sort("rank", "start_ns")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "options",
    [
        "--schedule 1f1b --steps 3 --names deepspeed",
        "--schedule gpipe --tp 2 --autograd part --layers 2 --names megatron",
        "--schedule interleaved --graphs node --free-running --names zero-bubble",
        f"--schedule dualpipev --visible {APART}",
        "--schedule zb-h1 --stall 11=8 --host-bound 10=3 --sharded-optimizer --dp 2",
    ],
)
def test_steps_are_those_of_the_truth(options: str, tmp_path: Path) -> None:
    simulate_reports(tmp_path, options)
    steps, truth = steps_of(list(analyse_reports(tmp_path))), true_steps(tmp_path)
    is_numbered = "deepspeed" not in options
    assert (steps["is_numbered"] == is_numbered).all()
    counted = steps if is_numbered else steps.with_columns(pl.col("step") + 10)
    assert counted.select(truth.columns).equals(truth)
    assert not steps["is_partial"].any()
    assert set(steps["source"]) == {"range"}
    assert (steps["host_start_ns"] < steps["host_end_ns"]).all()


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
    hide_steps(simulate_reports(tmp_path, f"--steps 3 {options}"))
    found = list(analyse_reports(tmp_path))
    steps, truth = steps_of(found), true_steps(tmp_path)
    counted = steps.with_columns(pl.col("step") + 10)
    assert counted.select("rank", "step").equals(truth.select("rank", "step"))
    for name in ("start_ns", "end_ns"):  # the host is between steps for 0.3 to 0.4 ms
        assert (counted[name] - truth[name]).abs().max() < 500_000  # type: ignore[operator]
    assert set(steps["source"]) == {"jobs"}
    assert not steps["is_numbered"].any()
    assert not steps["is_partial"].any()
    jobs = pl.concat([one.frames["jobs"] for one in found]).filter(kind="receive")
    assert jobs["step"].is_not_null().all()
    assert jobs.group_by("rank", "step").len()["len"].n_unique() == 1  # the same number in every step


def test_a_single_step_without_a_range_is_the_whole_capture(tmp_path: Path) -> None:
    hide_steps(simulate_reports(tmp_path, f"--steps 1 --names paddle {APART}"))
    for found in analyse_reports(tmp_path):
        jobs, steps = found.frames["jobs"], found.frames["steps"]
        assert steps.select("step", "source", "is_partial").rows() == [(0, "capture", False)]
        ops = read_events(tmp_path / found.name).gpu_ops
        (span,) = (steps["end_ns"] - steps["start_ns"]).to_list()
        assert span == ops["end_ns"].max() - ops["start_ns"].min()  # type: ignore[operator]
        assert (jobs["step"] == 0).all()


@pytest.mark.parametrize("seed", range(2))
def test_captures_that_begin_or_end_inside_a_step_mark_it(seed: int, tmp_path: Path) -> None:
    simulate_reports(tmp_path, f"--schedule 1f1b --steps 4 --window-ms 25 --seed {seed} {APART}")
    truth, clocks = true_steps(tmp_path), pl.read_parquet(tmp_path / "truth" / "clocks.parquet")
    ranges = pl.read_parquet(tmp_path / "truth" / "jobs.parquet")
    for found in analyse_reports(tmp_path):
        begin, duration = clocks.filter(report=found.name).select("capture_utc_ns", "duration_ns").row(0)
        both = found.frames["steps"].join(truth, on=["rank", "step"], suffix="_true").sort("step")
        assert both["step"].to_list() == list(range(10, 14))
        is_cut = (both["start_ns_true"] < begin) | (both["end_ns_true"] > begin + duration)
        assert (
            both.filter(~is_cut).select("start_ns", "end_ns").rows()
            == both.filter(~is_cut).select("start_ns_true", "end_ns_true").rows()
        )
        jobs = ranges.filter(pl.col("report") == found.name, ~pl.col("is_part"))
        loses = jobs.group_by("step").agg(lost=~pl.col("is_recorded").all()).sort("step")["lost"]
        # a capture may also begin between the start of a step on the CPU and that on the GPU
        is_shown = both["host_start_ns"].is_not_null() & (both["host_end_ns"] < begin + duration)
        assert both["is_partial"].equals((is_cut | loses | ~is_shown).alias("is_partial"))
        # inner edges are true, and every job that is there has the step that it truly has
        assert both["end_ns"][:-1].equals(both["end_ns_true"].alias("end_ns")[:-1])
        work = found.frames["jobs"].filter(pl.col("kind").is_in(["forward", "backward"]))
        placed = work.with_columns(pl.col("kind").cast(pl.String)).join(
            jobs.select("step", pl.col("kind"), "micro_batch", start_ns="start_ns"),
            left_on=["kind", "micro_batch", "compute_start_ns"],
            right_on=["kind", "micro_batch", "start_ns"],
        )
        assert placed["step"].equals(placed["step_right"].alias("step"))
        assert len(placed) >= 0.9 * len(work)


NOTHING = {"api_calls": API_CALLS.to_frame(), "launches": LAUNCHES.to_frame()}


def kernels(*spans: tuple[int, int]) -> pl.DataFrame:
    return fill_columns(
        pl.DataFrame(spans, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row").with_columns(
            op_id=pl.int_range(pl.len()),
            kind=pl.lit("kernel"),
            process_key=1,
            device_id=0,
            context_id=1,
            stream_id=7,
            is_communication=False,
        ),
        GPU_OPS,
    )


def step_ranges(*rows: tuple[int, int, int | None, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make step ranges of (host start, host end, number, first kernel), and their projections."""
    frame = pl.DataFrame(
        rows, schema=["start_ns", "end_ns", "step", "gpu_start_ns"], orient="row"
    ).with_columns(range_id=pl.int_range(pl.len()), process_key=1, thread_key=1, device_id=0, is_open=False)
    named = fill_columns(frame, NAMED_STEPS)
    return named, fill_columns(frame.select("range_id", "device_id", "gpu_start_ns"), PROJECTIONS)


def found_steps(*rows: tuple[int, int, int | None, int]) -> list[tuple[object, ...]]:
    named, placed = step_ranges(*rows)
    ops = kernels(*((row[3], row[3] + 50) for row in rows))
    steps = find_steps(named, compute=placed, jobs=JOBS.to_frame(), ops=LaunchedOps(gpu_ops=ops, **NOTHING))
    assert steps.schema == STEPS
    return steps.select("step", "is_numbered", "start_ns", "end_ns").rows()


# ranges of steps (start, end, number, first kernel), and (number, is it a name's, start) of the steps found
STEP_RANGES = {
    "steps last until the next one begins": (
        [(0, 100, 3, 20), (100, 200, 4, 120)],
        [(3, True, 0), (4, True, 100)],
    ),
    "a step inside a step is left out": (
        [(0, 100, 3, 20), (10, 90, 0, 25), (100, 200, 4, 120)],
        [(3, True, 0), (4, True, 100)],
    ),
    "the same step of another thread is left out": (
        [(0, 100, 3, 20), (1, 101, 3, 20), (102, 200, 4, 120), (103, 210, 4, 125)],
        [(3, True, 0), (4, True, 102)],
    ),
    "numbers that come twice are not taken": (
        [(0, 100, 0, 20), (100, 200, 1, 120), (200, 300, 0, 220), (300, 400, 1, 320)],
        [(0, False, 0), (1, False, 100), (2, False, 200), (3, False, 300)],
    ),
    "steps without numbers are counted": (
        [(0, 100, None, 20), (100, 200, None, 120)],
        [(0, False, 0), (1, False, 100)],
    ),
}


@pytest.mark.parametrize(("rows", "expected"), STEP_RANGES.values(), ids=STEP_RANGES)
def test_ranges_are_steps(
    rows: list[tuple[int, int, int | None, int]], expected: list[tuple[int, bool, int]]
) -> None:
    assert [row[:3] for row in found_steps(*rows)] == expected


def test_steps_have_only_kernels_of_their_ranges() -> None:
    """A step that computes nothing has no row, and kernels after the last step do not belong to it."""
    named, placed = step_ranges((0, 100, 3, 20), (100, 200, 4, 120))
    ops = kernels((20, 70), (300, 400))
    assert find_steps(
        named, compute=placed[:1], jobs=JOBS.to_frame(), ops=LaunchedOps(gpu_ops=ops, **NOTHING)
    ).select("step", "start_ns", "end_ns").rows() == [(3, 0, 100)]


def test_a_report_without_kernels_has_no_steps() -> None:
    steps = find_steps(
        NAMED_STEPS.to_frame(),
        compute=PROJECTIONS.to_frame(),
        jobs=JOBS.to_frame(),
        ops=LaunchedOps(gpu_ops=GPU_OPS.to_frame(), **NOTHING),
    )
    assert steps.schema == STEPS
    assert steps.is_empty()


def test_the_first_step_is_partial_where_only_computation_tells_the_steps(tmp_path: Path) -> None:
    """Later stages wait before their first forward, and nothing says how long."""
    hide_steps(simulate_reports(tmp_path / "run", "--steps 3 --schedule 1f1b --names plain"))
    rules = tmp_path / "rules.toml"
    kinds = ("forward", "backward")
    patterns = (f"[[job]]\nkind = '{kind}'\npattern = '^{kind}_(?<micro_batch>[0-9]+)'\n" for kind in kinds)
    rules.write_text("title = 'computation'\n" + "".join(patterns))
    steps = steps_of(list(analyse_reports(tmp_path / "run", preset=str(rules))))
    assert set(steps["source"]) == {"jobs"}
    assert steps.filter("is_partial").select("rank", "step").rows() == [(0, 0), (1, 0)]
    assert steps.group_by("rank").len()["len"].to_list() == [3, 3]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("lag", [0, 2])
def test_steps_whose_kernels_run_after_the_capture_are_partial(seed: int, lag: int, tmp_path: Path) -> None:
    """Their ranges may have ended: hosts run ahead by some steps."""
    options = (
        f"--schedule 1f1b --steps 4 --window-ms 20 --vary-micro-batches 0.5 --lag-steps {lag} --seed {seed}"
    )
    simulate_reports(tmp_path, f"{options} {APART}")
    is_recorded = pl.read_parquet(tmp_path / "truth" / "steps.parquet").select("rank", "step", "is_recorded")
    for found in analyse_reports(tmp_path):
        both = found.frames["steps"].join(is_recorded, on=["rank", "step"]).drop_nulls("host_start_ns")
        assert len(both) >= 2
        assert both["is_partial"].to_list() == both["is_recorded"].not_().to_list()
