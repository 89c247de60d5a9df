"""The README is true today."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nsys_pp.cli import main
from nsys_pp.commands.project import PROJECT_COLUMNS
from tests.readme import BLOCK, README, ROOT, run

BLOCKS = list(BLOCK.finditer(README.read_text()))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["words"].split()[0])
def test_commands_print_what_the_readme_shows(block: re.Match[str], tmp_path: Path) -> None:
    assert without_sizes(block["output"]) == without_sizes(run(block["words"], tmp_path))


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


def test_columns_of_project_are_listed_in_order() -> None:
    text = README.read_text()
    listed = text[text.index("Columns of `nsys-pp project`") :]
    listed = re.sub(r"\([^)]*\)", "", listed[: listed.index("\n\n")])
    names = re.findall(r"`([a-z_]+)`", listed.split(":", 1)[1])
    assert tuple(names) == PROJECT_COLUMNS


def test_files_that_are_linked_are_there() -> None:
    links = re.findall(r"\]\((?!http)([^)]+)\)", README.read_text())
    assert links
    assert all((ROOT / link).is_file() for link in links)
