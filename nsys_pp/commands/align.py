"""`nsys-pp align`: where each report stands on one clock, and how well that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from nsys_pp.compose.batch import Batch, Skipped
from nsys_pp.compose.clocks import align_inputs
from nsys_pp.compose.inputs import Input, drop_repeated, read_part_input, survey_input
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.report_view import label_reports
from nsys_pp.compose.trace_layout import Overrides, build_run_roster
from nsys_pp.compose.work import WorkOptions, choose_executor
from nsys_pp.frames.part import PartOptions
from nsys_pp.read import find_reports, is_part


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignResult:
    """Where clocks stand."""

    clocks: pl.DataFrame  # `CLOCKS` of `nsys_pp.alignment.clocks`
    labels: list[str]  # of the reports that its column `reports` counts
    paths: list[Path]
    skipped: Skipped


def align(
    inputs: Sequence[str | Path],
    *,
    overrides: Overrides | None = None,
    keep_going: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> AlignResult:
    """Put all reports on one clock, as `merge` does, and tell how good that is.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        overrides: What is said of clocks and ranks.
        keep_going: Skip reports that cannot be read.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or is there twice; with `keep_going`, none can be read.
        ClockError: An offset was given for a machine that is not there.
    """
    paths = find_reports(inputs, with_parts=True)
    batch = Batch(paths, keep_going=keep_going, progress=progress, workers=choose_executor(work, paths))
    given = list(batch.spread("reading", paths, partial(_survey, nsys=nsys)).values())
    given = drop_repeated(given, batch)
    overrides = overrides or Overrides()
    placed = align_inputs(given, build_run_roster(given, overrides), overrides.clocks)
    return AlignResult(
        clocks=placed.table,
        labels=label_reports([one.path for one in given]),
        paths=[one.path for one in given],
        skipped=batch.skipped,
    )


def _survey(path: Path, nsys: str | None) -> Input:
    return read_part_input(path) if is_part(path) else survey_input(path, PartOptions(), nsys=nsys)
