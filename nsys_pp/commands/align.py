"""`nsys-pp align`: clocks of all machines on one time axis, with error bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import polars as pl

from nsys_pp.frames.conform import ShortRepr
from nsys_pp.run.batch import Batch, Skipped
from nsys_pp.run.inputs import Input, label_reports, survey_any_input
from nsys_pp.run.options import ClockOptions, Inputs, RunOptions, check_keywords
from nsys_pp.run.run import Run
from nsys_pp.tables.listings import CLOCK_TABLE as CLOCK_TABLE

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AlignResult(ShortRepr):
    """Aligned clocks."""

    clocks: pl.DataFrame  # `CLOCKS` of `nsys_pp.frames.clock`
    labels: list[str]  # of the reports that its column `reports` counts
    paths: list[Path]  # likewise
    skipped: Skipped
    row_counts: pl.DataFrame  # `RUN_ROW_COUNTS`: rows of all reports, used, and left out by reason


def align(inputs: Inputs, **options: Unpack[ClockOptions]) -> AlignResult:
    """Align the clocks of all reports, as `merge` does, and return their offsets and error bounds.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns. Parts of detail "jobs" suffice.
        options: See `nsys_pp.ClockOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice; with `keep_going`, none can be read.
        ClockError: An offset is of an unknown machine.
    """
    check_keywords(options, ClockOptions)
    run = Run(Batch(inputs, options), cast(RunOptions, options), read=_read_inputs, last_stage="clocks")
    paths = [recorded.path for recorded in run.inputs]
    return AlignResult(
        clocks=run.clocks.table,
        labels=label_reports(paths),
        paths=paths,
        skipped=run.skipped,
        row_counts=run.row_counts,
    )


def _read_inputs(run: Run) -> list[Input]:
    read = partial(survey_any_input, nsys=run.batch.nsys, checks_frames=run.batch.keeps_going)
    return list(run.batch.map("reading", run.batch.paths, read).values())
