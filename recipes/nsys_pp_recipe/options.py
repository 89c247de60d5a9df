"""Options of nsys-pp that recipes accept and forward."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_TRAINING = ("merge", "chart", "pipeline")
_READING = (*_TRAINING, "summary")
_JOBS = ("extract", *_READING)


@dataclass(frozen=True)
class ForwardedOption:
    """An option that is forwarded unchanged.

    Attributes:
        flag: The option's name in nsys-pp.
        commands: Commands that accept it. A recipe has the options of its first command.
        help: Short help text; `nsys-pp COMMAND --help` has the full one.
        values: "one", "many" (repeatable), or "none" (a flag).
    """

    flag: str
    commands: tuple[str, ...]
    help: str
    values: str = "one"

    @property
    def dest(self) -> str:
        """Return the attribute of the parsed arguments; distinct from options of nsys with the same flag."""
        return "nsys_pp_" + self.flag[2:].replace("-", "_")


FORWARDED = (
    ForwardedOption("--detail", ("extract", "merge"), "Level of detail: jobs, ranges, kernels or cpu"),
    ForwardedOption(
        "--show", ("extract", "merge"), "Other data to draw: os, states, samples, mpi, ... or all"
    ),
    ForwardedOption("--flows", ("extract", "merge"), "Draw arrows from CUDA calls to their launches", "none"),
    ForwardedOption(
        "--ops",
        ("extract", "merge", "summary"),
        "GPU operations that ranges are projected onto: kernel,memcpy,memset or all",
    ),
    ForwardedOption(
        "--scope", ("extract", "merge", "summary"), "Launches that count for a range: thread, process or auto"
    ),
    ForwardedOption("--preset", _JOBS, "Naming rules: a built-in preset or a .toml file"),
    ForwardedOption("--job-pattern", _JOBS, "Additional ranges that are jobs: KIND=REGEX", "many"),
    ForwardedOption("--step-pattern", _JOBS, "Additional ranges that are steps: REGEX", "many"),
    ForwardedOption("--steps", ("pipeline", "chart", "summary"), "Include only these steps: 10:12"),
    ForwardedOption("--schedule", _TRAINING, "Pipeline schedule of the run"),
    ForwardedOption("--infer-jobs", _TRAINING, "Infer jobs from messages where no range is a job", "none"),
    ForwardedOption("--device", ("merge",), "Include only these GPUs (index per machine): 0,1"),
    ForwardedOption(
        "--split", ("merge",), "Overview and traces by machine or rank: auto, none, machine, rank"
    ),
    ForwardedOption("--max-events", ("merge",), "Largest number of events of a trace with --split auto"),
    ForwardedOption("--clock", _TRAINING, "Clock alignment: collectives, utc or none"),
    ForwardedOption("--offset", _TRAINING, "Override a machine's clock offset: node07=-1.2ms", "many"),
    ForwardedOption("--layout", _READING, "Parallel layout of the ranks: pp=4,tp=2,dp=2"),
    ForwardedOption("--rank-from", _READING, "Rank in the file name: REGEX"),
    ForwardedOption("--table", ("pipeline", "summary"), "Tables to write: NAME,... or all"),
    ForwardedOption("--flops-per-step", ("pipeline",), "FLOPs of the model in one step, over all GPUs"),
    ForwardedOption(
        "--model", ("pipeline",), "Shape of a transformer, for its FLOPs: layers=32,hidden=4096,..."
    ),
    ForwardedOption(
        "--data-type", ("pipeline",), "Data type of the peak of GPUs, for model FLOPs utilisation"
    ),
    ForwardedOption("--by", ("summary",), "Groups of rows: run, machine, rank and others"),
    ForwardedOption("--sort", ("summary",), "Sort tables by this column"),
    ForwardedOption("--limit", ("summary",), "Maximum number of rows per group; 0: all"),
    ForwardedOption("--unit", ("summary",), "Unit of all times: s, ms, us or ns"),
    ForwardedOption("--paddle-compat", ("summary",), "Include the CPU time of communication", "none"),
    ForwardedOption("--keep-going", _READING, "Skip reports that cannot be processed", "none"),
)


def add_options(add: Callable[..., object], main: str) -> None:
    """Add the options of a recipe to its parser.

    Args:
        add: Function that adds an option, called as `argparse.ArgumentParser.add_argument`.
        main: The recipe's first command.
    """
    settings: dict[str, dict[str, Any]] = {
        "one": {"metavar": "VALUE"},
        "many": {"metavar": "VALUE", "action": "append"},
        "none": {"action": "store_true"},
    }
    for option in FORWARDED:
        if main in option.commands:
            add_option(add, option.flag, dest=option.dest, help=option.help, **settings[option.values])


def add_option(add: Callable[..., object], *names: object, **settings: Any) -> None:
    """Add an option, unless nsys defines its flag already."""
    with suppress(argparse.ArgumentError):
        add(*names, **settings)


def forward_options(parsed: object, command: str) -> list[str]:
    """Return the command line arguments of the parsed options that a command accepts."""
    return [
        argument
        for option in FORWARDED
        if command in option.commands
        for argument in _format_option(option, parsed)
    ]


def _format_option(option: ForwardedOption, parsed: object) -> Iterator[str]:
    parsed_value = getattr(parsed, option.dest, None)
    if option.values == "none":
        yield from [option.flag] * bool(parsed_value)
        return
    values = (
        parsed_value if isinstance(parsed_value, list) else [] if parsed_value is None else [parsed_value]
    )
    for value in values:
        # Workers may run in another folder.
        is_file = option.flag == "--preset" and os.path.isfile(value)
        yield f"{option.flag}={os.path.abspath(value) if is_file else value}"
