"""Options of nsys-pp that recipes accept and forward, from the table that its command line is made of."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
TABLE = "table.py"  # written by `nsys-pp recipe install`, next to this file
# in a folder of recipes, inside an installed package, in a checkout
_PLACES = (
    _PACKAGE / TABLE,
    _PACKAGE.parents[1] / "options.py",
    _PACKAGE.parents[1] / "nsys_pp" / "options.py",
)
_COMMANDS = ("extract", "merge", "chart", "pipeline", "summary")
_NOT_FORWARDED = {
    ("extract", "keep_going"),  # what it cannot make a part of is left to the next command
    ("merge", "steps"),  # needs events, which parts do not have
    ("pipeline", "devices"),
    ("pipeline", "limit"),
}


def _read_table() -> list[Any]:
    """Read the forwarded options: rows of `nsys_pp.options.OPTIONS`."""
    place = next(path for path in _PLACES if path.is_file())
    spec = importlib.util.spec_from_file_location("nsys_pp_recipe_table", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [option for option in module.OPTIONS if option.is_forwarded]


FORWARDED = _read_table()


def accepts(command: str, option: Any) -> bool:
    """Return whether an option is forwarded to a command."""
    is_known = command in _COMMANDS and command in option.commands.split()
    return is_known and (command, option.name) not in _NOT_FORWARDED


def add_options(add: Callable[..., object], main: str) -> None:
    """Add the options of a recipe to its parser.

    Args:
        add: Function that adds an option, called as `argparse.ArgumentParser.add_argument`.
        main: The recipe's first command.
    """
    for option in FORWARDED:
        if accepts(main, option):
            settings: dict[str, Any] = {"choices": option.choices} if option.choices else {"metavar": "VALUE"}
            if option.is_many:
                settings["action"] = "append"
            if option.type is bool:
                settings = {"action": "store_true"}
            help = option.help.replace("%", "%%")
            add_option(add, option.flags, dest=f"nsys_pp_{option.name}", help=help, **settings)


def add_option(add: Callable[..., object], *names: object, **settings: Any) -> None:
    """Add an option, unless nsys defines its flag already."""
    with suppress(argparse.ArgumentError):
        add(*names, **settings)


def forward_options(parsed: object, command: str) -> list[str]:
    """Return the command line arguments of the parsed options that a command accepts."""
    return [
        word for option in FORWARDED if accepts(command, option) for word in _format_option(option, parsed)
    ]


def _format_option(option: Any, parsed: object) -> Iterator[str]:
    value = getattr(parsed, f"nsys_pp_{option.name}", None)
    if option.type is bool:
        yield from [option.flags] * bool(value)
        return
    for one in value if isinstance(value, list) else [] if value is None else [value]:
        # Workers may run in another folder.
        is_file = option.name == "preset" and os.path.isfile(one)
        yield f"{option.flags}={os.path.abspath(one) if is_file else one}"
