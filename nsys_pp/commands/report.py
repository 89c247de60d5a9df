"""`nsys-pp report`: one page from the verdict to its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Unpack

import polars as pl

from nsys_pp.commands.pipeline import PipelineResult, build_pipeline
from nsys_pp.commands.summary import SUMMARY_TABLES, build_tables, join_aggregates
from nsys_pp.errors import OptionError, describe_path, quote_argument
from nsys_pp.frames.part import REPORT
from nsys_pp.frames.table import FilledTable, fill_tables
from nsys_pp.frames.verdict import Verdict
from nsys_pp.model.contents import list_missing_of
from nsys_pp.output.chart.content import describe_run
from nsys_pp.output.files import check_output, open_output, replace_file
from nsys_pp.output.pages.report import PageSource, TraceLinks, list_tables, write_report
from nsys_pp.run.inputs import Batch, Result, label_reports
from nsys_pp.run.options import Inputs, RunOptions, check_keywords
from nsys_pp.run.report import Input
from nsys_pp.tables.analysis import Evidence
from nsys_pp.tables.listings import CLOCK_TABLE, build_clock_table
from nsys_pp.tables.page import build_rank_steps, choose_steps, measure_steps
from nsys_pp.tables.registry import TABLES
from nsys_pp.units import format_count
from nsys_pp.viewer import SITE, build_address


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportResult(Result):
    """A page about a run."""

    output: Path
    lanes: int
    steps: int
    facts: list[str]  # schedule, stages, micro-batches, lanes and clocks, in short phrases
    empty: dict[str, str]  # sections without contents, by name, with the reason
    notes: list[str]  # inferred, refused and doubtful facts, in sentences
    verdict: Verdict


def report(
    inputs: Inputs,
    output: str | Path,
    *,
    title: str | None = None,
    trace: str | Path | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> ReportResult:
    """Write a page about a run: the verdict, and its evidence in charts, a heat map and tables.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        output: The page.
        title: Heading of the page. Default: the name of the output.
        trace: Trace of the run (`nsys_pp.merge`) that the page opens at findings and steps: a file, for
            commands of `nsys-pp open`, or an address, for links.
        force: Replace an existing output.
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        MissingDataError: No report has GPU operations.
        OutputError: The output exists, or cannot be written.
        NsysPPError: Rules cannot be read, or `steps` contains none of the steps.
    """
    check_keywords(options, RunOptions)
    target = Path(output)
    if target.suffix.lower() not in ("", ".html", ".htm"):
        raise OptionError("output", f"unknown extension of {target}; expected .html")
    check_output(target, force=force)
    result = build_pipeline(
        Batch(inputs, options),
        options,
        with_aggregates=True,
        check=lambda paths: check_output(target, force=force, inputs=paths),
    )
    source = build_source(result, title=describe_path(target.stem) if title is None else title, trace=trace)
    with replace_file(target, force=force) as path, open_output(path) as stream:
        empty = write_report(source, stream)
    return ReportResult(
        output=target,
        lanes=len(result.training.lanes),
        steps=result.training.step_count,
        facts=describe_run(result.training),
        empty={name: reason for name, reason in empty.items() if reason},
        notes=result.training.notes,
        verdict=result.verdict,
        skipped=result.skipped,
        row_counts=result.row_counts,
    )


def build_source(result: PipelineResult, *, title: str, trace: str | Path | None = None) -> PageSource:
    """Build the source of a page from an analysis whose inputs were read with aggregates."""
    training, run = result.training, result.run
    summary, summary_notes = join_aggregates(run)
    of_training, of_summary = list_tables()
    sums, absent = build_tables(summary, of_summary, SUMMARY_TABLES)
    names = [name for name in of_training if name in TABLES]
    labels = label_reports([recorded.path for recorded in run.inputs])
    clocks = FilledTable(table=CLOCK_TABLE, frame=build_clock_table(run.clocks.table, labels))
    evidence = Evidence(training)
    lengths = measure_steps(evidence)
    devices = pl.concat(recorded.identity.devices.select("name") for recorded in run.inputs)
    doubts = (
        text.replace(REPORT, f"`{label}`")
        for recorded, label in zip(run.inputs, labels, strict=True)
        for text in recorded.part.facts.data_warnings
    )
    return PageSource(
        title=title,
        facts=[
            format_count(len(run.inputs), "report"),
            format_count(training.lanes["machine"].drop_nulls().n_unique(), "machine"),
            *devices["name"].drop_nulls().unique().sort().to_list()[:3],
            format_count(training.step_count, "step"),
            *describe_run(training),
        ],
        training=training,
        verdict=result.verdict,
        tables={**_by_name(fill_tables(TABLES, result.tables(names))), CLOCK_TABLE.name: clocks},
        sums=_by_name(fill_tables(SUMMARY_TABLES, sums, absent)),
        rank_steps=build_rank_steps(evidence),
        step_lengths=lengths,
        steps=choose_steps(training, lengths),
        lacking=list_lacking(run.inputs),
        report_count=len(run.inputs),
        notes=list(dict.fromkeys([*training.notes, *summary_notes, *doubts])),
        trace_links=build_trace_links(trace),
        made_by=version("nsys-pp"),
    )


def build_trace_links(trace: str | Path | None) -> TraceLinks | None:
    """Build the texts that open a trace: links for an address, commands for a file, None without a trace.

    The arguments of the address are those of `nsys_pp.viewer.build_address`.
    """
    if trace is None:
        return None
    if str(trace).startswith(("http://", "https://")):
        address = build_address(SITE, str(trace))
        return TraceLinks(is_link=True, head=f"{address}&visStart=", middle="&visEnd=", tail="")
    return TraceLinks(
        is_link=False, head=f"nsys-pp open {quote_argument(trace)} --zoom ", middle="ns:", tail="ns"
    )


def list_lacking(inputs: Sequence[Input]) -> pl.DataFrame:
    """List the kinds of data that reports lack, by option, the most important kind first."""
    return (
        pl.concat(
            list_missing_of(
                recorded.part.facts.recorded,
                nsys_version=recorded.part.facts.session.nsys_version,
                has_communication=bool(recorded.part.frames["op_aggregates"]["is_communication"].any()),
            ).with_columns(report=pl.lit(number))
            for number, recorded in enumerate(inputs)
        )
        .group_by("option", maintain_order=True)
        .agg(titles=pl.col("title").unique(maintain_order=True), report_count=pl.col("report").n_unique())
    )


def _by_name(tables: Sequence[FilledTable]) -> Mapping[str, FilledTable]:
    return {filled.table.name: filled for filled in tables}
