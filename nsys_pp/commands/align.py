"""`nsys-pp align`: clocks of all machines on one time axis, with error bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from nsys_pp.errors import OptionError
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.run.batch import Batch, Skipped
from nsys_pp.run.inputs import Input, label_reports, read_inputs, survey_any_input
from nsys_pp.run.options import Inputs, RunOptions, check_keywords
from nsys_pp.run.run import Run
from nsys_pp.run.run_clocks import write_clocks
from nsys_pp.tables.clocks import CLOCK_TABLE as CLOCK_TABLE
from nsys_pp.write.files import check_output

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


def align(
    inputs: Inputs, output: str | Path | None = None, *, force: bool = False, **options: Unpack[RunOptions]
) -> AlignResult:
    """Align the clocks of all reports, as `merge` does, and return their offsets and error bounds.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns. Parts of detail "jobs" suffice.
        output: File to write, for `clocks` of `nsys_pp.merge`: clocks and bounds of all reports, and the rows of a trace that depend on all
            of them (steps, jobs, messages with their arrows).
        force: Replace an existing file.
        options: See `nsys_pp.RunOptions`; those of the training count for the output alone. `steps` is not possible.

    Raises:
        OptionError: `steps` is set.
        OutputError: The output exists, or cannot be written.
        ReportError: A report cannot be read, or is named twice; with `keep_going`, none can be read.
        ClockError: An offset is of an unknown machine.
    """
    check_keywords(options, RunOptions)
    if options.get("steps") is not None:
        raise OptionError("steps", "clocks are of all steps; omit `--steps`")
    batch = Batch(inputs, options)
    if output is None:
        run = Run(batch, options, read=_read_inputs, last_stage="clocks")
    else:
        target = Path(output)
        check_output(target, force=force, inputs=batch.paths)
        run = Run(batch, options, read=_read_training)
        write_clocks(run, target, force=force)
    paths = [recorded.path for recorded in run.inputs]
    return AlignResult(
        clocks=run.clocks.table,
        labels=label_reports(paths),
        paths=paths,
        skipped=run.skipped,
        row_counts=run.row_counts,
    )


def _read_training(run: Run) -> list[Input]:
    return read_inputs(run.batch, run.job_options, doing="reading")


def _read_inputs(run: Run) -> list[Input]:
    read = partial(survey_any_input, nsys=run.batch.nsys, checks_frames=run.batch.keeps_going)
    return list(run.batch.map("reading", run.batch.paths, read).values())
