"""Training options: the ranges that are jobs and steps, and the steps to include."""

from __future__ import annotations

import functools
import re
from typing import Any, cast

import click
import polars as pl

from nsys_pp import commands as api
from nsys_pp.cli.sections import SELECTION, TRAINING, Command, option


class StepWindow(click.ParamType[tuple[int | None, int | None]]):
    """Half-open interval of step numbers: `10:12` is 10 and 11; either end may be omitted."""

    name = "steps"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        """Return both ends; None for an omitted one."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"\s*(\d*)\s*:\s*(\d*)\s*", value)
        if match is None and value.strip().isdecimal():
            step = int(value)
            self.fail(f"invalid steps {value!r}; for that step alone, use `{step}:{step + 1}`", param, ctx)
        if match is None or match[1] == match[2] == "":
            self.fail(f"invalid steps {value!r}; expected e.g. `10:12`, `10:` or `:12`", param, ctx)
        first, last = (int(number) if number else None for number in match.groups())
        if last is not None and last <= (first or 0):
            self.fail(f"empty steps {value!r}; the first step is included, the last one is not", param, ctx)
        return first, last


class NamePattern(click.ParamType[str]):
    """A regular expression for names of ranges."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that polars supports the expression; errors come from `re`, with clearer messages."""
        try:
            pl.Series([""]).str.contains(value)
        except pl.exceptions.ComputeError:
            try:
                re.compile(value)
            except re.error as error:
                self.fail(f"invalid regular expression {value!r}: {error}", param, ctx)
            self.fail(
                f"unsupported regular expression {value!r}: look-around, back-references and huge repetitions"
                " are not available",
                param,
                ctx,
            )
        return str(value)


steps_option = option(
    "--steps",
    section=SELECTION,
    type=StepWindow(),
    metavar="A:B",
    help="Include only these steps: 10:12 is 10 and 11; 10: begins with 10; :12 ends before 12.",
)


def job_options(command: Command) -> Command:
    """Add `--preset`, `--job-pattern` and `--step-pattern`."""
    command = option(
        "--step-pattern",
        "step_patterns",
        section=TRAINING,
        type=NamePattern(),
        metavar="REGEX",
        multiple=True,
        help="Additional ranges that are steps; a group named `step` is the number, e.g. 'iter (?P<step>\\d+)'."
        " Repeatable.",
    )(command)
    command = option(
        "--job-pattern",
        "job_patterns",
        section=TRAINING,
        type=NamePattern(),
        metavar="KIND=REGEX",
        multiple=True,
        help="Additional ranges that are jobs, with their kind, e.g. 'forward=fwd (?P<micro_batch>\\d+)'. Repeatable.",
    )(command)
    return option(
        "--preset",
        section=TRAINING,
        metavar="NAME|FILE",
        help="Naming rules: a built-in preset or a .toml file.",
        default_text="detected",
    )(command)


def training_options(command: Command) -> Command:
    """Add `--steps`, `--preset`, `--job-pattern`, `--step-pattern`, `--schedule` and `--infer-jobs`.

    The command receives them as `training`.
    """
    command = option(
        "--infer-jobs",
        section=TRAINING,
        is_flag=True,
        help="Infer jobs from the gaps between messages where no range is a job; inferred jobs are marked.",
    )(_with_training(command))
    command = option(
        "--schedule",
        section=TRAINING,
        type=click.Choice(api.SCHEDULES),
        help="Pipeline schedule of the run.",
        default_text="detected",
    )(command)
    return job_options(steps_option(command))


def job_and_steps_options(command: Command) -> Command:
    """Add `--steps`, `--preset`, `--job-pattern` and `--step-pattern`; the command receives `training`."""
    return job_options(steps_option(_with_training(command)))


def _with_training(command: Command) -> Command:
    @functools.wraps(command)
    def with_training(
        *args: Any,
        preset: str | None,
        job_patterns: tuple[str, ...],
        step_patterns: tuple[str, ...],
        steps: tuple[int | None, int | None] | None,
        schedule: Any = None,
        infer_jobs: bool = False,
        **options: Any,
    ) -> Any:
        training = api.TrainingOptions(
            preset=preset,
            job_patterns=job_patterns,
            step_patterns=step_patterns,
            schedule=schedule,
            steps=steps,
            infer_jobs=infer_jobs,
        )
        return command(*args, training=training, **options)

    return cast(Command, with_training)
