"""`nsys-pp compare`: differences between two runs of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from nsys_pp.commands.pipeline import pipeline
from nsys_pp.compose.batch import Skipped
from nsys_pp.compose.options import Inputs, RunOptions, check_keywords
from nsys_pp.compose.progress import split_progress
from nsys_pp.frames.short_repr import ShortRepr
from nsys_pp.tables.compare.compare import TABLES, compare_trainings
from nsys_pp.tables.compare.gates import check_gates, parse_gate

if TYPE_CHECKING:
    from typing_extensions import Unpack

COMPARE_TABLES = TABLES
"""Tables of `CompareResult.tables`, by name."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareResult(ShortRepr):
    """Differences from run A to run B."""

    tables: dict[str, pl.DataFrame]  # `COMPARISON` of `nsys_pp.tables.compare.compare`, by name
    failures: list[str]  # gates that B fails, in sentences
    notes: list[str]  # doubtful facts of either run, in sentences
    skipped: Skipped  # inputs of both runs
    row_counts: pl.DataFrame  # `RUN_ROW_COUNTS` of both runs


def compare(
    a: Inputs, b: Inputs, *, gates: str | Sequence[str] = (), **options: Unpack[RunOptions]
) -> CompareResult:
    """Compare two runs: steps, bubbles, stages, kinds of job, kernels.

    Args:
        a: Baseline run: reports, parts, folders of them, or glob patterns.
        b: Run to judge.
        gates: Limits for B, as in `bubble>5%` (`nsys_pp.tables.compare.gates`).
        options: See `nsys_pp.RunOptions`; they apply to each of the runs.

    Raises:
        ReportError: A report cannot be read, or is named twice in one run.
        MissingDataError: A run has no GPU operations.
        GateError: A gate is invalid, or the runs lack its quantity.
    """
    check_keywords(options, RunOptions)
    parsed = [parse_gate(gate) for gate in ([gates] if isinstance(gates, str) else gates)]
    runs = []
    for number, inputs in enumerate((a, b)):
        progress = split_progress(options.get("progress"), number, 2)
        run_options: RunOptions = {**options, "progress": progress}
        runs.append(pipeline(inputs, **run_options))
    tables = compare_trainings(*(run.training for run in runs))
    return CompareResult(
        tables=tables,
        failures=check_gates(tables, parsed),
        notes=[
            f"{name}: {note}" for name, run in zip("AB", runs, strict=True) for note in run.training.notes
        ],
        skipped=[entry for run in runs for entry in run.skipped],
        row_counts=pl.concat(run.row_counts for run in runs),
    )
