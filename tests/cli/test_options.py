"""Options have one name, one meaning and one help text in all commands; `--help` has one order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest

from nsys_pp.cli import main
from nsys_pp.options import SECTIONS
from tests.cli.calls import call

pytestmark = pytest.mark.usefixtures("reports_read_once")


def list_commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from list_commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(list_commands(main))
each_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def describe(option: click.Option) -> tuple[object, ...]:
    """Everything but defaults and choices, which differ between commands."""
    return (
        sorted(option.opts),
        option.name,
        option.help,
        type(option.type),
        option.metavar,
        option.multiple,
        option.is_flag,
        getattr(option, "section", None),
    )


def test_an_option_is_the_same_in_all_commands() -> None:
    definitions = defaultdict(set)
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option, click.Option):
                for name in option.opts:
                    definitions[name].add(repr(describe(option)))
    assert {name: texts for name, texts in definitions.items() if len(texts) > 1} == {}


def test_an_option_with_the_same_choices_everywhere_has_the_same_type() -> None:
    types = defaultdict(set)
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option.type, click.Choice) and option.name not in ("format", "by"):
                types[option.name].add(tuple(option.type.choices))
    assert all(len(choices) == 1 for choices in types.values())


@each_command
def test_every_option_has_a_section_and_a_help_text(path: tuple[str, ...]) -> None:
    for option in COMMANDS[path].params:
        assert getattr(option, "section", None) in SECTIONS, option.name
        if isinstance(option, click.Option):
            assert option.help
            assert option.help.endswith("."), option.help


@each_command
def test_sections_have_one_order(path: tuple[str, ...]) -> None:
    headings = re.findall(r"^(\w.*):$", call(*path, "--help").stdout, re.MULTILINE)
    known = [heading for heading in headings if heading in SECTIONS]
    assert headings == known == sorted(known, key=SECTIONS.index)


@pytest.mark.parametrize("group", [(), ("recipe",)], ids=["main", "recipe"])
def test_descriptions_in_the_list_of_commands_are_whole_in_80_columns(group: tuple[str, ...]) -> None:
    listed = call(*group, "--help", env={"COLUMNS": "80"}).stdout.split("Commands:\n")[1]
    assert "..." not in listed
    commands = {path[-1]: command for path, command in COMMANDS.items() if path[:-1] == group}
    for line in listed.splitlines():
        name, text = line.split(maxsplit=1)
        if name in commands:
            assert (commands[name].help or "").startswith(text)


@each_command
def test_help_fits_80_columns(path: tuple[str, ...]) -> None:
    # examples are lines to copy, and stay whole
    text = call(*path, "--help", env={"COLUMNS": "80"}).stdout
    assert [line for line in text.splitlines() if len(line) > 80 and "nsys-pp" not in line] == []


@each_command
def test_help_is_plain_ascii_without_colour(path: tuple[str, ...]) -> None:
    assert call(*path, "--help", env={"FORCE_COLOR": "1"}).stdout.isascii()
    assert "\x1b" not in call(*path, "--help", env={"FORCE_COLOR": "1"}).stdout


@each_command
def test_json_is_the_short_form_wherever_json_is_a_format(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    formats = [option.type.choices for option in command.params if option.name == "format"]  # type: ignore[attr-defined]
    assert has_option(command, "--json") == any("json" in choices for choices in formats)


def has_option(command: click.Command, name: str) -> bool:
    return any(name in option.opts for option in command.params)
