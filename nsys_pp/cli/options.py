"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nsys_pp.cli.record import current_record, note, say
from nsys_pp.commands import OPS, parse_ops
from nsys_pp.errors import NsysPPError
from nsys_pp.units import NS_PER_MS, NS_PER_S, NS_PER_US

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "": 1}


class Duration(click.ParamType[int]):
    """A time with a unit: `1.5s`, `20ms`, `300us`, `4000ns`; nanoseconds without one."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn the text into whole nanoseconds."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?\s*(ns|us|ms|s|)", value.strip())
        if match is None:
            self.fail(f"{value!r} is not a time: write `1.5s`, `20ms`, `300us` or `4000ns`", param, ctx)
        sign, whole, fraction, unit = match.groups()
        scale = _UNITS[unit]
        part = int(fraction or 0) * scale // int("1" + "0" * len(fraction or ""))
        return -(int(whole) * scale + part) if sign else int(whole) * scale + part


class Ops(click.ParamType[tuple[str, ...]]):
    """Kinds of GPU operations, with commas, or `all`."""

    name = "|".join((*OPS, "all"))

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Turn the text into the kinds that count."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_ops(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Numbers(click.ParamType[frozenset[int]]):
    """Whole numbers with commas."""

    name = "n,n..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        """Turn the text into a set."""
        if isinstance(value, frozenset):
            return value
        if not re.fullmatch(r"\d+(,\d+)*", value.strip()):
            self.fail(f"{value!r} is not a list of numbers: write `0,1`", param, ctx)
        return frozenset(map(int, value.split(",")))


def input_options(command: Command) -> Command:
    """Add the reports, and how to export those that are not exported yet."""
    command = click.option(
        "--nsys", envvar="NSYS_PP_NSYS", help="The nsys that exports .nsys-rep files; else the one on PATH."
    )(command)
    return click.argument("reports", metavar="REPORT...", nargs=-1, required=True)(command)


def projection_options(command: Command) -> Command:
    """Add what counts for projection."""
    command = click.option(
        "--scope",
        type=click.Choice(["thread", "process", "auto"]),
        default="auto",
        show_default=True,
        help="Whose launches count for a range: those of its thread, of its whole process while it is"
        " open, or of the process only where its own thread made no CUDA call.",
    )(command)
    return click.option(
        "--ops",
        type=Ops(),
        metavar="kernel,memcpy,memset|all",
        default="kernel",
        show_default=True,
        help="Which GPU operations a range is projected onto; `all` with `--scope thread` is NVIDIA's rule.",
    )(command)


def keep_going_option(what: str) -> Callable[[Command], Command]:
    """Add `--keep-going` for reports that cannot be `what`; the command ends with `end_with_skipped`."""
    return click.option(
        "--keep-going", is_flag=True, help=f"Skip reports that cannot be {what}, list them, and exit with 3."
    )


def end_with_skipped(ctx: click.Context, skipped: Sequence[tuple[Path, NsysPPError]]) -> None:
    """List the inputs that were skipped, and exit with 3 if there are any."""
    current_record().skipped.extend(skipped)
    for path, error in skipped:
        facts = {"path": str(path), "reason": error.message, "hint": error.hint}
        say(f"skipped {path}: {error.message}", event="skipped", level="warning", facts=facts)
    if skipped:
        ctx.exit(3)


def tell_notes(notes: Sequence[str]) -> None:
    """Tell what is doubtful about a result."""
    for sentence in notes:
        note(sentence)


def force_option(command: Command) -> Command:
    """Add `--force`."""
    return click.option("--force", is_flag=True, help="Replace an output that exists.")(command)
