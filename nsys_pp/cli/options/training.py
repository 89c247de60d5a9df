"""Training options: the ranges that are jobs and steps, and the steps to include."""

from __future__ import annotations

import click

from nsys_pp.cli.sections import SELECTION, TRAINING, Command, option
from nsys_pp.frames.choices import DATA_TYPES, SCHEDULES

steps_option = option(
    "--steps",
    section=SELECTION,
    metavar="A:B",
    help="Include only these steps: 10:12 is 10 and 11; 10: begins with 10; :12 ends before 12.",
)


def job_options(command: Command) -> Command:
    """Add `--preset`, `--job-pattern` and `--step-pattern`."""
    command = option(
        "--step-pattern",
        "step_patterns",
        section=TRAINING,
        metavar="REGEX",
        multiple=True,
        help="Additional ranges that are steps; a group named `step` is the number, e.g. 'iter (?P<step>\\d+)'."
        " Repeatable.",
    )(command)
    command = option(
        "--job-pattern",
        "job_patterns",
        section=TRAINING,
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


def flops_options(command: Command) -> Command:
    """Add `--flops-per-step`, `--model` and `--data-type`."""
    command = option(
        "--data-type",
        section=TRAINING,
        type=click.Choice(DATA_TYPES),
        default="bf16",
        help="Data type of the peak of GPUs, for `--flops-per-step` and `--model`.",
    )(command)
    command = option(
        "--model",
        section=TRAINING,
        metavar="KEY=N,...",
        help="Shape of a transformer and batch of a step over all ranks, for its FLOPs: layers, hidden, sequence, batch;"
        " also vocabulary, feed_forward, gated=1, heads, kv_heads. Adds a table of model FLOPs utilisation.",
    )(command)
    return option(
        "--flops-per-step",
        section=TRAINING,
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="FLOPs of the model in one step, over all GPUs. Adds a table of model FLOPs utilisation.",
    )(command)


def run_options(command: Command) -> Command:
    """Add `--preset`, `--job-pattern`, `--step-pattern`, `--schedule` and `--infer-jobs`."""
    command = option(
        "--infer-jobs",
        section=TRAINING,
        is_flag=True,
        help="Infer jobs from the gaps between messages where no range is a job; inferred jobs are marked.",
    )(command)
    command = option(
        "--schedule",
        section=TRAINING,
        type=click.Choice(SCHEDULES),
        help="Pipeline schedule of the run.",
        default_text="detected",
    )(command)
    return job_options(command)


def training_options(command: Command) -> Command:
    """Add `--steps`, `--preset`, `--job-pattern`, `--step-pattern`, `--schedule` and `--infer-jobs`."""
    return run_options(steps_option(command))


def job_and_steps_options(command: Command) -> Command:
    """Add `--steps`, `--preset`, `--job-pattern` and `--step-pattern`."""
    return job_options(steps_option(command))
