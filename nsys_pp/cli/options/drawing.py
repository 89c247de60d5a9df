"""Drawing options: the content of a trace."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from nsys_pp.cli.options.values import Duration, Numbers
from nsys_pp.cli.sections import OUTPUT, SELECTION, Command, option
from nsys_pp.frames.choices import DETAILS, MAX_EVENTS, SHOW_KINDS, SPLITS

device_option = option(
    "--device",
    "devices",
    section=SELECTION,
    type=Numbers(),
    metavar="N,...",
    help="Include only these GPUs (index per machine, as in nvidia-smi).",
)


def detail_options(command: Command) -> Command:
    """Add `--detail`, `--flows` and `--show`."""
    command = option(
        "--show",
        section=SELECTION,
        metavar="KIND,...",
        help="Kinds of data to draw in addition, at any detail: all or "
        + ", ".join(f"{kind} ({title})" for kind, title in SHOW_KINDS.items())
        + ". Default: none.",
    )(command)
    command = option(
        "--flows",
        section=SELECTION,
        is_flag=True,
        help="Draw arrows from CUDA calls to the first operation of each launch; implies `--detail cpu`.",
    )(command)
    return option(
        "--detail",
        section=SELECTION,
        type=click.Choice(DETAILS),
        default="kernels",
        help="Level of detail. jobs: steps, jobs and messages (without jobs, the three outermost levels of"
        " ranges). ranges: also all ranges and communication. kernels: also all streams. cpu: also CPU threads.",
    )(command)


def split_options(command: Command) -> Command:
    """Add `--split` and `--max-events`."""
    command = option(
        "--max-events",
        section=OUTPUT,
        type=click.IntRange(min=1),
        default=MAX_EVENTS,
        metavar="N",
        help="Largest number of events (slices, marks, samples of counters) of a trace, for --split auto and step.",
    )(command)
    return option(
        "--split",
        section=OUTPUT,
        type=click.Choice(SPLITS),
        default="auto",
        help="Write an overview at detail jobs, and a folder of traces by machine, rank or step, with an index page."
        " auto: by machine if one trace would have more than --max-events, by rank if a machine alone has more."
        " none: one trace. step needs the reports.",
    )(command)


def window_options(command: Command) -> Command:
    """Add `--start` and `--end`."""
    command = option(
        "--end",
        "end_ns",
        section=SELECTION,
        type=Duration(),
        metavar="TIME",
        help="Omit events that begin after this time.",
    )(command)
    return option(
        "--start",
        "start_ns",
        section=SELECTION,
        type=Duration(),
        metavar="TIME",
        help="Omit events that end before this time, e.g. 1.5s or 20ms after the start of the earliest report.",
    )(command)


def explicit_drawing(ctx: click.Context) -> dict[str, Any]:
    """Return `detail`, `ops`, `scope` and `flows`; None for each that the command line leaves open."""
    explicit = {
        name: None if ctx.get_parameter_source(name) is ParameterSource.DEFAULT else ctx.params[name]
        for name in ("detail", "ops", "scope", "flows")
    }
    return {**explicit, "detail": "cpu"} if explicit["flows"] else explicit
