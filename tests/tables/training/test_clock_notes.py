"""Notes on clocks of GPUs, from metrics of simulated runs."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import nsys_pp
from fixtures.recording.metrics import DDL
from tests.cli.calls import call as run_command

PIPELINE = Path(__file__).parents[3] / "fixtures" / "pipeline"
USUAL_MHZ, LOW_MHZ = 1980, 1400


def add_clocks(folder: Path, *, low: dict[int, set[int] | None]) -> None:
    """Add the clock of each lane's GPU to the report of its process: low in steps of lanes, or in all (None)."""
    result = nsys_pp.pipeline(folder)
    training, run = result.training, result.run
    for at, recorded in enumerate(run.inputs):
        clock = run.clocks.clocks[at]
        rows = []
        for lane, gpu in training.lanes.filter(report=at).select("lane", "gpu").iter_rows():
            chosen = low.get(lane, set())
            kind = (1 << 56) + int(gpu.removeprefix("GPU "))
            first = USUAL_MHZ if chosen is not None else LOW_MHZ
            steps = training.steps.filter(lane=lane).select("step", "start_ns", "end_ns").rows()
            edges = {0: first} | {clock.to_report(end): first for _, _, end in steps}
            edges |= {
                clock.to_report(start): LOW_MHZ if chosen is None or step in chosen else USUAL_MHZ
                for step, start, _ in steps
            }
            rows += [(time, kind, 0, value * 1_000_000) for time, value in edges.items()]
        with closing(sqlite3.connect(recorded.path)) as connection, connection:
            connection.executescript(DDL)
            connection.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", sorted(rows))
            kinds = {row[1] for row in rows}
            connection.executemany(
                "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, 'GPU Metrics', 0, 'GPC Clock Frequency [MHz]')",
                [(kind,) for kind in kinds],
            )


def notes_of(tmp_path: Path, low: dict[int, set[int] | None]) -> list[str]:
    folder = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, folder)
    add_clocks(folder, low=low)
    result = nsys_pp.pipeline(folder)
    assert result.metric_notes() == []
    result.tables(["metrics"])
    done = run_command("pipeline", folder, "--table", "step_metrics")
    notes = result.metric_notes()
    assert all(note in done.stderr.replace("\n", " ") for note in notes)
    return notes


def test_a_clock_that_falls_in_a_step_is_noted(tmp_path: Path) -> None:
    steps = nsys_pp.pipeline(PIPELINE).training.steps["step"].unique().sort().to_list()
    assert len(steps) >= 3
    (note,) = notes_of(tmp_path, {2: {steps[1]}})
    assert "rank 2" in note
    assert f"fell from 1,980 MHz, the median of its steps, to 1,400 MHz in step {steps[1]};" in note
    assert "nsys does not record why" in note


def test_a_gpu_with_a_lower_clock_than_others_is_noted(tmp_path: Path) -> None:
    (note,) = notes_of(tmp_path, {1: None})
    assert "rank 1" in note
    assert "is 1,400 MHz, the median of all GPUs 1,980 MHz" in note


def test_equal_clocks_are_not_noted(tmp_path: Path) -> None:
    assert notes_of(tmp_path, {}) == []
