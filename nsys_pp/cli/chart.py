"""`nsys-pp chart`: a picture of how a pipeline really ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.clock_options import clock_options, take_told
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.options import end_with_skipped, force_option, input_options, keep_going_option, tell_notes
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.record import say_wrote
from nsys_pp.cli.result import result_options
from nsys_pp.cli.training_options import take_training, training_options
from nsys_pp.cli.work_options import take_work, wait_for_inputs, wait_options, work_options
from nsys_pp.units import format_bytes

_FORMATS = ("html", "svg", "png")


@click.command()
@input_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("pipeline.html"),
    show_default=True,
    help="The picture: an .html page to zoom and search in, or .svg or .png for papers and chat.",
)
@click.option(
    "--format", "format", type=click.Choice(_FORMATS), help="Whatever the ending of the output says."
)
@click.option("--title", help="What stands above it; the output's name if not given.")
@training_options
@clock_options
@identity_options
@work_options
@wait_options
@keep_going_option("read")
@force_option
@result_options
@click.pass_context
def chart(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path,
    format: str | None,
    **options: Any,
) -> None:
    """Draw how a pipeline really ran: a lane per GPU, jobs, messages, bubbles by cause.

    The page needs no network and opens from disk.

    \b
    Example:
      nsys-pp chart node*/report*.sqlite -o run.html
    """
    if str(output) == "-":
        raise click.UsageError("a chart is not printed; name a file with `-o`")
    if format is None and output.suffix.removeprefix(".") not in _FORMATS:
        raise click.UsageError(f"`{output}` has none of the endings .html, .svg, .png; or name a `--format`")
    training, overrides, work = take_training(options), take_told(options), take_work(options)
    with show_progress() as progress:
        inputs, incomplete = wait_for_inputs(reports, options, progress, output=output)
        charted = api.chart(
            inputs,
            output,
            format=format,
            training=training,
            overrides=overrides,
            work=work,
            progress=progress,
            **options,
        )
    tell_notes(charted.notes)
    size = format_bytes(output.stat().st_size)
    counts = ((charted.jobs, "job"), (charted.lanes, "lane"), (charted.steps, "step"))
    jobs, lanes, steps = (f"{count:,} {word}" + "s" * (count != 1) for count, word in counts)
    say_wrote(f"Wrote {output} ({size}): {jobs} on {lanes} in {steps}.", output)
    end_with_skipped(ctx, [*incomplete, *charted.skipped])
