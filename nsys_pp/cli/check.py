"""`nsys-pp check`: findings about reports, and an exit status by severity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.escapes import escape_line
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import record_rows
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import format_option, verbose_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.values import Timeout
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import SELECTION, SectionCommand, option
from nsys_pp.units import format_count

if TYPE_CHECKING:
    from nsys_pp.commands.check import CheckResult

STATUSES = {"info": 0, "warning": 4, "error": 5}
_COLORS = {"info": None, "warning": "yellow", "error": "red"}


@click.command(cls=SectionCommand)
@format_option(["table", "json"], default="table", default_text="table")
@input_options
@option(
    "--time-limit",
    "time_limit_s",
    section=SELECTION,
    type=Timeout(),
    metavar="TIME",
    default="60s",
    help="Time limit of SQLite's check of one file, e.g. 90s, 10m.",
)
@verbose_option
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def check(
    ctx: click.Context, /, reports: tuple[str, ...], format: str, verbose: bool, **options: Any
) -> None:
    """Check reports for damage, impossible values and lost events.

    Each finding is a sentence, and a sentence on its meaning for the analyses. The exit status is 5
    if a report is damaged or cannot be read (errors), 4 if results lack rows or are less certain
    (warnings), else 0.

    \b
    Example:
      nsys-pp check runs/7 --format json
    """
    with show_progress() as progress:
        result = nsys_pp.check(reports, progress=progress, **options)
    if format == "json":
        click.echo(json.dumps(_describe(result), indent=2, ensure_ascii=False))
    else:
        _print(result, verbose=verbose)
    if status := STATUSES[result.severity]:
        record_rows(result.row_counts)
        log_skipped(result.skipped)
        ctx.exit(status)
    exit_if_skipped(ctx, result.skipped, result.row_counts)


def _describe(result: CheckResult) -> list[dict[str, Any]]:
    """Return the findings of each report as plain types; the keys are stable."""
    return [
        {"report": str(path), "findings": result.findings.filter(report=str(path)).drop("report").to_dicts()}
        for path in result.reports
    ]


def _print(result: CheckResult, *, verbose: bool) -> None:
    """Print the findings of each report, and a last line on all of them."""
    reports = _describe(result)
    for report in reports:
        findings = [finding for finding in report["findings"] if verbose or not _is_of_no_event(finding)]
        if not findings and not verbose:
            continue
        click.secho(escape_line(report["report"]), bold=True)
        for finding in findings:
            severity = finding["severity"]
            click.secho(f"  {severity:8}", fg=_COLORS[severity], nl=False)
            click.echo(escape_line(finding["text"]))
            click.echo(f"          {escape_line(finding['meaning'])}")
        if not findings:
            click.echo("  nothing found")
    if not verbose:
        _print_sum(reports)
    if reports:
        _print_conclusion(reports)


def _is_of_no_event(finding: dict[str, Any]) -> bool:
    """Return whether a finding counts rows that are no events, such as names of threads."""
    return bool(finding["severity"] == "info" and finding["kind"] == "rows left out")


def _print_sum(reports: list[dict[str, Any]]) -> None:
    """Print the number of rows that are no events, in all reports."""
    counts = [sum(filter(None, _count_no_events(report))) for report in reports]
    if total := sum(counts):
        click.echo(
            f"info: rows without an event left out: {total:,} in {format_count(sum(map(bool, counts)), 'report')}"
            " (names of threads, ends of domains, messages of nsys); `--verbose` lists them"
        )


def _count_no_events(report: dict[str, Any]) -> Iterator[int]:
    return (finding["count"] for finding in report["findings"] if _is_of_no_event(finding))


def _print_conclusion(reports: list[dict[str, Any]]) -> None:
    """Print how many reports have errors, else warnings, and how many have neither."""
    worst = [{finding["severity"] for finding in report["findings"]} for report in reports]
    errors = sum("error" in severities for severities in worst)
    warned = sum("warning" in severities and "error" not in severities for severities in worst)
    sound = len(reports) - errors - warned
    total = format_count(len(reports), "report")
    if sound == len(reports):
        click.echo(f"{total}: nothing wrong found")
        return
    parts = [f"errors in {errors}"] * bool(errors) + [f"warnings in {warned}"] * bool(warned)
    parts += [f"nothing wrong found in {sound}"] * bool(sound)
    click.echo(f"{total}: {', '.join(parts)}")
