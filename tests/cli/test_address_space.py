"""A limited address space is named, before libraries abort, and where they raise errors of other causes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nsys_pp.cli import address_space
from nsys_pp.cli.unforeseen import explain_unforeseen
from tests.cli.calls import call
from tests.cli.test_last_resort import RANK0

pytest.importorskip("resource")


def run_limited(kib: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nsys_pp", *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", f'ulimit -v {kib} && exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_limit_that_is_too_low_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = run_limited(300 << 10, "summary", RANK0, "--result", tmp_path / "result.json")
    assert done.returncode == 1
    error, hint = done.stderr.strip().split("\n\n")
    message = (
        "the address space is limited to 300 MiB (`ulimit -v`), and nsys-pp needs more than 512 MiB to start"
    )
    assert error == f"Error: {message}"
    assert hint.startswith("hint: raise it with `ulimit -v unlimited`")
    assert json.loads((tmp_path / "result.json").read_text())["error"]["message"] == message


def test_commands_without_reports_run_in_any_limit() -> None:
    assert run_limited(300 << 10, "summary", "--help").returncode == 0


@pytest.mark.parametrize(("mib", "is_noted"), [(1023, True), (1024, False), (None, False)])
def test_a_limit_that_may_be_too_low_is_noted(
    mib: int | None, *, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_space, "find_limit", lambda: None if mib is None else mib << 20)
    done = call("info", RANK0)
    assert done.code == 0
    assert ("note: the address space is limited to 1,023 MiB" in done.stderr) is is_noted


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ImportError("/x/libz.so.1: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
        chained(ImportError("PLEASE READ THIS"), ImportError("failed to map segment from shared object")),
    ],
)
def test_a_lack_of_memory_is_no_defect(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_space, "find_limit", lambda: 600 << 20)
    message, _ = explain_unforeseen(error)
    assert message == "there is not enough memory: the address space is limited to 600 MiB (`ulimit -v`)"
    monkeypatch.setattr(address_space, "find_limit", lambda: None)
    message, _ = explain_unforeseen(error)
    is_certain = isinstance(error, MemoryError)
    assert message.startswith("there is not enough memory" if is_certain else "unforeseen ")


def test_other_errors_are_unforeseen_in_any_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_space, "find_limit", lambda: 600 << 20)
    assert explain_unforeseen(KeyError("x"))[0] == "unforeseen KeyError: 'x'"
