"""Jobs of simulated reports against their truth, and the joints of that on small frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.frames.report import API_CALLS, GPU_OPS, OP_DETAILS, RANGES, OpDetails
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS, JOBS
from nsys_pp.projection.launches import match_launches
from nsys_pp.training.jobs import (
    THREADED_KINDS,
    find_job_kinds,
    find_phases,
)
from nsys_pp.training.kernels import sum_kernels
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import NAMED_JOBS, NAMED_STEPS, choose_rules
from tests.sql import edit
from tests.training.expected_training import (
    APART,
    analyse_reports,
    expected_training,
    fill_columns,
    read_events,
    simulate_reports,
)
from tests.training.test_sums import steps

WORK = ["forward", "backward", "weight_gradient", "forward_backward"]
IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")
SAID = {  # vocabulary -> preset, what its names say of micro-batches and chunks
    "plain": ("plain", IDS),
    "paddle": ("paddle", ("chunk", "backward_chunk")),
    "megatron": ("megatron", ()),
    "megatron-ids": ("megatron", IDS),
    "torch": ("torch", ("micro_batch", "backward_micro_batch")),
    "zero-bubble": ("zero-bubble", IDS),
    "deepspeed": ("deepspeed", ()),
    "msprof": ("msprof", ("micro_batch",)),
}


def true_jobs(folder: Path) -> pl.DataFrame:
    training = expected_training(folder)
    return training.jobs.join(training.lanes.select("lane", "rank", "stage"), on="lane").sort(
        "rank", "start_ns"
    )


def check_jobs(folder: Path, preset: str, said: tuple[str, ...]) -> pl.DataFrame:
    """Compare the jobs of all reports with their truth; return those found."""
    parts = []
    for found in analyse_reports(folder):
        assert found.preset == preset, found.name
        assert choose_rules(read_events(folder / found.name).ranges).share == 1
        parts.append(found.frames["jobs"])
    jobs = pl.concat(parts)
    work = jobs.filter(pl.col("kind").is_in(WORK)).sort("rank", "compute_start_ns")
    truth = true_jobs(folder)
    if work["step"].max() != truth["step"].max():
        work = work.with_columns(pl.col("step") + 10)
    work, truth = (
        work.with_columns(pl.col("kind").cast(pl.String)),
        truth.with_columns(pl.col("kind").cast(pl.String)),
    )
    same = ["rank", "kind", "step", *said]
    assert work.select(*same, start_ns="compute_start_ns", end_ns="compute_end_ns").equals(
        truth.select(*same, "start_ns", "end_ns")
    )
    assert all(work[column].is_null().all() for column in IDS if column not in said)
    assert work["outer_id"].is_null().all()
    assert (work["op_count"] > 0).all()
    assert (work["launch_delay_ns"] > 0).all()
    return jobs


@pytest.mark.few(4)
@pytest.mark.parametrize("names", SAID)
def test_overlapped_jobs_recomputations_and_messages_are_those_of_the_truth(
    names: str, tmp_path: Path
) -> None:
    preset, said = SAID[names]
    simulate_reports(tmp_path, f"--schedule dualpipev --recompute --names {names}")
    jobs = check_jobs(tmp_path, preset, said)
    messages = pl.read_parquet(tmp_path / "truth" / "messages.parquet")
    for kind, side in (("send", "sender"), ("receive", "receiver")):
        true = messages.group_by(pl.col(side).alias("rank"), pl.col("kind").alias("direction")).len()
        mine = jobs.filter(kind=kind).group_by("rank", pl.col("direction").cast(pl.String)).len()
        assert set(mine.rows()) == set(true.rows())
    again = jobs.filter(kind="recompute")
    around = jobs.select(
        "rank", outer_id="range_id", outer_kind="kind", begun="compute_start_ns", over="compute_end_ns"
    )
    placed = again.join(around, on=["rank", "outer_id"])
    assert len(placed) == len(again) > 0
    assert set(placed["outer_kind"]) == {"backward", "forward_backward"}
    assert (placed["begun"] <= placed["compute_start_ns"]).all()
    assert (placed["over"] >= placed["compute_end_ns"]).all()
    assert (jobs.filter(kind="optimizer").group_by("rank").len()["len"] == 2).all()


@pytest.mark.few(3)
@pytest.mark.parametrize("names", SAID)
def test_split_backwards_are_those_of_the_truth(names: str, tmp_path: Path) -> None:
    preset, said = SAID[names]
    simulate_reports(tmp_path, f"--schedule zb-h1 --micro-batches 3 --steps 1 --names {names}")
    has_chunks = names == "zero-bubble"
    check_jobs(
        tmp_path,
        preset,
        tuple(column for column in said if column == "micro_batch" or (has_chunks and column == "chunk")),
    )


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("plain", "--schedule interleaved --tp 2 --autograd part --layers 3"),
        ("zero-bubble", "--schedule interleaved --graphs node --free-running"),
        ("megatron-ids", "--schedule interleaved --autograd none --schema 3.25.0 --graphs graph"),
        ("paddle", f"--schedule interleaved --sharded-optimizer --dp 2 {APART}"),
    ],
)
def test_chunks_are_those_of_the_truth(names: str, options: str, tmp_path: Path) -> None:
    preset, said = SAID[names]
    simulate_reports(tmp_path, f"{options} --names {names}")
    jobs = check_jobs(tmp_path, preset, tuple(column for column in said if "backward" not in column))
    assert jobs.filter(kind="forward")["chunk"].n_unique() == 2


Job = tuple[int, str, int, int]
Call = tuple[int, int]


def _jobs(rows: list[Job]) -> pl.DataFrame:
    """Make jobs of (thread, kind, start, end) of one process, one on each of two devices."""
    return pl.DataFrame(
        [
            {"process_key": 1, "thread_key": thread, "device_id": device, "kind": kind, "range_id": number}
            | {"host_start_ns": start, "host_end_ns": end}
            for number, (thread, kind, start, end) in enumerate(rows)
            for device in (0, 1)
        ],
        schema=JOBS,
    )


def _find(jobs: list[Job], calls: list[Call]) -> list[str | None]:
    """Find the kind of job of an operation for each call of (thread, start)."""
    numbers = range(len(calls))
    api_calls = pl.DataFrame(
        [
            {
                "process_key": 1,
                "thread_key": thread,
                "start_ns": start,
                "end_ns": start + 1,
                "correlation_id": n,
            }
            for n, (thread, start) in enumerate(calls)
        ],
        schema=API_CALLS,
    )
    ops = pl.DataFrame(
        [
            {"op_id": n, "kind": "kernel", "process_key": 1, "device_id": 0, "correlation_id": n, "name": "k"}
            | {"start_ns": 1000, "end_ns": 1001, "is_communication": False}
            for n in numbers
        ],
        schema=GPU_OPS,
    )
    launched = LaunchedOps(gpu_ops=ops, api_calls=api_calls, launches=match_launches(api_calls, ops))
    return find_job_kinds(launched, _jobs(jobs)).to_list()


def _expect(jobs: list[Job], call: Call) -> str | None:
    """Apply the definition: the job on the thread that started last, else such a job of another thread."""
    thread, at = call
    around = [job for job in jobs if job[2] <= at < job[3]]
    own = [job for job in around if job[0] == thread]
    chosen = own or [job for job in around if job[1] in THREADED_KINDS]
    return max(chosen, key=lambda job: (job[2], -job[3]))[1] if chosen else None


@pytest.mark.parametrize("seed", range(30))
def test_kinds_equal_their_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    starts = random.permutation(200)[: random.integers(1, 25)]  # distinct, so that no two jobs are equal
    jobs = [
        (
            int(random.integers(3)),
            str(random.choice(JOB_KINDS)),
            int(start),
            int(start + random.integers(1, 80)),
        )
        for start in starts
    ]
    calls = [(int(random.integers(4)), int(random.integers(250))) for _ in range(40)]
    assert _find(jobs, calls) == [_expect(jobs, call) for call in calls]


def test_kernels_of_one_name_in_several_jobs_have_rows_of_their_own() -> None:
    ops = pl.DataFrame(
        [
            {"op_id": n, "kind": "kernel", "process_key": 1, "device_id": 0, "name": "k", "start_ns": n}
            | {"end_ns": n + 2, "is_communication": False}
            for n in range(5)
        ],
        schema=GPU_OPS,
    )
    kinds = pl.Series(["forward", "forward", "backward", None, "forward"], dtype=JOB_KIND)
    names = pl.Series(["void k<2>()", "void k<1>()", None, "void k<1>()"], dtype=OP_DETAILS["full_name"])
    distinct = OP_DETAILS.to_frame().clear(4).with_columns(names.alias("full_name"))
    details = OpDetails(distinct=distinct, row=np.array([1, 0, 2, 2, 3], dtype=np.uint32))
    sums = sum_kernels(ops, steps([(0, 0, 0, 10)]), details=details, job_kind=kinds)
    assert sums.select("full_name", "job_kind", "count", "total_ns").rows() == [
        ("void k<1>()", "forward", 2, 4),
        ("void k<2>()", "forward", 1, 2),
        (None, "backward", 1, 2),
        (None, None, 1, 2),
    ]


Row = tuple[str, int, int]


def ranges_of(rows: list[Row]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["name", "start_ns", "end_ns"], orient="row").with_row_index("range_id")
    return fill_columns(frame.with_columns(process_key=1, thread_key=5, is_open=False), RANGES)


def phases_of(rows: list[Row], *, jobs: pl.DataFrame | None = None) -> list[str]:
    """List the names of the phases, where ranges called "step" are the steps."""
    ranges = ranges_of(rows)
    steps = fill_columns(ranges.filter(pl.col("name").cast(pl.String) == "step"), NAMED_STEPS)
    found = find_phases(ranges, steps, NAMED_JOBS.to_frame() if jobs is None else jobs)
    assert found.schema == NAMED_JOBS
    assert set(found["kind"]) <= {"other"}
    return found["name"].cast(pl.String).to_list()


def test_ranges_directly_inside_most_steps_are_phases() -> None:
    first: list[Row] = [
        ("step", 0, 100),
        ("load 1", 0, 20),
        ("solve", 20, 90),
        ("inner", 30, 40),
        ("log", 90, 95),
    ]
    later: list[Row] = [
        (name if name != "load 1" else f"load {number}", start + 100 * number, end + 100 * number)
        for number in (2, 3)
        for name, start, end in first
        if name != "log"
    ]
    assert phases_of([*first, *later]) == ["load 1", "solve", "load 2", "solve", "load 3", "solve"]


def test_a_single_range_in_each_step_gives_way_to_those_inside_it() -> None:
    rows: list[Row] = [
        row
        for start in (0, 100, 200)
        for row in [
            ("step", start, start + 100),
            ("train", start + 1, start + 99),
            ("a", start + 5, start + 40),
            ("b", start + 40, start + 90),
        ]
    ]
    assert phases_of(rows) == ["a", "b"] * 3


def test_where_forwards_are_known_there_are_no_phases() -> None:
    rows: list[Row] = [("step", 0, 100), ("a", 0, 20), ("F", 20, 40)]
    forward = ranges_of(rows).filter(pl.col("name").cast(pl.String) == "F")
    jobs = fill_columns(forward.with_columns(kind=pl.lit("forward")), NAMED_JOBS)
    assert phases_of(rows) == ["a", "F"]
    assert phases_of(rows, jobs=jobs) == []
    assert phases_of([("a", 0, 20)]) == []


def test_phases_lie_in_the_job_that_their_step_is() -> None:
    ranges = ranges_of([("step", 0, 100), ("a", 0, 20)])
    jobs = fill_columns(ranges.head(1).with_columns(kind=pl.lit("other")), NAMED_JOBS)
    found = find_phases(ranges, fill_columns(ranges.head(1), NAMED_STEPS), jobs)
    assert found.select("range_id", "outer_id").rows() == [(1, 0)]


def test_a_backward_without_a_range_is_found_by_its_position(tmp_path: Path) -> None:
    """Between the forward and the optimizer, with the kernels that it has by its range."""
    simulate.main(
        [
            str(tmp_path),
            *[
                "--pp",
                "1",
                "--dp",
                "2",
                "--micro-batches",
                "1",
                "--steps",
                "3",
                "--layers",
                "1",
                "--names",
                "plain",
            ],
        ]
    )
    named = find_backwards(tmp_path)
    for report in tmp_path.rglob("*.sqlite"):
        edit(report, "DELETE FROM NVTX_EVENTS WHERE text LIKE 'backward%'")
    found = find_backwards(tmp_path)
    assert len(named) == 6
    assert found.drop("name").equals(named.drop("name"))
    assert set(found["name"]) == {"backward (by position)"}


def find_backwards(folder: Path) -> pl.DataFrame:
    jobs = nsys_pp.pipeline(folder, preset="plain").training.jobs.filter(kind="backward")
    return jobs.select("lane", "step", pl.col("name").cast(pl.String), "compute_start_ns", "compute_end_ns")
