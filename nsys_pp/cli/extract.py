"""`nsys-pp extract`: a part of each report, for `nsys-pp merge`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import describe_outputs, log, log_output
from nsys_pp.cli.merge import settle_flows
from nsys_pp.output.tables import SUFFIXES
from nsys_pp.units import format_bytes, format_count

if TYPE_CHECKING:
    from nsys_pp.run.parts import ExtractedPart

_LEAST = 40  # characters; a shorter folder is no burden


@command(output={"default_text": "parts in the current folder, named like their reports"})
def extract(reports: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Write a part of each report, ready for merge and summary.

    A part (.nspart) holds everything a report contributes to a trace and to tables; `nsys-pp merge`
    and the other commands read parts like reports, but much faster. Each machine can extract its own
    reports, and only the parts have to be copied. Complete, up-to-date parts are kept: an interrupted
    extraction continues where it stopped.

    \b
    Examples:
      nsys-pp extract report.sqlite -o report.nspart
      nsys-pp extract node07/ -o parts/
    """
    if output == STANDARD_OUTPUT:
        raise click.UsageError("a part cannot be printed; choose a file with `-o`")
    is_other_file = output is not None and output.suffix in (*SUFFIXES, ".nsys-rep")
    if is_other_file and str(output) not in reports:  # a report as output is refused below
        raise click.UsageError(f"`{output}` has the extension of a table or a report; a part is `.nspart`")
    extracted = run_with_progress(nsys_pp.extract, reports, output, **options | settle_flows(options))
    names = _cut_common_folder([part.report for part in extracted.parts])
    for part, name in zip(extracted.parts, names, strict=True):
        _log_part(part, name)
    end_with(extracted)


def _log_part(part: ExtractedPart, report: str) -> None:
    """Log a part, and the report that it was made of, in a few words."""
    size = format_bytes(part.output.stat().st_size)
    if not part.is_new:
        message = f"already there: {part.output} ({size}), from {report}"
        log(message, event="already there", facts={"outputs": describe_outputs([part.output])})
        return
    jobs = f" and {format_count(part.jobs, 'job')}" if part.jobs else ""
    contents = f"{format_count(part.slices, 'slice')}{jobs} on {format_count(part.gpus, 'GPU')}"
    log_output(f"Wrote {part.output} ({size}): {contents}, from {report}.", part.output)


def _cut_common_folder(paths: Sequence[Path]) -> list[str]:
    """Return paths as text; of several ones without a long folder that all share.

    >>> folder = Path("/home/jane/experiments/pretraining/2026-11-24/run7")
    >>> _cut_common_folder([folder / "node0" / "rank0.sqlite", folder / "node1" / "rank1.sqlite"])
    ['node0/rank0.sqlite', 'node1/rank1.sqlite']
    >>> _cut_common_folder([Path("runs/a.sqlite"), Path("runs/b.sqlite")])
    ['runs/a.sqlite', 'runs/b.sqlite']
    """
    if len(paths) < 2 or len({path.is_absolute() for path in paths}) > 1:
        return [str(path) for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    return [str(path) if len(common) < _LEAST else os.path.relpath(path, common) for path in paths]
