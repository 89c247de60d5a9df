"""`nsys-pp extract`: what it writes and says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nsys_pp.read import read_part
from tests.cli.calls import PIPELINE, RANK0, RANK1, assert_refused, call


def extract(*arguments: str | Path) -> str:
    done = call("extract", *arguments)
    assert (done.code, done.stdout) == (0, ""), done
    return done.stderr


def test_one_line_says_what_was_written(tmp_path: Path) -> None:
    part = tmp_path / "x.nspart"
    said = extract(RANK0, "-o", part)
    size = f"{part.stat().st_size / 1024:.1f} KiB"
    read = read_part(part, ["jobs"], version="")
    slices, jobs = read.encoded.slice_count, read.frames["jobs"]["start_ns"].count()
    assert said == f"Wrote {part} ({size}): {slices:,} slices and {jobs} jobs on 1 GPU, from {RANK0}.\n"


def test_parts_are_named_like_their_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = extract(PIPELINE, "-o", tmp_path / "parts")
    names = [f"rank{rank}.nspart" for rank in range(4)]
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == names
    assert [line.split(" (")[0] for line in said.splitlines()] == [
        f"Wrote {tmp_path / 'parts' / name}" for name in names
    ]
    monkeypatch.chdir(tmp_path)
    assert extract(RANK0).startswith("Wrote rank0.nspart (")
    assert extract(RANK0, "-o", tmp_path / "one").startswith(f"Wrote {tmp_path}/one/rank0.nspart (")


def test_reports_never_share_a_part(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first = shutil.copy(RANK0, tmp_path / "a" / "x.sqlite")
    second = shutil.copy(RANK1, tmp_path / "b" / "x.sqlite")
    refused = call("extract", first, second, "-o", tmp_path)
    assert_refused(refused, f"`{first}` and `{second}` would both be written to `{tmp_path / 'x.nspart'}`")
    (tmp_path / "x.txt").write_text("precious")
    refused = call("extract", first, second, "-o", tmp_path / "x.txt")
    assert_refused(refused, f"cannot write 2 parts to `{tmp_path / 'x.txt'}`: it is not a folder")
    (tmp_path / "x.txt").unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_part_and_a_database_are_no_devices(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.sqlite")
    refused = call("summary", RANK0, "-o", tmp_path / "x.sqlite", "--force")
    assert_refused(refused, f"cannot write `{tmp_path}/x.sqlite`: a database is a file")
    assert_refused(call("extract", RANK0, "-o", "/dev/null"), "cannot write `/dev/null`: a part is a file")
