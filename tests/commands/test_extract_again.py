"""Extraction that was begun before: what is finished is left, what is not is made again."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from nsys_pp.errors import OutputError, ReportError
from tests.cli.calls import command_line, environment
from tests.commands.test_parts import PIPELINE, REPORTS, rewritten
from tests.patience import PATIENCE_S


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return Path(shutil.copy(REPORTS[0], tmp_path / "in" / "x.sqlite"))


@pytest.fixture
def part(report: Path) -> Path:
    made = report.parent.parent / "x.nspart"
    nsys_pp.extract(report, made)
    return made


def extract_again(report: Path, part: Path, **options: Any) -> bool:
    """Say whether the part was made again."""
    before = part.stat().st_ino
    [extracted] = nsys_pp.extract(report, part, **options).parts
    is_new = extracted.is_new
    assert is_new == (part.stat().st_ino != before)
    return is_new


def test_a_part_that_is_there_is_left(report: Path, part: Path) -> None:
    [first] = nsys_pp.extract(report, part.with_name("y.nspart")).parts
    [again] = nsys_pp.extract(report, part).parts
    assert not again.is_new
    assert (again.slices, again.jobs, again.gpus) == (first.slices, first.jobs, first.gpus)
    assert not extract_again(report, part)
    assert extract_again(report, part, force=True)
    moved = report.rename(report.with_name("moved.sqlite"))
    assert not extract_again(moved, part)  # the recording counts, not its name


def test_a_part_that_is_stale_is_made_again(report: Path, part: Path, tmp_path: Path) -> None:
    fresh = part.read_bytes()
    assert extract_again(report, part, detail="jobs")
    assert extract_again(report, part)
    later = part.stat().st_mtime_ns + 1
    os.utime(report, ns=(later, later))
    assert extract_again(report, part)
    changes: list[Callable[[dict[str, Any]], None]] = [
        lambda facts: facts.update(made_by="0.0.1"),
        lambda facts: facts.update(format=0),
    ]
    for change in changes:
        rewritten(part, tmp_path / "other", change).replace(part)
        assert extract_again(report, part)
    assert part.read_bytes() == fresh
    shutil.copy(REPORTS[1], report)  # recorded again, and named as before
    os.utime(report, ns=(1, 1))
    assert extract_again(report, part)


@pytest.mark.parametrize("keep", [0.3, 0.999], ids=["a third", "nearly all"])
def test_a_part_that_is_cut_is_made_again(keep: float, report: Path, part: Path) -> None:
    whole = part.read_bytes()
    part.write_bytes(whole[: int(len(whole) * keep)])
    assert nsys_pp.extract(report, part).parts[0].is_new
    assert part.read_bytes() == whole


def test_a_part_whose_blocks_are_damaged_is_made_again(report: Path, part: Path) -> None:
    whole = part.read_bytes()
    with zipfile.ZipFile(part) as archive:
        at = 200 + archive.getinfo("trace.blocks").header_offset
    part.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert nsys_pp.extract(report, part).parts[0].is_new
    assert part.read_bytes() == whole


def test_the_part_of_another_report_is_refused(report: Path, part: Path) -> None:
    before = part.read_bytes()
    with pytest.raises(OutputError, match="is the part of another report") as refused:
        nsys_pp.extract(REPORTS[1], part)
    assert str(report) in refused.value.message
    assert part.read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"precious", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_part_is_refused(data: bytes, report: Path, part: Path) -> None:
    part.write_bytes(data)
    for processes in (None, 2):
        with pytest.raises(OutputError, match="exists"):
            nsys_pp.extract([report, REPORTS[1]], part.parent, processes=processes)
    assert part.read_bytes() == data


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    for processes in (None, 2):
        folder = tmp_path / str(processes is None)
        nsys_pp.extract(REPORTS[:2], folder)
        extracted = nsys_pp.extract([PIPELINE], folder, processes=processes).parts
        assert [one.is_new for one in extracted] == [False, False, True, True]
        assert [one.report for one in extracted] == REPORTS
        assert sorted(path.name for path in folder.iterdir()) == [f"rank{n}.nspart" for n in range(4)]
    for path in (tmp_path / "True").iterdir():
        assert (tmp_path / "False" / path.name).read_bytes() == path.read_bytes()


def test_broken_reports_leave_the_others_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in REPORTS[:3]:
        shutil.copy(path, tmp_path / "in")
    broken = tmp_path / "in" / "rank1.sqlite"
    broken.write_bytes(broken.read_bytes()[:20_000])
    with pytest.raises(ReportError, match=r"rank1\.sqlite` is truncated"):
        nsys_pp.extract([tmp_path / "in"], tmp_path / "out", processes=2)
    result = nsys_pp.extract([tmp_path / "in"], tmp_path / "out", processes=2, keep_going=True)
    assert [one.output.name for one in result.parts] == ["rank0.nspart", "rank2.nspart"]
    assert [path for path, _ in result.skipped] == [broken]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rank0.nspart", "rank2.nspart"]


def test_several_processes_extract_the_same_reports_at_once(tmp_path: Path) -> None:
    line = command_line("extract", PIPELINE / "node2", "-o", tmp_path / "out", "--processes", "2")
    (tmp_path / "out").mkdir()
    processes = [
        subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=PATIENCE_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    nsys_pp.extract([PIPELINE / "node2"], tmp_path / "alone")
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert found == {path.name: path.read_bytes() for path in (tmp_path / "alone").iterdir()}
    lines = "".join(said).splitlines()
    assert [line for line in lines if not line.startswith(("Wrote ", "already there: "))] == []
