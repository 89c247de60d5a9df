"""`nsys-pp pipeline`: the training of a run, as frames and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from nsys_pp.compose.batch import Batch, Skipped
from nsys_pp.compose.inputs import Input, read_inputs
from nsys_pp.compose.options import Inputs, RunOptions, check_keywords
from nsys_pp.compose.run import Run
from nsys_pp.compose.run_training import NOT_INFERRED
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.short_repr import ShortRepr
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_report
from nsys_pp.tables.training.registry import TABLES
from nsys_pp.training.report.rule_choice import list_matching_presets

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAME_THEM = (
    "take the preset of your framework with `--preset`, or name the ranges with `--job-pattern forward=REGEX` and"
    " the like (docs/presets.md)"
)
PIPELINE_TABLES = TABLES
"""Tables of `PipelineResult.tables`, by name."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PipelineResult(ShortRepr):
    """Training of a run."""

    training: Training
    run: Run  # inputs, roster and clocks
    skipped: Skipped

    def tables(self, names: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Build tables by their names in `PIPELINE_TABLES`; all of them if None."""
        return {name: TABLES[name].build(self.training) for name in (TABLES if names is None else names)}


def pipeline(inputs: Inputs, **options: Unpack[RunOptions]) -> PipelineResult:
    """Analyse the training of a run: steps, jobs, messages, bubbles and schedule.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        MissingDataError: No report has a job.
        NsysPPError: Rules cannot be read, or `steps` contains none of the steps.
    """
    check_keywords(options, RunOptions)
    return build_pipeline(Batch(inputs, options), options)


def build_pipeline(
    batch: Batch, options: RunOptions, *, check: Callable[[Sequence[Path]], None] | None = None
) -> PipelineResult:
    """Analyse the training of a batch.

    Args:
        batch: Batch of the inputs.
        options: Keywords.
        check: Checks an output, and receives the paths of all inputs before any is read.

    Raises:
        NsysPPError: As in `pipeline`, or raised by `check`.
    """
    run = Run(batch, options, read=_read_inputs)
    if check is not None:
        check(batch.paths)
    if run.training.jobs.is_empty():
        raise _no_jobs_error(run, options)
    return PipelineResult(training=run.training, run=run, skipped=run.skipped)


def _read_inputs(run: Run) -> list[Input]:
    return read_inputs(run.batch, run.job_options, doing="analysing")


def _no_jobs_error(run: Run, options: RunOptions) -> MissingDataError:
    """Return the error of a run without jobs, with the option that helps."""
    inputs, training = run.inputs, run.training
    is_single = len(inputs) == 1
    none = f"`{inputs[0].path}` has no" if is_single else f"none of the {len(inputs)} reports has"
    if all(len(recorded.identity.devices) == 0 for recorded in inputs):
        return MissingDataError(f"{none} GPU operations", "record them with `nsys profile --trace cuda,nvtx`")
    if any(len(recorded.part.frames["jobs"]) for recorded in inputs):
        return MissingDataError(
            f"{none} {'' if is_single else 'a '}job that launched GPU work: names say what is a job, but no call"
            " inside launched a kernel",
            "`--scope process` counts what other threads launched; `nsys-pp project` shows what each range ran",
        )
    no_range = f"{none} {'' if is_single else 'an '}NVTX range that is known to be a job"
    if options.get("infer_jobs"):
        why = next((note for note in training.notes if note.startswith(NOT_INFERRED)), NOT_INFERRED)
        return MissingDataError(f"{no_range}, and {why}", f"{_NAME_THEM}; `--layout` tells stages")
    hint = _NAME_THEM
    reports = [recorded.path for recorded in inputs if not is_part(recorded.path)]
    if options.get("preset") is None and reports:
        ranges = build_report(read_report(reports[0], need=frozenset({"ranges"}), nsys=run.batch.nsys)).ranges
        if presets := list_matching_presets(ranges):
            hint = (
                f"`--preset {presets[0]}` would read the most of them, but too few to be detected; `--explain-jobs` lists"
                " all names"
            )
    if any(len(recorded.part.frames["messages"]) for recorded in inputs):
        hint += "; or let `--infer-jobs` guess them from messages"
    return MissingDataError(no_range, hint)
