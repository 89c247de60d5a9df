"""Projection options: `--ops` and `--scope`."""

from __future__ import annotations

import click

from nsys_pp.cli.sections import PROJECTION, Command, option


def projection_options(command: Command) -> Command:
    """Add `--ops` and `--scope`."""
    command = option(
        "--scope",
        section=PROJECTION,
        type=click.Choice(["thread", "process", "auto"]),
        default="auto",
        help="Launches that count for a range. thread: of its thread. process: of its process while it is open."
        " auto: of its thread and of threads that it waits for.",
    )(command)
    return option(
        "--ops",
        section=PROJECTION,
        metavar="kernel,memcpy,memset|all",
        default="kernel",
        help="GPU operations that ranges are projected onto; `all` with `--scope thread` matches nvtx_gpu_proj_trace.",
    )(command)
