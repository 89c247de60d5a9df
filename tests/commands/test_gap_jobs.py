"""Jobs of stock Megatron-LM, where only sends and receives have ranges: exact, or none."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.frames.training import Training
from tests.commands.whole import WORK, run

SMALL = "--names megatron-stock --layers 1 --steps 2"
_TOLERANCE_NS = 10  # clocks of several reports are aligned


def compare(found: Training, true: Training) -> tuple[int, int, int]:
    """Count the true jobs, the found ones, and the found ones with the interval of a true one."""
    jobs = [
        training.jobs.filter(pl.col("kind").is_in(WORK))
        .join(training.lanes.select("lane", "rank"), on="lane")
        .select("rank", pl.col("kind").cast(pl.String), "compute_start_ns", "compute_end_ns")
        .sort("compute_start_ns")
        for training in (true, found)
    ]
    same = jobs[1].join_asof(
        jobs[0].with_columns(true_end_ns="compute_end_ns"),
        on="compute_start_ns",
        by=["rank", "kind"],
        strategy="nearest",
        tolerance=_TOLERANCE_NS,
        check_sortedness=False,
    )
    is_same = (pl.col("compute_end_ns") - pl.col("true_end_ns")).abs() <= _TOLERANCE_NS
    return len(jobs[0]), len(jobs[1]), len(same.filter(is_same))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options",
    [
        "--schedule 1f1b --autograd fill",
        "--schedule 1f1b --autograd none --grouped-messages --recompute",
        "--schedule gpipe --autograd part --free-running",
        "--schedule interleaved --chunks 2 --loader-kernels",
        "--pp 2 --dp 2 --tp 2 --buckets 2 --small-ops 2 --lead-collectives 1",
    ],
)
def test_jobs_are_the_launches_between_messages(options: str, tmp_path: Path) -> None:
    """Also where receives are posted before the first kernel of a step, as here on all stages but the first."""
    whole = run(tmp_path / "run", f"{SMALL} {options}", infer_jobs=True)
    true, found, same = compare(whole.found, whole.true)
    assert true == found == same > 0
    assert whole.found.jobs.filter(pl.col("kind").is_in(WORK))["is_inferred"].all()
    assert any("jobs are the launches between the ranges of messages" in note for note in whole.found.notes)
    name = options.split()[1] if "--schedule" in options else "1f1b"
    assert whole.found.schedule.name == name
    key = ["rank", "step", "kind", "micro_batch", "chunk"]
    found_ids, true_ids = (
        training.jobs.filter(pl.col("kind").is_in(WORK))
        .join(training.lanes.select("lane", "rank"), on="lane")
        .select(pl.col(key).exclude("chunk"), pl.col("chunk").fill_null(0))
        .sort(key)
        for training in (whole.found, whole.true)
    )
    assert found_ids.equals(true_ids)


def test_jobs_are_inferred_only_on_request(tmp_path: Path) -> None:
    found = run(tmp_path / "run", SMALL).found
    assert not found.jobs["kind"].is_in(WORK).any()
    assert found.jobs["range_id"].null_count() == 0


def test_ranges_of_messages_on_some_stages_are_not_enough(tmp_path: Path) -> None:
    """Without ranges of messages that a stage does not send, its forwards and backwards are not apart."""
    rules = tmp_path / "rules.toml"
    names = [("send", "send"), ("recv", "receive")]
    rules.write_text(
        'title = "messages"\n'
        + "".join(
            f'[[job]]\nkind = "{kind}"\ndirection = "{direction}"\n'
            f"pattern = '(?:\\w+\\.)*{word}_{direction}'\n"
            for word, kind in names
            for direction in ("forward", "backward")
        )
        + "[[step]]\npattern = 'training_step_(?P<step>\\d+)'\n"
    )
    folder = tmp_path / "run"
    run(folder, "--names megatron --layers 1 --steps 2 --brief-truth")
    found = nsys_pp.pipeline([folder], preset=rules, infer_jobs=True, layout="pp=4").training
    assert not any("between the ranges of messages" in note for note in found.notes)
