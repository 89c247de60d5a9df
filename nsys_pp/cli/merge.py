"""`nsys-pp merge`: one trace of many reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import log_notes, log_output, log_skipped, log_verdict
from nsys_pp.cli.open import log_opening
from nsys_pp.output.formats import TRACE_FORMATS
from nsys_pp.output.tables import SUFFIXES
from nsys_pp.units import format_bytes, format_count

_UNITS = {"machine": "machine", "rank": "rank", "step": "step or group of steps"}


@command(
    output={"default": Path("run.pftrace")},
    format={"choices": (*TRACE_FORMATS,), "default_text": "chrome for .json and .json.gz, else perfetto"},
)
def merge(reports: tuple[str, ...], output: Path, is_opened: bool, **options: Any) -> None:
    """Merge reports into one Perfetto trace.

    The trace shows machines and their GPUs; on each GPU the steps and jobs of the training, its
    messages with arrows from sender to receiver, the NVTX ranges at the time of their kernels, NCCL
    kernels, and all streams. Parts (`nsys-pp extract`) replace their reports and are merged as they
    were extracted, without encoding them again.

    \b
    Example:
      nsys-pp merge node*/report*.sqlite -o run.pftrace
    """
    if output == STANDARD_OUTPUT:
        raise click.UsageError("a trace cannot be printed; choose a file with `-o`")
    start_ns, end_ns = options["start_ns"], options["end_ns"]
    if start_ns is not None and end_ns is not None and end_ns <= start_ns:
        raise click.UsageError("`--end` must be later than `--start`")
    if options["format"] is None and output.suffix in SUFFIXES.keys() - {".json"}:
        raise click.UsageError(
            f"`{output}` has the extension of a table; a trace is `.pftrace`, `.json` or `.json.gz`"
        )
    merged = run_with_progress(nsys_pp.merge, reports, output, **options | settle_flows(options))
    log_skipped(merged.skipped)
    log_notes(merged.notes)
    _log_traces(merged, options["max_events"], is_opened=is_opened)
    log_verdict(merged.verdict)
    if is_opened:
        nsys_pp.open_output(merged.output, on_ready=log_opening)
    end_with(merged)


def settle_flows(options: dict[str, Any]) -> dict[str, Any]:
    """Return `detail` and `flows`: arrows need detail "cpu"; without them, those of parts are left open."""
    return {"flows": True, "detail": "cpu"} if options["flows"] else {"flows": None}


def _log_traces(merged: nsys_pp.MergeResult, max_events: int, *, is_opened: bool) -> None:
    """Log the written files, and a note if one is larger than a browser opens."""
    output, index = merged.output, merged.index
    size = format_bytes(output.stat().st_size)
    view = (
        "" if is_opened else f" To view it: `nsys-pp open {output}`, or drop it on https://ui.perfetto.dev."
    )
    run = (
        f"{format_count(merged.slices, 'slice')} on {format_count(merged.gpus, 'GPU')}"
        f" of {format_count(merged.machines, 'machine')}, from {format_count(merged.reports, 'report')}."
    )
    if index is None:
        log_output(f"Wrote {output} ({size}): {run}{view}", output)
    else:
        total = format_bytes(sum(file.size_bytes for file in merged.files))
        log_output(f"Wrote {output} ({size}): overview of all ranks, steps, jobs and messages.{view}", output)
        log_output(
            f"Wrote {index.parent} ({total}): {format_count(len(merged.files), 'trace')}, one per"
            f" {_UNITS[merged.split]}: {run} {index} lists them; `--split none` writes one trace.",
            index,
            *(file.path for file in merged.files),
        )
    if merged.omits_ranges:
        log_notes(["the overview has no ranges of reports without jobs: they are more than a browser holds"])
    if max(merged.events, *(file.event_count for file in merged.files), 0) > max_events:
        log_notes(
            [
                f"a browser holds about {max_events:,} events; divide the run with `--split rank` or "
                "`--split step`, or"
                " reduce the trace with `--detail ranges`, `--detail jobs`, `--device`, or `--start` and "
                "`--end`"
            ]
        )
