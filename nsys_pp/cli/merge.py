"""`nsys-pp merge`: one trace of many reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log_note, log_notes, log_output, log_verdict
from nsys_pp.cli.open import log_opening
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.drawing import (
    detail_options,
    device_option,
    explicit_drawing,
    split_options,
    window_options,
)
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import STANDARD_OUTPUT, force_option, format_option, output_option
from nsys_pp.cli.options.projection import projection_options
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.training import training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import OUTPUT, SectionCommand, option
from nsys_pp.output.tables.format_registry import SUFFIXES
from nsys_pp.output.trace_format_registry import TRACE_FORMATS
from nsys_pp.units import format_bytes, format_count

_UNITS = {"machine": "machine", "rank": "rank", "step": "step or group of steps"}


@click.command(cls=SectionCommand)
@output_option("run.pftrace")
@format_option([*TRACE_FORMATS], default_text="chrome for .json and .json.gz, else perfetto")
@split_options
@force_option
@option(
    "--open",
    "is_opened",
    section=OUTPUT,
    is_flag=True,
    help="Open the trace in the browser (`nsys-pp open`).",
)
@input_options
@detail_options
@device_option
@window_options
@projection_options
@training_options
@clock_and_rank_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def merge(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path,
    force: bool,
    is_opened: bool,
    **options: Any,
) -> None:
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
    with show_progress() as progress:
        merged = nsys_pp.merge(
            reports,
            output,
            force=force,
            progress=progress,
            **{**options, **explicit_drawing(ctx)},
        )
    log_skipped(merged.skipped)
    log_notes(merged.notes)
    _log_traces(merged, options["max_events"], is_opened=is_opened)
    log_verdict(merged.verdict)
    if is_opened:
        nsys_pp.open_output(merged.output, on_ready=log_opening)
    exit_if_skipped(ctx, merged.skipped, merged.row_counts)


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
        traces = format_count(len(merged.files), "trace")
        log_output(
            f"Wrote {index.parent} ({total}): {traces}, one per"
            f" {_UNITS[merged.split]}: {run} {index} lists them; `--split none` writes one trace.",
            index,
            *(file.path for file in merged.files),
        )
    if merged.omits_ranges:
        log_note("the overview has no ranges of reports without jobs: they are more than a browser holds")
    largest = max((file.event_count for file in merged.files), default=0)
    if max(merged.events, largest) > max_events:
        log_note(
            f"a browser holds about {max_events:,} events; divide the run with `--split rank` or `--split step`, or reduce"
            " the trace with `--detail ranges`, `--detail jobs`, `--device`, or `--start` and `--end`"
        )
