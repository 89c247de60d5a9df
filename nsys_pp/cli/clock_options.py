"""Options that say which clock is believed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from nsys_pp import commands as api
from nsys_pp.cli.options import Duration

Command = TypeVar("Command", bound=Callable[..., Any])


class MachineOffset(click.ParamType[tuple[str, int]]):
    """A machine and a time: `node07=-1.2ms`."""

    name = "machine=time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Turn the text into the machine's name and ns."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(.+)=([^=]+)", value)
        if match is None:
            self.fail(f"{value!r} is not an offset: write `node07=-1.2ms`", param, ctx)
        return match[1], Duration().convert(match[2].removeprefix("+"), param, ctx)


def clock_options(command: Command) -> Command:
    """Add what is believed of clocks, and what is given."""
    command = click.option(
        "--offset",
        "offsets",
        type=MachineOffset(),
        multiple=True,
        help="What to add to a machine's UTC, whatever else is known: `--offset node07=-1.2ms`.",
    )(command)
    return click.option(
        "--clock",
        type=click.Choice(["collectives", "utc", "none"]),
        default="collectives",
        show_default=True,
        help="collectives: recorded UTC, refined by the operations that ranks share. utc: as recorded."
        " none: all sessions begin at one time.",
    )(command)


def take_told(options: dict[str, Any]) -> api.Overrides:
    """Take what is said of clocks and ranks out of other options."""
    offsets = options.pop("offsets")
    machines = [machine for machine, _ in offsets]
    for machine in machines:
        if machines.count(machine) > 1:
            raise click.UsageError(f"`--offset` is given twice for `{machine}`")
    clocks = api.ClockOptions(mode=options.pop("clock"), given_ns=dict(offsets))
    return api.Overrides(clocks=clocks, layout=options.pop("layout"), rank_from=options.pop("rank_from"))
