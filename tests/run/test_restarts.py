"""Runs that began again in new processes, and reports of two runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.errors import ReportError
from tests.lives import delay

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
    assert [len(result.training.pauses), result.training.pauses["lane"].n_unique()] == [4, 4]
    assert not any(finding.kind == "between" for finding in result.verdict.findings)
    once, both = (nsys_pp.summarise(own, by="rank", tables=["distribution"]) for own in (lives[:1], lives))
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
