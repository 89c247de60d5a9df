"""`nsys-pp compare`: differences between two runs, and gates for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import log, log_notes, log_output, log_skipped, record_verdict
from nsys_pp.cli.tables import output_tables
from nsys_pp.units import format_bytes

GATE_FAILED = 4
_PAGES = (".html", ".htm")


@command(
    output={"default_text": "tables on standard output"},
    format={"choices": ("table", "json", "markdown"), "default": "table"},
    limit={"default": 20, "default_text": "20 in tables; all rows in other formats"},
)
def compare(a: str, b: str, output: Path | None, format: str, limit: int, **options: Any) -> None:
    """Compare two runs: steps, bubbles, stages, ranks, jobs, kernels.

    The output begins with at most five findings and with what the runs differ in. The steps of a run are its
    samples: a difference within their noise counts as no change. Runs that cannot be compared are refused.
    The exit status is 4 if a gate of `--fail-on` fails.

    \b
    Examples:
      nsys-pp compare before/ after/ --fail-on 'bubble>5%' --fail-on 'step>3%'
      nsys-pp compare run/:10:14 run/:20:24 -o change.html
    """
    page = None if output in (None, STANDARD_OUTPUT) else output
    if page is not None and page.suffix not in _PAGES:
        raise click.UsageError(
            f"the page is HTML, so `{page}` must end in .html; `--format json` and `markdown` print the "
            "tables"
        )
    compared = run_with_progress(nsys_pp.compare, a, b, output=page, **options)
    record_verdict(compared.verdict)
    log_skipped(compared.skipped)
    _print(compared, format=format, limit=limit)
    log_notes(compared.notes)
    if page is not None:
        log_output(f"Wrote {page} ({format_bytes(page.stat().st_size)})", page)
    for failure in compared.failures:
        log(failure, event="gate failed", level="error", prefix="failed: ")
    end_with(compared, GATE_FAILED if compared.failures else 0)


def _print(compared: nsys_pp.CompareResult, *, format: str, limit: int) -> None:
    from nsys_pp.output.tables.formats import format_tables

    tables = compared.fill_tables()
    if format == "json":
        content = {
            "runs": dict(zip("ab", compared.names, strict=True)),
            "verdict": compared.verdict.to_dicts(),
            "comparability": compared.comparability,
            "tables": json.loads(format_tables(tables[1:], format="json")),
            "failures": compared.failures,
            "notes": compared.notes,
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        output_tables(tables, output=STANDARD_OUTPUT, format=format, limit=limit if format == "table" else 0)
