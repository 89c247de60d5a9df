"""Clock options: `--clock` and `--offset`."""

from __future__ import annotations

import re
from typing import Any

import click

from nsys_pp.cli.options.identity import identity_options
from nsys_pp.cli.options.values import Duration
from nsys_pp.cli.sections import RANKS, Command, option


class MachineOffset(click.ParamType[tuple[str, int]]):
    """A machine and its clock offset: `node07=-1.2ms`."""

    name = "offset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return the machine's name and the offset in ns."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(.+)=([^=]+)", value)
        if match is None:
            self.fail(f"invalid offset {value!r}; expected e.g. `node07=-1.2ms`", param, ctx)
        return match[1], Duration().convert(match[2].removeprefix("+"), param, ctx)


def clock_and_rank_options(command: Command) -> Command:
    """Add `--clock`, `--offset`, `--layout` and `--rank-from`."""
    return _clock_options(identity_options(command))


def _clock_options(command: Command) -> Command:
    command = option(
        "--offset",
        "offsets",
        section=RANKS,
        type=MachineOffset(),
        metavar="MACHINE=TIME",
        multiple=True,
        callback=_collect_offsets,
        help="Override a machine's clock offset to UTC, e.g. node07=-1.2ms. Repeatable.",
    )(command)
    return option(
        "--clock",
        section=RANKS,
        type=click.Choice(["collectives", "utc", "none"]),
        default="collectives",
        help="Clock alignment. collectives: recorded UTC, refined by collectives shared between ranks."
        " utc: as recorded. none: all sessions begin at the same time.",
    )(command)


def _collect_offsets(
    ctx: click.Context, param: click.Parameter, values: tuple[tuple[str, int], ...]
) -> dict[str, int]:
    """Return offsets in ns by machine."""
    machines = [machine for machine, _ in values]
    for machine in machines:
        if machines.count(machine) > 1:
            raise click.UsageError(f"duplicate `--offset` for machine `{machine}`")
    return dict(values)
