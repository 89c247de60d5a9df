"""`nsys-pp check`: findings about reports, and an exit status by severity."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.command import command, end_with, run_with_progress
from nsys_pp.cli.log import escape_line
from nsys_pp.cli.tables import SCREEN_FORMATS
from nsys_pp.units import format_count

if TYPE_CHECKING:
    from nsys_pp.commands.check import CheckResult

STATUSES = {"info": 0, "warning": 4, "error": 5}
_COLORS = {"info": None, "warning": "yellow", "error": "red"}


@command(format=SCREEN_FORMATS)
def check(reports: tuple[str, ...], format: str, verbose: bool, **options: Any) -> None:
    """Check reports for damage, impossible values and lost events.

    Each finding is a sentence, and a sentence on its meaning for the analyses. The exit status is 5
    if a report is damaged or cannot be read (errors), 4 if results lack rows or are less certain
    (warnings), else 0.

    \b
    Example:
      nsys-pp check runs/7 --format json
    """
    result = run_with_progress(nsys_pp.check, reports, **options)
    if format == "json":
        click.echo(json.dumps(_describe(result), indent=2, ensure_ascii=False))
    else:
        _print(result, verbose=verbose)
    end_with(result, STATUSES[result.severity])


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
    counts = [
        sum(int(finding["count"] or 0) for finding in report["findings"] if _is_of_no_event(finding))
        for report in reports
    ]
    total = sum(counts)
    if not verbose and total:
        click.echo(
            f"info: rows without an event left out: {total:,} in "
            f"{format_count(sum(count > 0 for count in counts), 'report')}"
            " (names of threads, ends of domains, messages of nsys); `--verbose` lists them"
        )
    if reports:
        _print_conclusion(reports)


def _is_of_no_event(finding: dict[str, Any]) -> bool:
    """Return whether a finding counts rows that are no events, such as names of threads."""
    return bool(finding["severity"] == "info" and finding["kind"] == "rows left out")


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
