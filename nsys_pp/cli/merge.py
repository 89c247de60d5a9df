"""`nsys-pp merge`: one trace of many reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.clock_options import clock_options, take_told
from nsys_pp.cli.drawing_options import asked_drawing, detail_option, flows_option
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.options import (
    Duration,
    Numbers,
    end_with_skipped,
    force_option,
    input_options,
    keep_going_option,
    projection_options,
    tell_notes,
)
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.record import note, say_wrote
from nsys_pp.cli.result import result_options
from nsys_pp.cli.training_options import take_training, training_options
from nsys_pp.cli.work_options import take_work, wait_for_inputs, wait_options, work_options
from nsys_pp.units import format_bytes

# What Perfetto's UI holds in a browser's 4 GB: measured at 0.2 to 0.35 KB a slice.
_MOST_SLICES = 8_000_000


@click.command()
@input_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("run.pftrace"),
    show_default=True,
    help="The trace to write; `.json` and `.json.gz` are written in Chrome's format.",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(["perfetto", "chrome"]),
    help="Whatever the ending of the output says.",
)
@detail_option
@click.option(
    "--device", "devices", type=Numbers(), help="Only these GPUs, by their number on their machine."
)
@click.option(
    "--start",
    "start_ns",
    type=Duration(),
    help="Leave out what ended before: `1.5s`, `20ms`; 0 is the start of the earliest report.",
)
@click.option("--end", "end_ns", type=Duration(), help="Leave out what began after.")
@flows_option
@projection_options
@training_options
@clock_options
@identity_options
@work_options
@wait_options
@keep_going_option("read")
@force_option
@result_options
@click.pass_context
def merge(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path,
    **options: Any,
) -> None:
    """Write one Perfetto trace of all reports.

    Machines, their GPUs, and on each GPU the steps and jobs of the training, its messages with arrows
    from sender to receiver, the NVTX ranges where their kernels really ran, NCCL kernels, and every
    stream. Parts (`nsys-pp extract`) stand for their reports: they are merged with what they were
    made to show, and at once.

    \b
    Example:
      nsys-pp merge node*/report*.sqlite -o run.pftrace
    """
    if str(output) == "-":
        raise click.UsageError("a trace is not printed; name a file with `-o`")
    start_ns, end_ns = options["start_ns"], options["end_ns"]
    if start_ns is not None and end_ns is not None and end_ns <= start_ns:
        raise click.UsageError("`--end` must be later than `--start`")
    if options["format"] is None and output.suffix in api.FORMATS.keys() - {".json"}:
        raise click.UsageError(f"`{output}` is a table's name; a trace is `.pftrace`, `.json` or `.json.gz`")
    overrides, training, work = take_told(options), take_training(options), take_work(options)
    with show_progress() as progress:
        inputs, incomplete = wait_for_inputs(reports, options, progress, output=output)
        merged = api.merge(
            inputs,
            output,
            overrides=overrides,
            training=training,
            work=work,
            progress=progress,
            **{**options, **asked_drawing(ctx)},
        )
    tell_notes(merged.notes)
    size = format_bytes(output.stat().st_size)
    say_wrote(
        f"Wrote {output} ({size}): {_count(merged.slices, 'slice')} on {_count(merged.gpus, 'GPU')}"
        f" of {_count(merged.machines, 'machine')}, from {_count(merged.reports, 'report')}."
        " Look at it: open https://ui.perfetto.dev and drop the file there (it stays on your machine).",
        output,
    )
    if merged.slices > _MOST_SLICES:
        note(
            f"a browser holds about {_MOST_SLICES:,} slices; `--detail ranges`, `--detail jobs`, `--device`"
            " or `--start` and `--end` make the trace smaller"
        )
    end_with_skipped(ctx, [*incomplete, *merged.skipped])


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
