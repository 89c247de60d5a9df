"""Share of compute that belongs to no job, against its definition in plain loops and in simulated runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nsys_pp.frames.training import LANE_COMPUTE_SEGMENTS, RUN_JOBS
from nsys_pp.training.schedule import measure_unexplained
from tests.commands.whole import run
from tests.training.scheduled_runs import fill_columns

_KINDS = ("forward", "backward", "optimizer", "other")


def measure_by_loops(jobs: pl.DataFrame, segments: pl.DataFrame) -> float | None:
    computed = [
        (row["lane"], at) for row in segments.rows(named=True) for at in range(row["start_ns"], row["end_ns"])
    ]
    rows = jobs.rows(named=True)
    inside, explained = 0, 0
    for lane, at in computed:
        own = [row for row in rows if row["lane"] == lane]
        for step in {row["step"] for row in own}:
            scheduled = [row for row in own if row["step"] == step and row["kind"] in ("forward", "backward")]
            if not scheduled:
                continue
            last = max(row["compute_end_ns"] for row in scheduled)
            updates = [
                row["compute_start_ns"]
                for row in own
                if row["step"] == step and row["kind"] == "optimizer" and row["compute_start_ns"] >= last
            ]
            if min(row["compute_start_ns"] for row in scheduled) <= at < min(updates, default=last):
                inside += 1
                explained += any(row["compute_start_ns"] <= at < row["compute_end_ns"] for row in own)
    return (inside - explained) / inside if inside else None


@pytest.mark.parametrize("seed", range(40))
def test_the_share_is_its_definition(seed: int) -> None:
    """Steps follow each other on each lane; jobs may overlap, and lie anywhere beside the segments."""
    rng = np.random.default_rng(seed)
    jobs, segments = [], []
    for lane in range(int(rng.integers(1, 4))):
        for step in range(int(rng.integers(0, 3))):
            for _ in range(int(rng.integers(0, 6))):
                start = step * 40 + int(rng.integers(0, 30))
                jobs.append(
                    {
                        "lane": lane,
                        "step": step,
                        "kind": _KINDS[int(rng.integers(0, 4))],
                        "compute_start_ns": start,
                        "compute_end_ns": start + int(rng.integers(1, 9)),
                    }
                )
        edges = np.sort(rng.choice(90, 2 * int(rng.integers(0, 12)), replace=False)).tolist()
        segments += [
            {"lane": lane, "start_ns": start, "end_ns": end}
            for start, end in zip(edges[::2], edges[1::2], strict=True)
        ]
    both = [
        fill_columns(pl.DataFrame(rows, schema=columns), schema)
        for rows, columns, schema in (
            (jobs, ["lane", "step", "kind", "compute_start_ns", "compute_end_ns"], RUN_JOBS),
            (segments, ["lane", "start_ns", "end_ns"], LANE_COMPUTE_SEGMENTS),
        )
    ]
    expected, measured = measure_by_loops(*both), measure_unexplained(*both)
    assert measured == (None if expected is None else pytest.approx(expected))


@pytest.mark.few(1)
@pytest.mark.parametrize("micro_batches", [4, 8])
def test_weight_gradients_without_ranges_make_the_schedule_uncertain(
    micro_batches: int, tmp_path: Path
) -> None:
    options = f"--schedule zb-h1 --steps 2 --layers 1 --micro-batches {micro_batches}"
    named = run(tmp_path / "named", options).found
    assert (named.schedule.name, named.schedule.source) == ("zb-h1", "recognised")
    assert named.schedule.unexplained == pytest.approx(0, abs=0.001)
    found = run(tmp_path / "unnamed", f"{options} --unnamed-weights").found
    assert (found.schedule.name, found.schedule.source) == ("1f1b", "uncertain")
    assert found.schedule.unexplained == pytest.approx(0.22, abs=0.03)
    assert any("22% of the compute between jobs belongs to no job" in note for note in found.notes)
    assert found.ideal.is_empty()
