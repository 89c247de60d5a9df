"""Runs that began again in new processes, reports of two runs, and processes that are no ranks of a training."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.errors import ReportError
from tests.sql import edit, select

_READING_NS = 70_000  # between two readings of UTC, by which nsys sessions of one machine differ
_PID_SHIFT = 24  # bits of the thread in nsys' ids of processes and threads


def delay(folder: Path, *, later_ns: int, pids: int = 1) -> None:
    """Move all reports of a folder to a later time of their machines, and add to the ids of their processes."""
    for path in folder.rglob("*.sqlite"):
        columns = select(
            path,
            "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
            " WHERE m.type = 'table' AND c.name IN ('globalPid', 'globalTid', 'processId')",
        )
        edit(
            path,
            "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + :later",
            "UPDATE ANALYSIS_DETAILS SET startTime = startTime + :session, stopTime = stopTime + :session",
            "UPDATE PROCESSES SET pid = pid + :processId",
            *(f"UPDATE {table} SET {column} = {column} + :{column}" for table, column in columns),
            later=later_ns,
            session=later_ns + _READING_NS,
            processId=pids,
            globalPid=pids << _PID_SHIFT,
            globalTid=pids << _PID_SHIFT,
        )


def add_process(path: Path, *, kernels: int, pids: int = 7) -> None:
    """Add a process to a report that launches kernels on the GPU of the first one, as a monitor does."""
    added = pids << _PID_SHIFT
    with sqlite3.connect(path) as report:
        (pid,) = report.execute("SELECT min(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        chosen = f"SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE streamId = 7 LIMIT {kernels}"
        for table, where in (
            ("CUPTI_ACTIVITY_KIND_KERNEL", f"correlationId IN ({chosen})"),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", f"correlationId IN ({chosen})"),
            ("TARGET_INFO_CUDA_CONTEXT_INFO", "TRUE"),
            ("PROCESSES", f"globalPid = {pid}"),
        ):
            report.execute(f"CREATE TEMP TABLE copied AS SELECT * FROM {table} WHERE {where}")
            columns = [row[1] for row in report.execute(f"PRAGMA table_info({table})")]
            for column in {"globalPid", "globalTid"} & {*columns}:
                report.execute(f"UPDATE copied SET {column} = {column} + {added}")
            for column in {"pid", "processId"} & {*columns}:
                report.execute(f"UPDATE copied SET {column} = {column} + {pids}")
            report.execute(f"INSERT INTO {table} SELECT * FROM copied")
            report.execute("DROP TABLE copied")
    report.close()


pytestmark = pytest.mark.filterwarnings("ignore:.*ran in several processes", "ignore:.*only UTC relates them")
_S = 1_000_000_000
_MINUTE = 60 * _S
_OPTIONS = "--pp 4 --micro-batches 4 --layers 1 --names megatron --no-truth --jitter 0.002"


def _run_twice(folder: Path, *options: str, machines: str = "a,b", later_ns: int = _MINUTE) -> list[Path]:
    """Simulate a run of 3 steps, and one of 4 that began later in new processes."""
    lives = [folder / name for name in ("first", "second")]
    for life, steps, names in zip(lives, ("3", "4"), ("a,b", machines), strict=True):
        seed = "1" if names == "a,b" else "2"  # of the ids of GPUs
        args = [*_OPTIONS.split(), "--steps", steps, "--machines", names, "--seed", seed, *options]
        simulate.main([str(life), *args])
    delay(lives[1], later_ns=later_ns)
    return lives


@pytest.mark.parametrize("per", ["rank", "machine"])
def test_a_rank_has_one_lane_in_new_processes_on_its_gpu(per: str, tmp_path: Path) -> None:
    lives = _run_twice(tmp_path, "--per", per)
    result = nsys_pp.pipeline([*reversed(lives)])
    lanes, steps = result.training.lanes, result.training.steps
    assert lanes["stage"].to_list() == [0, 1, 2, 3]
    assert steps.group_by("step").len().sort("step").rows() == [(step, 4) for step in range(7)]
    assert steps.filter(pl.col("end_ns") - pl.col("start_ns") > _S).is_empty()
    assert result.training.schedule.name == "1f1b"
    assert any("new processes" in note for note in result.training.notes) == (per == "machine")
    # nothing was recorded between both
    assert not any(finding.kind == "between" for finding in result.verdict.findings)
    once, both = (nsys_pp.summary(own, by="rank", tables=["distribution"]) for own in (lives[:1], lives))
    assert len(both.tables["distribution"]) == len(once.tables["distribution"])


def test_processes_on_other_gpus_have_lanes_and_steps_of_their_own(tmp_path: Path) -> None:
    training = nsys_pp.pipeline(_run_twice(tmp_path, machines="c,d")).training
    assert training.lanes["stage"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert training.lanes["rank"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert training.steps.group_by("step").len().sort("step").rows() == [(step, 4) for step in range(7)]
    assert training.steps.filter(pl.col("end_ns") - pl.col("start_ns") > _S).is_empty()


@pytest.mark.parametrize(
    ("later_ns", "sentence"),
    [(_S // 10, "are both rank 0 at one time: not of one run"), (100 * _MINUTE, "ended 99 minutes before")],
)
def test_two_runs_are_not_compared(later_ns: int, sentence: str, tmp_path: Path) -> None:
    lives = _run_twice(tmp_path, later_ns=later_ns)
    with pytest.raises(ReportError, match=sentence):
        nsys_pp.pipeline(lives)
    (lives[0] / "a" / "rank1.sqlite").unlink()
    kept = nsys_pp.pipeline(lives, keep_going=True)
    assert {path.parent.parent.name for path, _ in kept.skipped} == {"first"}
    assert kept.verdict.lines == nsys_pp.pipeline(lives[1:]).verdict.lines


def test_a_clock_that_is_hours_off_can_be_corrected(tmp_path: Path) -> None:
    simulate.main(
        [str(tmp_path), *_OPTIONS.split(), "--steps", "2", "--machines", "a,b", "--offset-us", "b=7200e6"]
    )
    with pytest.raises(ReportError, match="ended 119 minutes before") as refused:
        nsys_pp.align([tmp_path])
    assert "`--offset` corrects a clock" in (refused.value.hint or "")
    aligned = nsys_pp.align([tmp_path], offsets={"b": -7200 * _S})
    assert aligned.clocks["reports"].list.len().sum() == 4


_MACHINES = "--micro-batches 4 --machines 2 --layers 1 --names megatron --steps 4 --no-truth --schema 3.25.0"


def test_a_program_on_the_gpu_of_a_rank_is_not_compared(tmp_path: Path) -> None:
    simulate.main([str(tmp_path), *_MACHINES.split(), "--dp", "4", "--pp", "1", "--slow-rank", "1=1.4"])
    alone = nsys_pp.pipeline([tmp_path])
    assert alone.verdict.lines[0].startswith(
        "Rank 1 (stage 0, node0 GPU 1) computes 40 % longer than its peers"
    )
    add_process(tmp_path / "node0" / "rank1.sqlite", kernels=40)
    result = nsys_pp.pipeline([tmp_path])
    assert result.verdict.lines == alone.verdict.lines
    assert result.training.lanes["rank"].to_list() == [0, 1, 2, 3]
    (note,) = [note for note in result.training.notes if note.startswith("process ")]
    assert note.endswith("on a GPU of the training (node0 GPU 1) is no rank of it: it is not compared")
    # sums have its kernels
    labels = nsys_pp.summary([tmp_path], by="rank", tables=["device"]).tables["device"]["label"]
    assert len(labels) == 5


def test_a_task_that_starts_several_ranks_is_no_rank(tmp_path: Path) -> None:
    """Machines of three GPUs and of one, each with a task of Slurm that runs torchrun under nsys."""
    options = [*_MACHINES.split(), "--pp", "4", "--machine-ranks", "3,1", "--per", "machine"]
    simulate.main([str(tmp_path), *options])
    for task in range(2):
        edit(
            tmp_path / f"node{task}" / "report.sqlite",
            f"UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'SLURM_PROCID={task};SLURM_NTASKS=2'"
            " WHERE name = 'DeviceEnvironment'",
        )
    lanes = nsys_pp.pipeline([tmp_path]).training.lanes
    assert lanes.select("rank", "stage").rows() == [(None, stage) for stage in range(4)]
