"""Scores of worlds: right results have none of the errors, and results that were changed on purpose have them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec import structs

from fixtures import options, simulate
from nsys_pp.frames.clock import Clock
from tests.worlds.findings import Findings, analyse
from tests.worlds.scores import (
    Truth,
    score_causes,
    score_clocks,
    score_jobs,
    score_pairs,
    score_ranges,
    score_stragglers,
)
from tests.worlds.tables import append_score, build_tables, list_breaks, read_scores, write_tables
from tests.worlds.world import WorldScore, run_world

ARGUMENTS = "--brief-truth --pp 4 --machines 2 --micro-batches 4 --layers 1 --steps 3 --offset-us node1=3000"
RANKS = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Findings, Truth]:
    folder = tmp_path_factory.mktemp("world")
    simulate.main([str(folder), *ARGUMENTS.split()])
    return analyse(folder), Truth(folder)


def changed(findings: Findings, *, clocks: Any = None, **frames: Any) -> Findings:
    """Return findings with other frames of the training, or other clocks."""
    run = SimpleNamespace(inputs=findings.result.run.inputs, clocks=clocks or findings.result.run.clocks)
    result: Any = SimpleNamespace(
        training=replace(findings.training, **frames), run=run, tables=findings.result.tables
    )
    return Findings(findings.folder, result)


def chosen(arguments: str = ARGUMENTS) -> Any:
    return options.build_parser().parse_args(["out", *arguments.split()])


def test_a_right_clock_holds_and_a_moved_one_does_not(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    score = score_clocks(findings, truth)
    assert score.is_right
    assert score.true_groups == 1
    clocks = findings.result.run.clocks
    moved = [
        *clocks.clocks[:-1],
        Clock(from_ns=clocks.clocks[-1].from_ns, offset_ns=clocks.clocks[-1].offset_ns + 5_000_000),
    ]
    wrong = score_clocks(changed(findings, clocks=structs.replace(clocks, clocks=moved)), truth)
    assert not wrong.holds
    assert max(wrong.errors_ns) == pytest.approx(5_000_000, rel=0.01)
    stretched = clocks.clocks[-1].from_ns[0] + np.arange(100) * 2_000_000
    faster = Clock(from_ns=stretched, offset_ns=clocks.clocks[-1].offset_ns[0] + np.arange(100) * 400)
    score = score_clocks(
        changed(findings, clocks=structs.replace(clocks, clocks=[*clocks.clocks[:-1], faster])), truth
    )
    assert max(map(abs, score.rates_ppm)) == pytest.approx(
        200, rel=0.3
    )  # the last pieces are outside of the capture


def test_clocks_that_share_nothing_are_several_groups(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    table = findings.result.run.clocks.table.with_columns(group=pl.int_range(pl.len(), dtype=pl.UInt32))
    torn = changed(findings, clocks=structs.replace(findings.result.run.clocks, table=table))
    score = score_clocks(torn, truth)
    assert score.groups == len(table) > score.true_groups
    assert not score.is_right


def test_pairs_of_other_messages_are_wrong_and_dropped_ones_unpaired(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    score = score_pairs(findings, truth)
    assert (score.right, score.wrong, score.unpaired) == (score.messages, 0, 0)
    assert score.messages == 2 * 3 * 3 * 4  # directions, links, steps, micro-batches
    transfers = findings.training.transfers
    assert score_pairs(changed(findings, transfers=transfers.head(-5)), truth).unpaired == 5
    times = pl.col("receive_start_ns", "receive_end_ns", "receiver")
    rotated = transfers.with_columns(times.shift(1).fill_null(times.last()))
    score = score_pairs(changed(findings, transfers=rotated), truth)
    assert (score.right, score.wrong) == (0, score.messages)


def test_wrong_jobs_are_counted(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    score = score_jobs(findings, truth, chosen())
    assert score.jobs == 4 * 3 * 2 * 4
    assert (score.missing, score.extra, score.wrong_ids, score.unknown_ids) == (0, 0, 0, 0)
    assert (score.stages, score.lanes, score.schedule) == (4, 4, "right")
    assert score.largest_error_ns <= 2
    jobs = findings.training.jobs
    is_work = pl.col("kind").cast(pl.String).is_in(["forward", "backward"])
    shifted = jobs.with_columns(
        pl.when(is_work).then(pl.col("micro_batch") + 1).otherwise("micro_batch").alias("micro_batch")
    )
    assert score_jobs(changed(findings, jobs=shifted), truth, chosen()).wrong_ids == score.jobs
    later = jobs.with_columns(pl.col("compute_start_ns") + 1_000)
    score = score_jobs(changed(findings, jobs=later), truth, chosen())
    assert (score.missing, score.extra) == (score.jobs, score.jobs)
    assert score_jobs(findings, truth, chosen(f"{ARGUMENTS} --schedule gpipe")).schedule == "wrong"


def test_relabelled_causes_are_in_excess_unless_unknown(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    score = score_causes(findings, truth, RANKS)
    assert len(score.steps) == 4 * 3
    assert {step.position for step in score.steps} == {"first", "middle", "last"}
    assert all(step.is_whole for step in score.steps)
    states = findings.training.lane_states.with_columns(pl.col("cause").cast(pl.String))

    def relabel(cause: str) -> Any:
        renamed = states.with_columns(pl.col("cause").replace("message_wait", cause))
        return score_causes(changed(findings, lane_states=renamed), truth, RANKS)

    waits = [step.true_ns.get("message_wait", 0) for step in score.steps]
    assert max(step.worst[0] for step in relabel("host").steps) > 10
    assert {step.worst[1] for step in relabel("host").steps if step.worst[0] > 10} == {"host"}
    assert max(step.worst[0] for step in relabel("unknown").steps) <= max(
        step.worst[0] for step in score.steps
    )
    found = [step.found_ns.get("unknown", 0) for step in relabel("unknown").steps]
    assert found == pytest.approx(waits, rel=0.05, abs=300_000)
    assert max(step.worst[0] for step in relabel("message").steps) <= max(
        step.worst[0] for step in score.steps
    )
    assert max(step.worst[0] for step in relabel("message_transfer").steps) > 10
    assert {step.worst[1] for step in relabel("collective").steps if step.worst[0] > 10} == {"collective"}


def test_partial_and_lacking_steps_are_counted(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    steps = findings.training.steps
    partial = changed(findings, steps=steps.with_columns(is_partial=pl.col("step") == 11))
    score = score_causes(partial, truth, RANKS)
    assert (score.called_partial, score.called_complete, score.lacking) == (4, 0, 0)
    jobs = findings.training.jobs
    without = changed(
        findings, steps=steps.filter(pl.col("step") != 12), jobs=jobs.filter(pl.col("step") != 12)
    )
    assert score_causes(without, truth, RANKS).lacking == 4
    renumbered = pl.when(pl.col("lane") == 0).then(pl.col("step") + 1).otherwise("step").alias("step")
    other = changed(findings, steps=steps.with_columns(renumbered), jobs=jobs.with_columns(renumbered))
    assert score_causes(other, truth, RANKS).misnumbered == 3


def test_stragglers_are_compared_with_true_slowness(world: tuple[Findings, Truth]) -> None:
    findings, truth = world
    slow = findings.result.tables(["stragglers"])["stragglers"].with_columns(is_slow=pl.lit(True))
    result: Any = SimpleNamespace(
        training=findings.training, run=findings.result.run, tables=lambda _: {"stragglers": slow}
    )
    score = score_stragglers(Findings(findings.folder, result), truth, chosen())
    links = slow.filter(pl.col("what").cast(pl.String) == "link")
    assert sum(label.startswith("link") for label in score.false) == len(links) > 0
    slowed = score_stragglers(
        Findings(findings.folder, result), truth, chosen(f"{ARGUMENTS} --slow-link 0,1=3")
    )
    assert len(slowed.false) == len(score.false) - 1


def test_failures_and_refusals_are_scores() -> None:
    score = run_world(1, ["--schedule", "dualpipev", "--micro-batches", "2"])
    assert "needs 8 micro-batches" in score.error
    assert [found.kind for found in list_breaks(score)] == ["failure"]


def test_scores_are_kept_and_tables_are_written(tmp_path: Path) -> None:
    score = run_world(
        3, ["--brief-truth", "--pp", "2", "--micro-batches", "2", "--layers", "1", "--steps", "2"]
    )
    assert not score.error
    assert not score.refused
    for _ in range(2):
        append_score(tmp_path / "scores", score)
    scores: list[WorldScore] = list(read_scores(tmp_path / "scores"))
    assert [kept.seed for kept in scores] == [3, 3]
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- worlds -->\nold\n<!-- end of worlds -->\n\nafter\n")
    write_tables(page, "worlds", build_tables(scores))
    text = page.read_text()
    assert text.startswith("before\n\n<!-- worlds -->\n\n### Worlds")
    assert text.endswith("<!-- end of worlds -->\n\nafter\n")
    assert "old" not in text
    assert "### Causes" in text


def test_ranges_of_jobs_are_compared_with_their_kernels(world: tuple[Findings, Truth]) -> None:
    _, truth = world
    score = score_ranges(truth)
    assert (score.ranges, score.missing, score.wrong) == (4 * 3 * 2 * 4, 0, 0)
    moved = truth.table("jobs").with_columns(pl.col("kernel_end_ns") + 10)
    path = truth.folder / "truth" / "jobs.parquet"
    original = path.read_bytes()
    try:
        moved.write_parquet(path)
        assert score_ranges(truth).wrong == score.ranges
    finally:
        path.write_bytes(original)


def test_processes_score_the_same_worlds() -> None:
    outputs = []
    for processes in ("1", "2"):
        command = "-m tests.worlds --seed 110 --count 2 --only clocks --processes"
        ran = subprocess.run(
            [sys.executable, *command.split(), processes], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        outputs.append([line for line in ran.stdout.splitlines() if "seconds" not in line])
    assert outputs[0] == outputs[1]
    assert any("bound broken" in line for line in outputs[0])
