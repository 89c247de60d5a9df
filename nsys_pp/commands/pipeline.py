"""`nsys-pp pipeline`: how a pipeline ran, as frames and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys_pp.compose.batch import Skipped
from nsys_pp.compose.inputs import Input, drop_repeated, read_all
from nsys_pp.compose.progress import Progress, tell
from nsys_pp.compose.run_training import NOT_INFERRED, TrainingOptions, find_training
from nsys_pp.compose.trace_layout import Overrides, Plan, make_plan
from nsys_pp.compose.work import WorkOptions
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.read import is_part, read_report
from nsys_pp.tables.training.registry import TABLES
from nsys_pp.training.report.vocabulary import list_matching_presets

_NAME_THEM = (
    "take the preset of your framework with `--preset`, or name the ranges with `--job-pattern forward=REGEX` and the like"
    " (docs/presets.md)"
)
PIPELINE_TABLES: Mapping[str, str] = {name: table.title for name, table in TABLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """A training run, and what it was read from."""

    training: Training
    plan: Plan
    skipped: Skipped

    def tables(self, names: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Make tables by their names in `PIPELINE_TABLES`; all of them if None."""
        return {name: TABLES[name].build(self.training) for name in (TABLES if names is None else names)}


def pipeline(
    inputs: Sequence[str | Path],
    *,
    training: TrainingOptions | None = None,
    overrides: Overrides | None = None,
    keep_going: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> PipelineResult:
    """Find out how a pipeline ran: its steps, jobs, messages, bubbles and schedule.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        training: What is said of jobs and steps.
        overrides: What is said of clocks and ranks.
        keep_going: Skip reports that cannot be read, and say so in the result.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or is there twice.
        MissingDataError: No report has anything that is known to be a job.
        NsysPPError: Rules cannot be read; or none of the steps that are asked for is there.
    """
    training = training or TrainingOptions()
    given, batch = read_all(
        inputs,
        training.of_parts(),
        doing="analysing",
        keep_going=keep_going,
        nsys=nsys,
        work=work,
        progress=progress,
    )
    tell(progress, "aligning reports", 1)
    different = drop_repeated(given, batch)
    plan = make_plan(different, root="", devices=None, overrides=overrides or Overrides())
    found = find_training(plan, training)
    if found.jobs.is_empty():
        raise _nothing_known(different, found, training, nsys)
    return PipelineResult(training=found, plan=plan, skipped=batch.skipped)


def _nothing_known(
    given: Sequence[Input], found: Training, options: TrainingOptions, nsys: str | None
) -> MissingDataError:
    """Say why there are no jobs, and what would help."""
    one = len(given) == 1
    none = f"`{given[0].path}` has no" if one else f"none of the {len(given)} reports has"
    if all(len(report.identity.devices) == 0 for report in given):
        return MissingDataError(f"{none} GPU operations", "record them with `nsys profile --trace cuda,nvtx`")
    if any(len(report.part.frames["jobs"]) for report in given):
        return MissingDataError(
            f"{none} {'' if one else 'a '}job that launched GPU work: names say what is a job, but no call inside launched a kernel",
            "`--scope process` counts what other threads launched; `nsys-pp project` shows what each range ran",
        )
    no_range = f"{none} {'' if one else 'an '}NVTX range that is known to be a job"
    if options.infer_jobs:
        why = next((note for note in found.notes if note.startswith(NOT_INFERRED)), NOT_INFERRED)
        return MissingDataError(f"{no_range}, and {why}", f"{_NAME_THEM}; `--layout` tells stages")
    hint = _NAME_THEM
    if options.preset is None and (some := [one.path for one in given if not is_part(one.path)]):
        report = build_report(read_report(some[0], need=frozenset({"ranges"}), nsys=nsys))
        if fitting := list_matching_presets(report.ranges):
            hint = f"`--preset {fitting[0]}` would read some of them; too few to take it without a word"
    if len(found.transfers):
        hint += "; or let `--infer-jobs` guess them from messages"
    return MissingDataError(no_range, hint)
