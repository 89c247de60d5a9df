"""Names of files that are no UTF-8, as folders of older systems have: read, and shown with escaped bytes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from nsys_pp.frames.ids import describe_path
from tests.cli.calls import run
from tests.cli.test_last_resort import RANK0, RANK1

COMMANDS = [
    "merge --split machine -o OUT/caf\udce9.pftrace",
    "merge -o OUT/run.json",
    "pipeline",
    "summary --format json --explain-rows --log-format json",
    "check",
    "info",
    "align",
    "compare INPUT",
    "extract -o OUT/run.nspart",
    "report -o OUT/run.html",
    "chart -o OUT/run.html",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two reports of a run: bytes of a name of Latin-1 are in the folder of one, and in the name of the other."""
    folder = tmp_path / "in"
    try:
        (folder / "caf\udce9").mkdir(parents=True)
    except OSError:
        pytest.skip("the file system has no such names")
    shutil.copy(RANK0, folder / "caf\udce9" / "a.sqlite")
    shutil.copy(RANK1, folder / "th\udce9.sqlite")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_names_may_be_bytes(command: str, folder: Path, tmp_path: Path) -> None:
    out, result = tmp_path / "out", tmp_path / "r\udce9sult.json"
    out.mkdir()
    words = [word.replace("OUT", str(out)).replace("INPUT", str(folder)) for word in command.split()]
    done = run(*words, folder, "--result", result, errors="surrogateescape")
    assert done.code in (0, 4), done.stderr
    recorded = json.loads(result.read_bytes())
    assert recorded["exit_status"] == done.code
    assert {os.fsencode(each["path"]) for each in recorded["outputs"]} <= {
        os.fsencode(path) for path in tmp_path.rglob("*")
    }


def test_parts_of_such_reports_are_kept_and_merged(folder: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    assert run("extract", folder, "-o", parts).code == 0
    again = run("extract", folder, "-o", parts)
    assert again.stderr.count("already there") == 2, again.stderr
    assert run("merge", parts, "-o", tmp_path / "run.pftrace").code == 0


def test_bytes_are_escaped() -> None:
    assert describe_path(Path("caf\udce9/é.sqlite")) == "caf\\xe9/é.sqlite"
