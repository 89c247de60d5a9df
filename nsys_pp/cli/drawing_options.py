"""Options that say what is drawn of a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from nsys_pp.commands import DETAILS

Command = TypeVar("Command", bound=Callable[..., Any])


def detail_option(command: Command) -> Command:
    """Add `--detail`."""
    return click.option(
        "--detail",
        type=click.Choice(DETAILS),
        default="kernels",
        show_default=True,
        help="jobs: steps, jobs and messages alone (where no range is a job: the three outermost levels of"
        " ranges). ranges: also all ranges, and communication. kernels: also every stream. cpu: also CPU threads.",
    )(command)


def flows_option(command: Command) -> Command:
    """Add `--flows`."""
    return click.option(
        "--flows",
        is_flag=True,
        help="Arrows from CUDA calls to the first operation they launched; implies `--detail cpu`.",
    )(command)


def asked_drawing(ctx: click.Context) -> dict[str, Any]:
    """Give what was asked for of detail, ops, scope and flows; None where that was left open."""
    asked = {
        name: None if ctx.get_parameter_source(name) is ParameterSource.DEFAULT else ctx.params[name]
        for name in ("detail", "ops", "scope", "flows")
    }
    return {**asked, "detail": "cpu"} if asked["flows"] else asked
