"""The options of nsys-pp's commands that recipes take and hand on."""

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
class Handed:
    """An option that is handed on as it is.

    Attributes:
        flag: As nsys-pp has it.
        commands: That take it. A recipe has the options of its first command.
        help: In few words; `nsys-pp COMMAND --help` says more.
        how: "one" value, "many" (the option may be repeated), or "none".
    """

    flag: str
    commands: tuple[str, ...]
    help: str
    how: str = "one"

    @property
    def dest(self) -> str:
        """Its name among parsed arguments, where nsys may have one of the same flag."""
        return "nsys_pp_" + self.flag[2:].replace("-", "_")


HANDED = (
    Handed("--detail", ("extract", "merge"), "How much to show: jobs, ranges, kernels or cpu"),
    Handed("--flows", ("extract", "merge"), "Arrows from CUDA calls to what they launched", "none"),
    Handed(
        "--ops",
        ("extract", "merge", "summary"),
        "What ranges are projected onto: kernel,memcpy,memset or all",
    ),
    Handed("--scope", ("extract", "merge", "summary"), "Whose launches count: thread, process or auto"),
    Handed("--preset", _JOBS, "Rules that say which ranges are jobs: a name or a file"),
    Handed("--job", _JOBS, "Further ranges that are jobs: KIND=REGEX", "many"),
    Handed("--step", _JOBS, "Further ranges that are steps: REGEX", "many"),
    Handed("--steps", ("pipeline", "chart", "summary"), "Only these steps: 10:12"),
    Handed("--schedule", _TRAINING, "The schedule to hold the run against"),
    Handed("--infer-jobs", _TRAINING, "Guess jobs from messages where nothing names them", "none"),
    Handed("--device", ("merge",), "Only these GPUs, by their number on their machine: 0,1"),
    Handed("--clock", _TRAINING, "Which clock is believed: collectives, utc or none"),
    Handed("--offset", _TRAINING, "What to add to a machine's UTC: node07=-1.2ms", "many"),
    Handed("--layout", _READING, "How ranks are laid out: pp=4,tp=2,dp=2"),
    Handed("--rank-from", _READING, "Where a file's name has its rank: REGEX"),
    Handed("--table", ("pipeline",), "Which tables, or all"),
    Handed("--tables", ("summary",), "Which tables, or all"),
    Handed("--by", ("summary",), "What tables are split by: run, machine, rank and others"),
    Handed("--sort", ("summary",), "By which column"),
    Handed("--top", ("summary",), "Most rows of each table"),
    Handed("--unit", ("summary",), "Of times: s, ms, us or ns"),
    Handed("--paddle-compat", ("summary",), "Count communication as Paddle does", "none"),
    Handed("--keep-going", _READING, "Skip reports that cannot be read", "none"),
)


def add_options(add: Callable[..., object], main: str) -> None:
    """Add the options of a recipe to its parser.

    Args:
        add: What adds one, called as `argparse.ArgumentParser.add_argument`.
        main: The recipe's first command.
    """
    settings: dict[str, dict[str, Any]] = {
        "one": {"metavar": "VALUE"},
        "many": {"metavar": "VALUE", "action": "append"},
        "none": {"action": "store_true"},
    }
    for option in HANDED:
        if main in option.commands:
            add_one(add, option.flag, dest=option.dest, help=option.help, **settings[option.how])


def add_one(add: Callable[..., object], *names: object, **settings: Any) -> None:
    """Add one option, unless nsys has one of that flag already."""
    with suppress(argparse.ArgumentError):
        add(*names, **settings)


def hand_on(parsed: object, command: str) -> list[str]:
    """Write those of the parsed options that a command takes as its arguments."""
    return [word for option in HANDED if command in option.commands for word in _words(option, parsed)]


def _words(option: Handed, parsed: object) -> Iterator[str]:
    value = getattr(parsed, option.dest, None)
    if option.how == "none":
        yield from [option.flag] * bool(value)
        return
    for one in value if isinstance(value, list) else [] if value is None else [value]:
        # workers may run elsewhere than where the user is
        is_file = option.flag == "--preset" and os.path.isfile(one)
        yield f"{option.flag}={os.path.abspath(one) if is_file else one}"
