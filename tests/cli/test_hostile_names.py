"""Names in reports reach neither the terminal nor a spreadsheet as programs."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys_pp.cli.log import escape_screen
from tests.cli.calls import call

RANK0 = Path(__file__).parents[2] / "fixtures" / "pipeline" / "node2" / "rank0.sqlite"
_EVIL = "\x1b]0;owned\x07\x1b[2J\nError: none\r\x9b31m\u202e"
_RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Return a report whose host, GPU, process, ranges and file have names with control characters."""
    report = Path(shutil.copy(RANK0, tmp_path / "evil\x1b]0;x\x07\nnote: fine.sqlite"))
    with closing(sqlite3.connect(report)) as connection, connection:
        edits = {
            "UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'": _EVIL,
            "UPDATE META_DATA_CAPTURE SET value = ? WHERE name = 'DEVICE_DISPLAY_NAME'": _EVIL,
            "UPDATE TARGET_INFO_GPU SET name = ?": _EVIL,
            "UPDATE PROCESSES SET name = ?": _EVIL,
            "UPDATE StringIds SET value = ? WHERE value = 'python'": _EVIL,
            "UPDATE NVTX_EVENTS SET text = text || ? WHERE text LIKE 'zero%'": _EVIL,
        }
        for statement, value in edits.items():
            connection.execute(statement, [value])
    return report


@pytest.mark.parametrize(
    "command",
    [
        "info",
        "pipeline",
        "summary",
        "align",
        "project",
        "merge -o {}/o.pftrace",
        "pipeline --explain-jobs",
        "nope",
    ],
)
def test_nothing_raw_reaches_the_terminal(evil: Path, tmp_path: Path, command: str) -> None:
    if command == "nope":
        evil.unlink()
        command = "info"
    done = call(*command.format(tmp_path).split(), evil)
    for text in (done.stdout, done.stderr):
        assert not _RAW.search(text), repr(text)
        assert not any(line.startswith(("Error: none", "note: fine")) for line in text.splitlines())


def test_colors_of_the_screen_stay() -> None:
    assert (
        escape_screen("\x1b[1;36mTitle\x1b[0m\n\x1b]0;x\x07\u202e")
        == "\x1b[1;36mTitle\x1b[0m\n\\x1b]0;x\\x07\\u202e"
    )


def test_names_are_no_formulas_in_csv(tmp_path: Path) -> None:
    report = Path(shutil.copy(RANK0, tmp_path))
    with closing(sqlite3.connect(report)) as connection, connection:
        for sign, old in zip("=+-@", ("forward_0", "forward_1", "backward_0", "backward_1"), strict=True):
            connection.execute("UPDATE NVTX_EVENTS SET text = ? || text WHERE text LIKE ?", [sign, f"{old}%"])
    safe = call("project", report, "--format", "csv")
    assert safe.code == 0
    for sign in "=+-@":
        assert f",'{sign}" in safe.stdout
    assert not re.search(r",[=+@]", safe.stdout)
    raw = call("project", report, "--format", "csv", env={"NSYS_PP_CSV": "raw"})
    assert raw.stdout == re.sub(r",'([=+\-@])", r",\1", safe.stdout)
