"""`nsys-pp summary`: times of operators, kernels, copies, communication and the CPU, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Unpack

import polars as pl

from nsys_pp.aggregates.items import MOST_NAMES
from nsys_pp.aggregates.registry import concatenate_frames, list_processes
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES, Summary
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.table import Absence, Table, fill_tables
from nsys_pp.frames.verdict import Verdict
from nsys_pp.model.contents import explain_absence
from nsys_pp.options import SUMMARY_GROUPS
from nsys_pp.projection.ranges import Scope
from nsys_pp.run.inputs import Batch, Skipped, read_inputs
from nsys_pp.run.options import Inputs, RunOptions, check_choice, check_keywords, parse_counted_ops
from nsys_pp.run.report import Input
from nsys_pp.run.requested import explain
from nsys_pp.run.run import Run, select_steps
from nsys_pp.tables import registry
from nsys_pp.tables.verdict import build_verdict, build_verdict_table

_FOLDED = (
    f"in {{}} of the reports, ranges have more than {MOST_NAMES:,} names: numbers in them are shown as #"
)
_ON_FIRST = (
    "times on the CPU of a process with several GPUs have no GPU: they are in the rows of its first one"
)
# Tables of `SummaryResult.tables`, by name.
SUMMARY_TABLES = registry.SUMMARY_TABLES


@dataclass(frozen=True, kw_only=True, repr=False)  # without slots, for the cached verdict
class SummaryResult(ShortRepr):
    """Tables of a summary."""

    tables: dict[str, pl.DataFrame]  # by name, without absent ones
    absent: dict[str, Absence]  # tables whose data no report has
    notes: list[str] = field(default_factory=list)  # inferred and doubtful facts, in sentences
    skipped: Skipped
    run: Run  # inputs, roster and clocks

    @property
    def row_counts(self) -> pl.DataFrame:
        """Rows of all reports, used, and left out by reason (`RUN_ROW_COUNTS`)."""
        return self.run.row_counts

    @cached_property
    def verdict(self) -> Verdict:
        """At most five findings, by the time of a step that could be gained.

        On first use, the training is analysed.
        """
        training = self.run.training
        return build_verdict(training, explain(self.run, training))

    def verdict_table(self) -> pl.DataFrame:
        """Return the findings as the rows of a table."""
        return build_verdict_table(self.verdict)

    def _repr_html_(self) -> str:
        """Return the first rows of all tables that have any, for notebooks."""
        from nsys_pp.output.tables.formats import format_html

        return format_html(fill_tables(SUMMARY_TABLES, self.tables))


def summary(
    inputs: Inputs,
    *,
    tables: Sequence[str] | None = None,
    by: str = "run",
    paddle_compat: bool = False,
    ops: str | Sequence[str] | None = None,
    scope: Scope | None = None,
    **options: Unpack[RunOptions],
) -> SummaryResult:
    """Sum the times of all reports.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns. Parts contain aggregates: none of their
            events is read.
        tables: Names in `SUMMARY_TABLES`; all of them if None.
        by: Group of the rows: "run", "machine", "rank" and others.
        paddle_compat: Count communication as Paddle's tables do.
        ops: GPU operations that ranges are projected onto. Default: those of the parts, else "kernel".
        scope: Launches that count for a range. Default: that of the parts, else "auto".
        options: See `nsys_pp.RunOptions`; `schedule` and `infer_jobs` have no effect.

    Raises:
        ReportError: A report cannot be read, or is named twice, or a part was made with other options.
        NsysPPError: Rules cannot be read, or `steps` contains none of the steps.
    """
    check_keywords(options, RunOptions)
    check_choice("by", by, SUMMARY_GROUPS)
    names = tuple(SUMMARY_TABLES) if tables is None else tuple(tables)
    for name in names:
        check_choice("tables", name, SUMMARY_TABLES)
    counted = {"ops": None if ops is None else parse_counted_ops(ops), "scope": scope}

    def read(run: Run) -> list[Input]:
        return read_inputs(run.batch, run.job_options | counted, doing="summing up", with_aggregates=True)

    run = Run(Batch(inputs, options), options, read=read, last_stage="numbered_steps")
    sums, notes = join_aggregates(run)
    owners = sums.processes.select("report", "process_key")
    if by in ("rank", "device") and owners.is_duplicated().any():
        notes.append(_ON_FIRST)
    chosen = registry.PADDLE_TABLES if paddle_compat else SUMMARY_TABLES
    built, absent = build_tables(sums, names, chosen, by=by)
    return SummaryResult(tables=built, absent=absent, notes=notes, skipped=run.skipped, run=run)


def build_tables(
    summary: Summary, names: Sequence[str], tables: Mapping[str, Table[[Summary, str]]], *, by: str = "run"
) -> tuple[dict[str, pl.DataFrame], dict[str, Absence]]:
    """Build tables of a summary.

    Args:
        summary: Its aggregates.
        names: Names of the tables.
        tables: Tables by name.
        by: Group of the rows.

    Returns:
        Rows by name; and by name the reason for each table whose data no report has, with the option that
        records it.
    """
    recorded = frozenset[str]().union(*summary.recorded)
    absent = {
        name: explain_absence(needs, recorded)
        for name in names
        if (needs := tables[name].needs) and not recorded & set(needs)
    }
    return {name: tables[name].build(summary, by) for name in names if name not in absent}, absent


def join_aggregates(run: Run) -> tuple[Summary, list[str]]:
    """Join the aggregates of all reports, with the numbers of the run's steps.

    Args:
        run: A run whose inputs were read with aggregates.

    Returns:
        The summary, and notes on its steps and names.

    Raises:
        NsysPPError: `steps` contains none of the steps.
    """
    numbered = run.numbered_steps
    reports = [{name: recorded.part.frames[name] for name in AGGREGATE_FRAMES} for recorded in run.inputs]
    processes = list_processes(run.roster, numbered.lanes, reports, join=run.captures.join)
    frames = concatenate_frames(reports, processes, numbered.numbers, join=run.captures.join)
    if run.steps is not None:
        is_selected = select_steps(numbered.steps, run.steps)
        frames = {name: frame.filter(is_selected) for name, frame in frames.items()}
    recorded = tuple(frozenset(report.part.facts.recorded) for report in run.inputs)
    notes = [*numbered.notes]
    if folded := sum(report.part.facts.is_folded for report in run.inputs):
        notes.append(_FOLDED.format(folded))
    gpus = processes.drop_nulls("gpu").group_by("machine", "gpu", maintain_order=True).len()
    if shared := gpus.filter(pl.col("len") > 1).rows():
        machine, gpu, count = shared[0]
        more = f" (and {len(shared) - 1:,} more GPUs likewise)" if len(shared) > 1 else ""
        notes.append(
            f"{count} processes used {gpu} of {machine}{more}: its times and spans are those of each, summed"
        )
    return Summary(processes=processes, frames=frames, recorded=recorded), notes
