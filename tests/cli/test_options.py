"""Options have one name, one meaning and one help text in all commands; `--help` has one order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nsys_pp.cli import main
from nsys_pp.options import SECTIONS
from tests.cli.calls import PATIENCE_S, call, environment


def list_commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from list_commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(list_commands(main))


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


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_sections_in_one_order_in_80_columns(path: tuple[str, ...]) -> None:
    for option in COMMANDS[path].params:
        assert getattr(option, "section", None) in SECTIONS, option.name
        if isinstance(option, click.Option):
            assert option.help
            assert option.help.endswith("."), option.help
    formats = [option.type.choices for option in COMMANDS[path].params if option.name == "format"]  # type: ignore[attr-defined]
    has_json = any("--json" in option.opts for option in COMMANDS[path].params)
    assert has_json == any("json" in choices for choices in formats)
    text = call(*path, "--help", env={"COLUMNS": "80", "FORCE_COLOR": "1"}).stdout
    assert text.isascii()
    assert "\x1b" not in text
    # examples are lines to copy, and stay whole
    assert [line for line in text.splitlines() if len(line) > 80 and "nsys-pp" not in line] == []
    headings = re.findall(r"^(\w.*):$", text, re.MULTILINE)
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


_LIST_MODULES = (
    "import sys; from nsys_pp.cli import main; main(sys.argv[1:], standalone_mode=False);"
    " print(*sys.modules, file=sys.stderr)"
)


def imported_by(*arguments: str | Path) -> set[str]:
    """List the modules that a process has imported at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", _LIST_MODULES, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.few(3)
@pytest.mark.parametrize("words", [[], *([name] for name in main.commands)], ids=" ".join)
def test_help_imports_no_library(words: list[str]) -> None:
    modules = imported_by(*words, "--help")
    assert "click" in modules
    assert not modules & {"polars", "numpy", "rich", "sqlite_utils", "bokeh"}
    assert not modules & {"nsys_pp.read", "nsys_pp.commands", "nsys_pp.training"}
    assert words or "msgspec" not in modules


def test_a_trace_of_perfetto_imports_no_renderer_of_tables(tmp_path: Path) -> None:
    report = Path(__file__).parent.parent.parent / "fixtures" / "clocks" / "node1" / "rank0.sqlite"
    modules = imported_by("merge", report, "-o", tmp_path / "run.pftrace")
    assert {"polars", "nsys_pp.output.perfetto.trace"} <= modules
    unused = ("rich", "sqlite_utils", "bokeh", "distributed", "multiprocessing.pool", "nsys_pp.output.chrome")
    assert not modules & {*unused, "nsys_pp.executors.pool"}
    assert not [
        name for name in modules if name.startswith(("nsys_pp.tables.summary", "nsys_pp.output.chart"))
    ]
