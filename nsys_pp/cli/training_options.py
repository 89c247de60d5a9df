"""Options that say what of a report is a training: which ranges are jobs and steps, which steps count."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click
import polars as pl

from nsys_pp import commands as api

Command = TypeVar("Command", bound=Callable[..., Any])


class StepWindow(click.ParamType[tuple[int | None, int | None]]):
    """Steps from the first to before the last: `10:12` is 10 and 11; either may be left out."""

    name = "a:b"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        """Turn the text into two numbers, None where one is left out."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"\s*(\d*)\s*:\s*(\d*)\s*", value)
        if match is None and value.strip().isdecimal():
            step = int(value)
            self.fail(f"{value!r} is one number: write `{step}:{step + 1}` for that step alone", param, ctx)
        if match is None or match[1] == match[2] == "":
            self.fail(f"{value!r} is no range of steps: write `10:12`, `10:` or `:12`", param, ctx)
        first, last = (int(number) if number else None for number in match.groups())
        if last is not None and last <= (first or 0):
            self.fail(f"{value!r} has no step: the first one counts, the last one does not", param, ctx)
        return first, last


class NamePattern(click.ParamType[str]):
    """A regular expression that finds ranges by their names."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that polars can use it; Python says best what is wrong with what neither can read."""
        try:
            pl.Series([""]).str.contains(value)
        except pl.exceptions.ComputeError:
            try:
                re.compile(value)
            except re.error as error:
                self.fail(f"{value!r} is no regular expression: {error}", param, ctx)
            self.fail(
                f"{value!r} is beyond what can be searched for: look-around, back-references, huge repeats",
                param,
                ctx,
            )
        return str(value)


def job_options(command: Command) -> Command:
    """Add which ranges are jobs and steps: `preset`, `job_patterns` and `step_patterns`."""
    command = click.option(
        "--step",
        "step_patterns",
        type=NamePattern(),
        multiple=True,
        help="Ranges that are steps; a group named `step` is the number: `--step 'iter (?P<step>\\d+)'`.",
    )(command)
    command = click.option(
        "--job",
        "job_patterns",
        type=NamePattern(),
        multiple=True,
        help="Ranges that are jobs, besides those of the preset, and their kind:"
        " `--job 'forward=fwd (?P<micro_batch>\\d+)'`.",
    )(command)
    return click.option(
        "--preset",
        metavar="NAME|FILE",
        help="Whose names of ranges to go by: a framework's, or rules in a .toml file; by default, what fits.",
    )(command)


def steps_option(command: Command) -> Command:
    """Add `--steps`."""
    return click.option(
        "--steps",
        type=StepWindow(),
        help="Only these steps: `10:12` is 10 and 11, `10:` all from 10 on, `:12` all before 12.",
    )(command)


def training_options(command: Command) -> Command:
    """Add all that is said of a training; `take_training` takes it."""
    command = click.option(
        "--infer-jobs",
        is_flag=True,
        help="Where no range tells jobs, make them of the gaps between messages; they are marked as inferred.",
    )(command)
    command = click.option(
        "--schedule",
        type=click.Choice(api.SCHEDULES),
        help="The schedule that the run follows, whatever it looks like.",
    )(command)
    return job_options(steps_option(command))


def take_training(options: dict[str, Any]) -> api.TrainingOptions:
    """Take what is said of a training out of other options; what a command does not have is left open."""
    return api.TrainingOptions(
        preset=options.pop("preset"),
        job_patterns=options.pop("job_patterns"),
        step_patterns=options.pop("step_patterns"),
        schedule=options.pop("schedule", None),
        steps=options.pop("steps", None),
        infer_jobs=options.pop("infer_jobs", False),
    )
