"""A recorded report is exported once, into a cache, by the nsys that the user named."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsys_pp.errors import NsysNotFoundError, ReportError
from nsys_pp.read import read_report
from nsys_pp.read.export import export_report
from tests.read.tables import push_pop, write_export

_FAKE = """#!{python}
import shutil, sys, time
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(arguments) + "\\n")
time.sleep({seconds})
if {fails}:
    print("[1/1] [0%   ] progress")
    print("Exportation error: the file is from the future", file=sys.stderr)
    sys.exit(1)
shutil.copy({made!r}, arguments[arguments.index("--output") + 1])
"""


class FakeNsys:
    """A stand-in that writes a fixed export, and down what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.program, self.log = folder / "nsys", folder / "log"
        self.made = write_export(folder / "made.sqlite", {"NVTX_EVENTS": [push_pop(0, 1)]})
        self.write()

    def write(self, *, fails: bool = False, seconds: float = 0.0) -> None:
        text = _FAKE.format(
            python=sys.executable, log=str(self.log), fails=fails, seconds=seconds, made=str(self.made)
        )
        self.program.write_text(text)
        self.program.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNsys:
    monkeypatch.setenv("NSYS_PP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NSYS_PP_NSYS", raising=False)
    (tmp_path / "fake").mkdir()
    return FakeNsys(tmp_path / "fake")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "run 1.nsys-rep"
    path.write_bytes(b"recorded")
    return path


def test_an_export_is_reused_until_the_report_changes(fake: FakeNsys, report: Path) -> None:
    first = read_report(report, nsys=fake.program)
    assert (first.path, first["nvtx"].height) == (report, 1)
    read_report(report, nsys=fake.program)
    assert fake.runs == 1
    os.utime(report, ns=(1, 1))  # older, but another one
    export = export_report(report, nsys=fake.program)
    assert fake.runs == 2
    os.truncate(export, 5_000)  # by a full disk, say
    read_report(report, nsys=fake.program)
    assert fake.runs == 3
    report.write_bytes(b"recorded again")
    read_report(report, nsys=fake.program)
    assert fake.runs == 4
    assert os.listdir(report.parent) == [report.name]


def test_another_nsys_exports_again(fake: FakeNsys, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export_report(report, nsys=fake.program)
    fake.write(seconds=0.001)  # an upgrade
    second = export_report(report, nsys=fake.program)
    assert fake.runs == 2
    assert first != second
    elsewhere = Path(shutil.copy2(fake.program, fake.program.with_name("nsys-2")))
    third = export_report(report, nsys=elsewhere)
    assert fake.runs == 3
    os.utime(third, ns=(1, 1))  # exports of one state are kept: two versions may be in use
    os.utime(first, ns=(2, 2))
    assert [export_report(report, nsys=program) for program in (fake.program, elsewhere)] == [second, third]
    monkeypatch.setenv("PATH", "")
    assert export_report(report) == second  # the newest
    second.unlink()
    assert (export_report(report), fake.runs) == (first, 3)


def test_two_at_once_are_both_right(fake: FakeNsys, report: Path) -> None:
    fake.write(seconds=0.3)
    code = "import sys; from nsys_pp.read import read_report; print(read_report(sys.argv[1], nsys=sys.argv[2])['nvtx'].height)"
    command = [sys.executable, "-c", code, str(report), str(fake.program)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in running] == ["1\n", "1\n"]
    assert [path.suffix for path in (fake.program.parent.parent / "cache").iterdir()] == [".sqlite"]


@pytest.mark.parametrize("where", ["argument", "variable", "path"])
def test_nsys_is_found(fake: FakeNsys, report: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "variable":
        monkeypatch.setenv("NSYS_PP_NSYS", str(fake.program))
    if where == "path":
        monkeypatch.setenv("PATH", str(fake.program.parent), prepend=os.pathsep)
    export_report(report, nsys=fake.program if where == "argument" else None)
    assert fake.runs == 1


def test_what_nsys_says_is_passed_on(fake: FakeNsys, report: Path) -> None:
    fake.write(fails=True)
    with pytest.raises(
        ReportError, match="nsys reports: Exportation error: the file is from the future"
    ) as caught:
        read_report(report, nsys=fake.program)
    assert f"`{report}`" in caught.value.message
    assert caught.value.hint
    fake.write()
    os.truncate(fake.made, 5_000)
    with pytest.raises(ReportError, match="nothing, and it ended with status 0, without a whole export"):
        read_report(report, nsys=fake.program)
    fake.program.write_text("#!/nonexistent/python\n")
    with pytest.raises(NsysNotFoundError, match="is not a program that can be run: No such file"):
        read_report(report, nsys=fake.program)
    assert list((fake.program.parent.parent / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written(
    fake: FakeNsys, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_PP_CACHE", str(report / "cache"))
    with pytest.raises(ReportError, match="cannot be exported into") as caught:
        read_report(report, nsys=fake.program)
    assert "NSYS_PP_CACHE" in (caught.value.hint or "")


def test_real_nsys_on_what_is_no_report(
    each_nsys: str, report: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NSYS_PP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ReportError, match=r"nsys reports: .*[a-z]"):
        read_report(report, nsys=each_nsys)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o644])
def test_an_export_is_as_private_as_its_report(fake: FakeNsys, report: Path, mode: int) -> None:
    report.chmod(mode)
    export = export_report(report, nsys=fake.program)
    assert _mode(export) == mode | 0o600
    assert _mode(export.parent) == 0o700
    with_more = export.parent
    with_more.chmod(0o750)  # by its owner, for a team
    os.utime(report, ns=(1, 1))
    export_report(report, nsys=fake.program)
    assert _mode(with_more) == 0o750


def test_the_default_cache_is_made_private(
    fake: FakeNsys, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NSYS_PP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "nsys-pp").mkdir(parents=True, mode=0o755)  # by an older version
    assert _mode(export_report(report, nsys=fake.program).parent) == 0o700


def test_exports_used_longest_ago_are_removed_from_a_full_cache(
    fake: FakeNsys, report: Path, tmp_path: Path
) -> None:
    others = [Path(shutil.copy(report, tmp_path / f"other{number}.nsys-rep")) for number in range(4)]
    exports = [export_report(other, nsys=fake.program) for other in others]
    foreign = exports[0].parent / "notes.sqlite"
    for path, days in ((foreign, 9), (exports[0], 4), (exports[1], 3), (exports[2], 2), (exports[3], 0)):
        with path.open("a") as file:
            file.truncate(20_000_000_000)  # without blocks
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
    assert export_report(others[0], nsys=fake.program) == exports[0]  # in use again
    export_report(report, nsys=fake.program)
    assert [path.exists() for path in (foreign, *exports)] == [True, True, False, False, True]
