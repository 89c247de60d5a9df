"""What a user can get wrong: one sentence with the file's name, a hint, exit 1, nothing half-written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fixtures.recording.export import write_report
from tests.breaks import BREAKS
from tests.cli.calls import COMMANDS, Result, arguments_of, assert_refused, call, run

PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"
REPORT = PIPELINE / "node2" / "rank0.sqlite"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report that tests may break."""
    (tmp_path / "in").mkdir()
    return Path(shutil.copy(REPORT, tmp_path / "in" / "rank0.sqlite"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where outputs go."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_report_is_refused(report: Path, folder: Path, name: str, command: str) -> None:
    damage, words = BREAKS[name]
    damage(report)
    assert_refused(call(*arguments_of(command, report, folder=folder)), f"`{report}`", words)
    assert list(folder.iterdir()) == []
    assert {path.name for path in report.parent.iterdir()} <= {report.name}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_reports_is_refused(folder: Path, command: str) -> None:
    empty = folder.parent / "empty"
    empty.mkdir()
    (empty / "notes.txt").write_text("nothing here")
    assert_refused(call(*arguments_of(command, empty, folder=folder)), f"`{empty}` holds no report")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pattern_without_match_is_refused(folder: Path, command: str) -> None:
    pattern = folder.parent / "node*" / "*.sqlite"
    assert_refused(call(*arguments_of(command, pattern, folder=folder)), f"`{pattern}` matches no report")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("again", ["same name", "folder", "pattern", "link"])
def test_a_report_given_twice_is_refused(report: Path, folder: Path, command: str, again: str) -> None:
    link = folder.parent / "link.sqlite"
    link.symlink_to(report)
    second = {"same name": report, "folder": report.parent, "pattern": report.parent / "r*", "link": link}
    refused = call(*arguments_of(command, report, second[again], folder=folder))
    assert_refused(refused, f"`{report}`", "named twice")


# locks do not count within one process
_LOCK = """
import sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
writer.rollback()
writer.close()
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_that_a_program_has_locked_is_refused(report: Path, folder: Path, command: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _LOCK, str(report)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "locked\n"
        refused = call(*arguments_of(command, report, folder=folder))
        writer.communicate("done")
    assert_refused(refused, f"`{report}` is being written by another program")
    assert call(*arguments_of(command, report, folder=folder)).code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_that_is_half_written_is_refused(report: Path, folder: Path, command: str) -> None:
    """A writer that died in the middle leaves a journal that says how to undo its work."""
    writer = sqlite3.connect(report, isolation_level=None)
    writer.executescript("PRAGMA cache_size = 4; BEGIN; CREATE TABLE spill (text TEXT);")
    writer.executemany("INSERT INTO spill VALUES (?)", [("x" * 1000,)] * 500)
    copied = folder.parent / "copy.sqlite"
    shutil.copy(report, copied)
    shutil.copy(f"{report}-journal", f"{copied}-journal")
    writer.rollback()
    writer.close()
    journal = Path(f"{copied}-journal").read_bytes()
    refused = call(*arguments_of(command, copied, folder=folder))
    assert_refused(refused, f"`{copied}` is being written by another program")
    assert Path(f"{copied}-journal").read_bytes() == journal


@pytest.mark.parametrize("command", [("merge", "--detail", "kernels"), ("project",)])
def test_a_report_without_cuda_is_refused(tmp_path: Path, folder: Path, command: tuple[str, ...]) -> None:
    silent = write_report(tmp_path / "silent.sqlite", ranges=[{"start": 0, "end": 100, "name": "step"}])
    refused = call(*arguments_of(command[0], silent, folder=folder), *command[1:])
    assert_refused(refused, f"`{silent}`", "no GPU operations")
    assert "--trace cuda,nvtx" in refused.stderr
    assert list(folder.iterdir()) == []


def test_the_ranges_of_a_report_without_cuda_are_merged(tmp_path: Path, folder: Path) -> None:
    silent = write_report(tmp_path / "silent.sqlite", ranges=[{"start": 0, "end": 100, "name": "step"}])
    done = call(*arguments_of("merge", silent, folder=folder))
    assert done.code == 0, done.stderr
    assert "note: no report has GPU operations: CPU ranges, calls and samples are drawn" in done.stderr
    assert "1 slice on 0 GPUs" in done.stderr


def test_a_report_without_ranges_is_refused_by_project(tmp_path: Path, folder: Path) -> None:
    plain = write_report(
        tmp_path / "plain.sqlite",
        api_calls=[{"start": 0, "end": 2, "correlation": 1}],
        kernels=[{"start": 5, "end": 9, "correlation": 1}],
    )
    refused = call(*arguments_of("project", plain, folder=folder))
    assert_refused(refused, f"`{plain}` has no NVTX ranges")
    assert "--trace cuda,nvtx" in refused.stderr
    assert call(*arguments_of("merge", plain, folder=folder)).code == 0


def _run_unprivileged(*arguments: str | Path) -> Result:
    """Run as a user to whom permissions apply; root is above them unless it gives that up."""
    if os.geteuid() != 0:
        return run(*arguments)
    give_up = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*give_up, "true"], check=False).returncode:
        pytest.skip("root is above permissions, and cannot give that up here")
    return run(*arguments, before=give_up)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_that_may_not_be_read_is_refused(report: Path, folder: Path, command: str) -> None:
    report.chmod(0)
    refused = _run_unprivileged(*arguments_of(command, report, folder=folder))
    assert_refused(refused, f"`{report}`", "permission denied")


@pytest.mark.parametrize("command", ["merge", "info"])
def test_a_folder_that_may_not_be_read_is_refused(report: Path, folder: Path, command: str) -> None:
    report.parent.chmod(0)
    try:
        for named in (report, report.parent):
            refused = _run_unprivileged(*arguments_of(command, named, folder=folder))
            assert_refused(refused, f"`{named}`", "permission denied")
    finally:
        report.parent.chmod(0o700)


@pytest.mark.parametrize("command", ["merge", "pipeline", "info", "check"])
@pytest.mark.parametrize("pattern", [False, True])
def test_a_folder_inside_that_may_not_be_read_is_skipped(
    report: Path, folder: Path, command: str, *, pattern: bool
) -> None:
    root = report.parent / "run"
    for name in ("machine1", "machine2", "machine3"):
        shutil.copytree(PIPELINE / "node2", root / name / "session")
    closed = [root / "machine1" / "session", root / "machine3"]
    for inner in closed:
        inner.chmod(0)
    named = root / "machine*" if pattern else root
    arguments = [*arguments_of(command, named, folder=folder), "--keep-going"]
    try:
        refused = _run_unprivileged(*arguments[:-1])
        alone = _run_unprivileged(*arguments_of(command, closed[1], folder=folder), "--keep-going")
        done = _run_unprivileged(*arguments)
    finally:
        for inner in closed:
            inner.chmod(0o700)
    assert_refused(refused, f"`{closed[0]}`", "permission denied")
    assert_refused(alone, f"`{closed[1]}`", "permission denied")
    assert done.code in (3, 4), done.stderr
    assert [done.stderr.count(f"`{inner}` may not be read: permission denied") for inner in closed] == [1, 1]


@pytest.mark.parametrize("command", ["merge", "project"])
def test_an_output_that_may_not_be_written_is_refused(report: Path, folder: Path, command: str) -> None:
    folder.chmod(0o555)
    refused = _run_unprivileged(*arguments_of(command, report, folder=folder))
    assert_refused(refused, f"cannot write `{folder}", "permission denied")
    assert list(folder.iterdir()) == []


OUTPUTS = {
    "perfetto": ["merge", "-o", "x.pftrace"],
    "chrome": ["merge", "-o", "x.json"],
    "chrome, compressed": ["merge", "-o", "x.json.gz"],
    "parquet": ["project", "-o", "x.parquet"],
    "csv": ["project", "-o", "x.csv"],
    "json": ["project", "-o", "x.json"],
    "sqlite": ["project", "-o", "x.sqlite"],
}


def _arguments(kind: str, report: Path, folder: Path) -> tuple[list[str], Path]:
    command, option, name = OUTPUTS[kind]
    return [command, str(report), option, str(folder / name)], folder / name


@pytest.mark.usefixtures("reports_read_once")
@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_that_exists_is_kept_without_force(folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, REPORT, folder)
    output.write_text("precious")
    refused = call(*arguments)
    assert_refused(refused, f"`{output}` exists")
    assert "--force" in refused.stderr
    assert output.read_text() == "precious"
    done = call(*arguments, "--force")
    assert done.code == 0, done
    assert output.stat().st_size > 1000
    assert list(folder.iterdir()) == [output]


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_in_no_folder_is_refused(report: Path, folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, report, folder / "absent")
    assert_refused(call(*arguments), f"cannot write `{output}`: its folder does not exist")


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_that_is_a_folder_is_refused(report: Path, folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, report, folder)
    output.mkdir()
    assert_refused(call(*arguments, "--force"), f"cannot write `{output}`: it is a folder")


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_that_grows_too_large_leaves_all_as_it_was(report: Path, folder: Path, kind: str) -> None:
    arguments, output = _arguments(kind, report, folder)
    output.write_text("precious")
    limit = ["sh", "-c", 'ulimit -f 8; exec "$0" "$@"']  # blocks of 512 bytes
    refused = run(*arguments, "--force", before=limit)
    assert_refused(refused, f"cannot write `{output}`")
    assert output.read_text() == "precious"
    assert list(folder.iterdir()) == [output]


@pytest.mark.usefixtures("reports_read_once")
@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_full_disk_is_told(tmp_path: Path, kind: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", disk], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        arguments, output = _arguments(kind, REPORT, disk)
        assert_refused(call(*arguments), f"cannot write `{output}`: the disk is full")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.usefixtures("reports_read_once")
@pytest.mark.parametrize("kind", [kind for kind in OUTPUTS if kind != "sqlite"])
def test_a_full_device_is_told(folder: Path, kind: str) -> None:
    command, option, name = OUTPUTS[kind]
    # the ending of the name says the format
    full = folder / name
    full.symlink_to("/dev/full")
    assert_refused(call(command, REPORT, option, full, "--force"), f"cannot write `{full}`: the disk is full")
    assert full.is_symlink()


@pytest.mark.parametrize("command", ["info", "info --json", "project", "project --format csv"])
def test_a_full_standard_output_is_told(report: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        refused = run(*command.split(), report, stdout=full)
    assert_refused(refused, "cannot write to standard output: the disk is full")


@pytest.mark.parametrize("command", COMMANDS)
def test_nsys_is_missed_by_its_name(report: Path, folder: Path, command: str) -> None:
    recorded = report.with_suffix(".nsys-rep")
    recorded.write_bytes(b"recorded")
    arguments = arguments_of(command, recorded, folder=folder)
    env: dict[str, str | None] = {
        "PATH": str(folder),
        "NSYS_PP_NSYS": None,
        "NSYS_PP_CACHE": str(folder.parent),
    }
    refused = call(*arguments, env=env)
    assert_refused(refused, f"`{recorded}`", "no nsys was found")
    assert "--nsys" in refused.stderr
    absent = str(folder / "absent" / "nsys")
    assert_refused(call(*arguments, "--nsys", absent, env=env), f"`{absent}`", f"`{recorded}`")
    assert_refused(call(*arguments, "--nsys", str(recorded), env=env), f"`{recorded}`")
    assert_refused(call(*arguments, env={**env, "NSYS_PP_NSYS": absent}), f"`{absent}`", f"`{recorded}`")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Error: the file is of a newer version' >&2; exit 1", "newer version"),
        ("exit 3", "status 3"),
        ("exit 0", "status 0"),
    ],
    ids=["with words", "without words", "without export"],
)
def test_an_nsys_that_fails_is_quoted(
    report: Path, folder: Path, command: str, script: str, words: str
) -> None:
    recorded = report.with_suffix(".nsys-rep")
    report.unlink()
    recorded.write_bytes(b"recorded")
    nsys = folder.parent / "nsys"
    nsys.write_text(f"#!/bin/sh\n{script}\n")
    nsys.chmod(0o755)
    env: dict[str, str | None] = {"NSYS_PP_CACHE": str(folder.parent / "cache")}
    refused = call(*arguments_of(command, recorded, folder=folder), "--nsys", str(nsys), env=env)
    assert_refused(refused, f"`{recorded}` cannot be exported", words)
    assert list((folder.parent / "cache").iterdir()) == []


@pytest.mark.parametrize("command", ["merge", "info", "info --json"])
@pytest.mark.parametrize("name", ["not SQLite", "cut within a page", "scrambled", "scrambled kernels"])
def test_keep_going_skips_what_is_broken(report: Path, folder: Path, command: str, name: str) -> None:
    good = Path(shutil.copy(PIPELINE / "node2" / "rank1.sqlite", report.parent))
    BREAKS[name][0](report)
    done = call(*arguments_of(command, report.parent, folder=folder), "--keep-going")
    assert done.code == 3
    assert f"skipped {report}: `{report}`" in done.stderr
    assert "Traceback" not in done.stderr
    assert str(good) not in done.stderr
    if command == "merge":
        assert [path.name for path in folder.iterdir()] == ["out.pftrace"]
    else:
        assert good.name in done.stdout
        assert f"{report}\n" not in done.stdout
    with suppress(FileNotFoundError):
        (folder / "out.pftrace").unlink()
    good.unlink()
    assert_refused(call(*arguments_of(command, report.parent, folder=folder), "--keep-going"), f"`{report}`")


@pytest.mark.parametrize(
    "arguments",
    [
        ["merge"],
        ["info"],
        ["info", "--nonsense", str(REPORT)],
        ["merge", str(REPORT), "--detail", "everything"],
        ["project", str(REPORT), "--ops", "kernel,nothing"],
        ["project", str(REPORT), "-o", "table.xyz"],
        ["project", str(REPORT), "--format", "parquet"],
        ["merge", str(REPORT), "--start", "soon"],
        ["merge", str(REPORT), "--device", "first"],
        ["nothing"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.code == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr
