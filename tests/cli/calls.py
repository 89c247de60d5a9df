"""Calls the command line, in this process or in one of its own, and holds what refusals look like."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from nsys_pp.cli import main

PATIENCE_S = 600  # then a test gives up on a program that hangs; none depends on the speed of the machine
COMMANDS = ("merge", "project", "info")
# The committed run: four ranks on two machines.
PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
REPORTS = [PIPELINE / f"node{node}/rank{rank}.sqlite" for node, rank in ((2, 0), (2, 1), (10, 2), (10, 3))]
RANK0, RANK1 = REPORTS[:2]


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str


def call(
    *arguments: str | Path, env: Mapping[str, str | None] | None = None, foresees: bool = True
) -> Result:
    """Call `nsys-pp` in this process; an exception that the user would see as a traceback is raised.

    Args:
        arguments: Of the command.
        env: Changes of the environment.
        foresees: Fail at an unforeseen error, which the user would see as a defect.
    """
    env = {"NSYS_PP_LOG_SECONDS": "0", "COLUMNS": None, **(env or {})}  # pytest-xdist sets it for its workers
    done = CliRunner().invoke(main, list(map(str, arguments)), env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert not foresees or "unforeseen" not in done.stderr, done.stderr
    return Result(done.exit_code, done.stdout, done.stderr)


def succeed(*arguments: str | Path, env: Mapping[str, str | None] | None = None) -> Result:
    """Call `nsys-pp` in this process, and hold that it exits with 0."""
    done = call(*arguments, env=env)
    assert done.code == 0, done
    return done


def arguments_of(command: str, *reports: str | Path, folder: Path) -> list[str]:
    """Give the arguments of one of `COMMANDS` on some reports, with its output in `folder`."""
    name, *options = command.split()
    output = {"merge": "out.pftrace", "project": "out.parquet"}.get(name)
    if output is not None:
        options += ["-o", str(folder / output)]
    return [name, *map(str, reports), *options]


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "nsys_pp", *map(str, arguments)]


def run(*arguments: str | Path, before: Sequence[str] = (), **options: Any) -> Result:
    """Run `nsys-pp` as a process of its own.

    Args:
        arguments: Of the command.
        before: What starts it.
        options: Of `subprocess.run`.
    """
    line = [*before, *command_line(*arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **options}
    done = subprocess.run(line, check=False, text=True, timeout=PATIENCE_S, **options)
    return Result(done.returncode, done.stdout or "", done.stderr or "")


def environment(**changes: str) -> dict[str, str]:
    """The environment of a subprocess: the same code, and warnings are errors there, too.

    But not those of files left open, which an interrupt leaves where it meets an import.

    What says how large a terminal is stays behind: pytest-xdist sets it for its workers.
    """
    root = str(Path(__file__).parents[2])
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    quiet = {"NSYS_PP_LOG_SECONDS": "0"}  # progress lines depend on the speed of the machine
    return {
        **inherited,
        "PYTHONPATH": root,
        "PYTHONWARNINGS": "error,ignore:nsys says of,ignore::ResourceWarning",
        **quiet,
        **changes,
    }


def wait_until(happens: Callable[[], bool], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until something happens, maybe while a process runs."""
    until = time.monotonic() + PATIENCE_S
    while not happens():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)


def on_terminal(*arguments: str | Path, **variables: str) -> str:
    """Run `nsys-pp` on a terminal of 80 columns, or what the environment says; what it shows there."""
    parent, child = pty.openpty()
    env = environment(**{"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40", **variables})
    process = subprocess.Popen(command_line(*arguments), stdout=child, stderr=subprocess.DEVNULL, env=env)
    os.close(child)
    shown = b""
    with suppress(OSError):  # what Linux says at the end
        while part := os.read(parent, 65_536):
            shown += part
    os.close(parent)
    assert process.wait(timeout=PATIENCE_S) == 0
    return shown.decode().replace("\r\n", "\n")


def assert_refused(result: Result, *words: str, code: int = 1) -> None:
    """Hold that a refusal is one sentence with all `words`, and a hint, and nothing else."""
    assert "Traceback" not in result.stderr, result.stderr
    assert "unforeseen" not in result.stderr, result.stderr
    assert result.code == code, result
    assert result.stdout == ""
    sentence, blank, hint, *rest = result.stderr.split("\n")
    assert sentence.startswith("Error: "), result.stderr
    assert not sentence.endswith(".")
    assert blank == ""
    assert hint.startswith("hint: "), result.stderr
    assert len(hint) > len("hint: ") + 10
    assert rest == [""]
    for word in words:
        assert word in sentence, result.stderr
