"""`nsys-pp compare`: what changed between two runs of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys_pp.commands.pipeline import pipeline
from nsys_pp.compose.progress import Progress, share_of
from nsys_pp.compose.run_training import TrainingOptions
from nsys_pp.compose.trace_layout import Overrides
from nsys_pp.compose.work import WorkOptions
from nsys_pp.tables.compare.compare import compare_trainings
from nsys_pp.tables.compare.gates import check_gates, parse_gate


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareResult:
    """What changed from run A to run B."""

    tables: dict[str, pl.DataFrame]  # `COMPARISON` of `nsys_pp.tables.compare.compare`, by name
    failures: list[str]  # gates that B does not pass, in sentences
    notes: list[str]  # what is doubtful about either run, in sentences


def compare(
    a: str | Path,
    b: str | Path,
    *,
    training: TrainingOptions | None = None,
    overrides: Overrides | None = None,
    gates: Sequence[str] = (),
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> CompareResult:
    """Compare two runs: steps, bubbles, stages, kinds of job, kernels.

    Args:
        a: The run to compare with: a report, a part, a directory of them, or a glob pattern.
        b: The run to judge.
        training: What is said of jobs and steps of both.
        overrides: What is said of clocks and ranks of both.
        gates: Limits that B must keep, as `nsys_pp.tables.compare.gates` reads them.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or is twice in one run.
        MissingDataError: A run has nothing that is known to be a job.
        GateError: A gate cannot be read, or is about what the runs do not have.
    """
    parsed = [parse_gate(gate) for gate in gates]
    runs = [
        pipeline(
            [run],
            training=training,
            overrides=overrides,
            nsys=nsys,
            work=work,
            progress=share_of(progress, half, 2),
        )
        for half, run in enumerate((a, b))
    ]
    tables = compare_trainings(*(run.training for run in runs))
    notes = [f"{name}: {note}" for name, run in zip("AB", runs, strict=True) for note in run.training.notes]
    return CompareResult(tables=tables, failures=check_gates(tables, parsed), notes=notes)
