"""`nsys-pp align`: clocks of all machines on one time axis, with error bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack, cast

import polars as pl

from nsys_pp.frames.part import PartOptions
from nsys_pp.read import is_part
from nsys_pp.run.inputs import Batch, Result, label_reports, read_part_input
from nsys_pp.run.options import ClockOptions, Inputs, RunOptions, check_keywords
from nsys_pp.run.report import Input, survey_report
from nsys_pp.run.run import Run
from nsys_pp.tables.listings import CLOCK_TABLE as CLOCK_TABLE


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AlignResult(Result):
    """Aligned clocks."""

    clocks: pl.DataFrame  # `CLOCKS` of `nsys_pp.frames.clock`
    labels: list[str]  # of the reports that its column `reports` counts
    paths: list[Path]  # likewise


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
    batch = Batch(inputs, options)

    def read(run: Run) -> list[Input]:
        work = partial(_read_input, nsys=batch.nsys, checks_frames=batch.keeps_going)
        return [*batch.map("reading", batch.paths, work).values()]

    run = Run(batch, cast(RunOptions, options), read=read, last_stage="clocks")
    paths = [recorded.path for recorded in run.inputs]
    return AlignResult(
        clocks=run.clocks.table,
        labels=label_reports(paths),
        paths=paths,
        skipped=run.skipped,
        row_counts=run.row_counts,
    )


def _read_input(path: Path, *, nsys: str | None, checks_frames: bool) -> Input:
    if is_part(path):
        return read_part_input(path, checks_frames=checks_frames)
    return survey_report(path, PartOptions(), nsys=nsys)
