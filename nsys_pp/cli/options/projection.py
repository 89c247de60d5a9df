"""Projection options: `--ops` and `--scope`."""

from __future__ import annotations

from typing import Any

import click

from nsys_pp.cli.sections import PROJECTION, Command, option
from nsys_pp.commands import parse_ops


class Ops(click.ParamType[tuple[str, ...]]):
    """Kinds of GPU operations separated by commas, or `all`."""

    name = "kinds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the kinds of operations."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_ops(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def projection_options(command: Command) -> Command:
    """Add `--ops` and `--scope`."""
    command = option(
        "--scope",
        section=PROJECTION,
        type=click.Choice(["thread", "process", "auto"]),
        default="auto",
        help="Launches that count for a range: those of its thread, of its process while it is open, or"
        " (auto) of the process only where its thread has none.",
    )(command)
    return option(
        "--ops",
        section=PROJECTION,
        type=Ops(),
        metavar="kernel,memcpy,memset|all",
        default="kernel",
        help="GPU operations that ranges are projected onto; `all` with `--scope thread` matches nvtx_gpu_proj_trace.",
    )(command)
