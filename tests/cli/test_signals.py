"""Interrupts and closed pipes: no traceback, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from fixtures.recording.bulk import write_bulk_report
from nsys_pp.__main__ import main
from tests.cli.calls import PATIENCE_S, PIPELINE, RANK0, command_line, environment, run, wait_until
from tests.sql import edit


@pytest.fixture(scope="module")
def large_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bulk_report(
        tmp_path_factory.mktemp("large") / "report.sqlite", kernels=100_000, ranges=100_000
    )


def _reads(report: Path, output: Path, process: int) -> bool:
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # it may have been closed just now
            if link.readlink() == report:
                return True
    return False


def _writes(report: Path, output: Path, process: int) -> bool:
    return any(path.stat().st_size > 0 for path in output.parent.glob(f".{output.name}.*"))


@pytest.mark.few(1)
@pytest.mark.parametrize("moment", [_reads, _writes])
@pytest.mark.parametrize("name", ["run.pftrace", "run.json", "run.json.gz"])
def test_an_interrupt_leaves_nothing_behind(
    large_report: Path, tmp_path: Path, name: str, moment: Callable[[Path, Path, int], bool]
) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to see what a process has open")
    output = tmp_path / name
    output.write_text("precious")
    line = command_line("merge", large_report, "-o", output, "--force", "--detail", "cpu")
    process = subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: moment(large_report, output, process.pid), process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    # Python may lose a lock to the interrupt; then the clock ends the process
    assert process.returncode in (130, -signal.SIGALRM), stderr
    assert stdout == ""
    assert stderr.strip() == ("Interrupted" if process.returncode == 130 else "")
    assert output.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [output]


def test_an_interrupt_while_modules_are_loaded_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loading(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "nsys_pp.cli", Loading("nsys_pp.cli"))
    with pytest.raises(SystemExit, match="130"):
        main()


def test_an_interrupt_is_one_object_in_a_log_of_json(large_report: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    line = command_line(
        "merge", large_report, "-o", tmp_path / "run.pftrace", "--log-format", "json", "--result", result
    )
    process = subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: _reads(large_report, tmp_path, process.pid), process)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (143, -signal.SIGALRM), stderr
    if process.returncode == 143:
        logged = [json.loads(text) for text in stderr.splitlines()]
        assert [entry["message"] for entry in logged if entry["event"] == "error"] == ["Terminated"]
        assert json.loads(result.read_text())["exit_status"] == 143


def test_ctrl_c_ends_the_wait_for_the_reader_of_a_pipe(tmp_path: Path) -> None:
    pipe, until = tmp_path / "x.csv", time.monotonic() + PATIENCE_S / 4
    os.mkfifo(pipe)
    process = subprocess.Popen(command_line("summary", RANK0, "--table", "kernels", "-o", pipe))
    waiting = Path(f"/proc/{process.pid}/wchan")  # not every system tells it
    wait_until(lambda: waiting.read_text() == "wait_for_partner" or time.monotonic() > until, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130


def _hear_signals() -> None:
    """Undo `nohup`, under which tests may run."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("merge", "SIGHUP"),
        ("extract", "SIGTERM"),
        ("merge --processes 2", "SIGKILL"),
        ("extract --processes 2", "SIGKILL"),
    ],
)
def test_an_ended_process_leaves_nothing_that_stays(
    large_report: Path, tmp_path: Path, command: str, name: str
) -> None:
    reports = [Path(shutil.copy(large_report, tmp_path / f"{number}.sqlite")) for number in range(2)]
    for report in reports[1:]:  # another recording
        edit(report, "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 1")
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "run.pftrace" if command.startswith("merge") else folder
    line = command_line(*command.split(), *reports, "-o", output)
    process = subprocess.Popen(
        line,
        env=environment(PYTHONWARNINGS=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_signals,
    )
    in_memory = command == "merge"  # blocks of reports
    wait_until(
        lambda: any(folder.iterdir()) or (in_memory and _reads(reports[1], output, process.pid)), process
    )
    process.send_signal(getattr(signal, name))
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    if name == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
        (folder / f".x.nsys-pp-{'0' * 10}-1-1-other").touch()  # of another machine, maybe being written
        assert run(*line[3:], before=[], env=environment(PYTHONWARNINGS="")).code == 0
        left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
        assert left == [f".x.nsys-pp-{'0' * 10}-1-1-other"]
        return
    status = 128 + getattr(signal, name)
    assert process.returncode in (status, -signal.SIGALRM), stderr
    assert (stdout, stderr.strip()) == ("", "Terminated" if process.returncode == status else "")
    assert not any(path.name.startswith(".") for path in folder.iterdir())


@pytest.mark.parametrize("names", [("SIGTERM", "SIGHUP"), ("SIGINT", "SIGTERM"), ("SIGINT", "SIGINT")])
def test_two_signals_at_once_are_one(large_report: Path, tmp_path: Path, names: Sequence[str]) -> None:
    """A second Ctrl-C, too, while what happened is written."""
    result = tmp_path / "result.json"
    line = command_line("merge", large_report, "-o", tmp_path / "run.pftrace", "--result", result)
    process = subprocess.Popen(
        line, env=environment(), stderr=subprocess.PIPE, text=True, preexec_fn=_hear_signals
    )
    wait_until(lambda: _reads(large_report, tmp_path, process.pid), process)
    for name in names:
        process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert stderr in ("Interrupted\n", "Terminated\n", "")
    assert {path.name for path in tmp_path.iterdir()} <= {result.name}


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_ignored(large_report: Path, tmp_path: Path) -> None:
    line = command_line("merge", large_report, "-o", tmp_path / "run.pftrace")
    process = subprocess.Popen(
        ["nohup", *line], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: _reads(large_report, tmp_path, process.pid), process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["project --format csv", "project --format json", "info --json"])
@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_that_has_enough_is_no_error(command: str, lines: int) -> None:
    name, *options = command.split()
    process = subprocess.Popen(
        command_line(name, PIPELINE, *options),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.stdout.close()
    assert all(line.startswith("note: ") for line in process.stderr)
    process.stderr.close()
    process.wait(timeout=PATIENCE_S)


def test_closed_streams_are_as_a_discarded_output(tmp_path: Path) -> None:
    """No file gets the number of a closed stream: messages of libraries would end up in it."""
    shell = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash"]
    assert run("merge", RANK0, "-o", tmp_path / "closed", before=shell).code == 0
    assert run("merge", tmp_path / "none", before=shell).code == 1
    assert run("merge", RANK0, "-o", tmp_path / "open").code == 0
    assert (tmp_path / "closed").read_bytes() == (tmp_path / "open").read_bytes()
    assert run("merge", RANK0, "-o", "-", before=shell).code == 0
    (tmp_path / "cut.sqlite").write_bytes(RANK0.read_bytes()[:100_000])
    shell[2] = '"$@" | true; exit "${PIPESTATUS[0]}"'
    assert run("check", tmp_path / "cut.sqlite", before=shell).code == 5
    shell[2] = 'exec "$@" <&- 2>&1'
    assert "standard input names no reports" in run("info", "-", before=shell).stdout


def test_an_encoding_and_a_number_of_threads_that_lack_something() -> None:
    odd = environment(PYTHONIOENCODING="latin-1", POLARS_MAX_THREADS="0")
    assert "\\u2026" in run("project", RANK0, env=odd).stdout


_ENDLESS_QUERY = """
import sys
from nsys_pp.cli.result import end_on_interrupt, explain_ending
from nsys_pp.read import sqlite

if sys.argv[2] == "plain":
    sqlite.find_library = lambda: None
with end_on_interrupt():
    try:
        with sqlite.open_database(f"file:{sys.argv[1]}?mode=ro", 1 << 60, threads=2) as database:
            print("began", flush=True)
            query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
            database.map(lambda connection, _: connection.fetch(query, "i"), [1, 2, 3])
    except KeyboardInterrupt as error:
        sys.exit(explain_ending(error).status)
"""


@pytest.mark.parametrize(("way", "name"), [("compiled", "SIGINT"), ("plain", "SIGTERM")])
def test_a_query_that_does_not_end_is_interrupted(way: str, name: str) -> None:
    report = RANK0
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS_QUERY, report, way],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_signals,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    time.sleep(0.3)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + getattr(signal, name), stderr
    assert stderr == ""


_STUCK = """
import sys, threading
from nsys_pp.cli import result as interrupts
interrupts._PATIENCE_S = float(sys.argv[1])
lock = threading.Lock()
lock.acquire()
with interrupts.end_on_interrupt():
    try:
        print("working", flush=True)
        lock.acquire()
    except KeyboardInterrupt:
        print("cleaning up", flush=True)
        lock.acquire()
"""


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_stuck_ends_all_the_same(times: int) -> None:
    line = [sys.executable, "-c", _STUCK, "0.5"]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in ("working\n", "cleaning up\n")[:times]:
            assert process.stdout.readline() == said
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == -signal.SIGALRM
