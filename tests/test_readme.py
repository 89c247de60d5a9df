"""The README is true today."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from nsys_pp.cli import main
from nsys_pp.commands.project import PROJECT_COLUMNS
from tests.readme import BLOCK, PAGES, README, ROOT, run

BLOCKS = list(BLOCK.finditer(README.read_text()))
OUTPUTS = {  # by command: each runs once, wherever it is shown
    block["words"]: {
        other["output"]
        for page in PAGES
        for other in BLOCK.finditer(page.read_text())
        if other["words"] == block["words"]
    }
    for page in PAGES
    for block in BLOCK.finditer(page.read_text())
}
CODE = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("words", OUTPUTS)
def test_commands_print_what_pages_show(words: str, tmp_path: Path) -> None:
    printed = without_sizes(run(words, tmp_path))
    assert {without_sizes(shown) for shown in OUTPUTS[words]} == {printed}


def without_sizes(text: str) -> str:
    """Another version of the compressor may need some bytes more or less."""
    return re.sub(r"\([\d.]+ [KM]iB\)", "(size)", text)


def test_the_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(ROOT)
    variables: dict[str, Any] = {}
    exec(example, variables)
    assert all(len(variables[name]) for name in ("ranges", "steps", "clocks", "stages", "jobs"))


def test_every_command_is_shown() -> None:
    shown = {block["words"].split()[0] for block in BLOCKS}
    on_this_machine = {
        "recipe": "install",
        "cache": "clear",
        "open": "run.pftrace",
        "shell-setup": "",
    }  # they print what is there
    assert shown == set(main.commands) - set(on_this_machine)
    for name, argument in on_this_machine.items():
        assert f"nsys-pp {name} {argument}".strip() in README.read_text()


def test_every_option_of_the_readme_is_there() -> None:
    known = {name for command in main.commands.values() for param in command.params for name in param.opts}
    others = {
        "--trace",
        "--type",
        "--cuda-graph-trace",
        "--input",
        "--quiet",
        "--editable",
        "--help",
    }  # of nsys, pip and click
    text = BLOCK.sub(lambda block: block["words"], README.read_text())
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= known | others


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_not_run_are_those_of_the_program(page: Path) -> None:
    """Each command is there, and has the options that are shown."""
    for line in "\n".join(CODE.findall(page.read_text())).splitlines():
        words = shlex.split(line.split("  #")[0].replace("&&", ";"))
        for at in (at for at, word in enumerate(words) if word.endswith("nsys-pp")):
            name, *arguments = words[at + 1 :]
            assert name in main.commands, line
            known = {option for param in main.commands[name].params for option in param.opts}
            asked = {
                word.split("=")[0] for word in takewhile(_is_argument, arguments) if word.startswith("-")
            }
            assert asked <= known | {"--help"}, line


def _is_argument(word: str) -> bool:
    return word not in (";", "|") and not word.endswith(")")


def test_columns_of_project_are_listed_in_order() -> None:
    text = README.read_text()
    listed = text[text.index("Columns of `nsys-pp project`") :]
    listed = re.sub(r"\([^)]*\)", "", listed[: listed.index("\n\n")])
    names = re.findall(r"`([a-z_]+)`", listed.split(":", 1)[1])
    assert tuple(names) == PROJECT_COLUMNS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_linked_are_there(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)]+)\)", page.read_text())
    assert links
    assert all((page.parent / link).is_file() for link in links)
