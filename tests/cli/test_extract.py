"""`nsys-pp extract`: what it writes and says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nsys_pp.read import read_part
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
REPORT = PIPELINE / "node2" / "rank0.sqlite"

pytestmark = pytest.mark.usefixtures("reports_read_once")


def extract(*arguments: str | Path) -> str:
    """Call the command; what it said."""
    done = call("extract", *arguments)
    assert (done.code, done.stdout) == (0, ""), done
    return done.stderr


def merge(trace: Path, *arguments: str | Path) -> bytes:
    done = call("merge", *arguments, "-o", trace)
    assert done.code == 0, done
    return trace.read_bytes()


def test_one_line_says_what_was_written(tmp_path: Path) -> None:
    part = tmp_path / "x.nspart"
    said = extract(REPORT, "-o", part)
    size = f"{part.stat().st_size / 1024:.1f} KiB"
    read = read_part(part, ["jobs"], version="")
    slices, jobs = read.encoded.slice_count, read.frames["jobs"]["start_ns"].count()
    assert said == f"Wrote {part} ({size}): {slices:,} slices and {jobs} jobs on 1 GPU, from {REPORT}.\n"


def test_parts_are_named_like_their_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parts").mkdir()
    said = extract(PIPELINE, "-o", tmp_path / "parts")
    names = [f"rank{rank}.nspart" for rank in range(4)]
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == names
    assert [line.split(" (")[0] for line in said.splitlines()] == [
        f"Wrote {tmp_path / 'parts' / name}" for name in names
    ]
    monkeypatch.chdir(tmp_path)
    assert extract(REPORT).startswith("Wrote rank0.nspart (")
    assert (tmp_path / "rank0.nspart").is_file()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options", [[], ["--detail", "jobs"], ["--flows"], ["--ops", "all", "--scope", "thread"]]
)
def test_parts_make_the_trace_of_their_reports(options: list[str], tmp_path: Path) -> None:
    extract(PIPELINE, "-o", tmp_path, *options)
    parts = sorted(tmp_path.glob("*.nspart"))
    expected = merge(tmp_path / "run.pftrace", PIPELINE, *options)
    assert merge(tmp_path / "run.a", *parts) == expected
    assert merge(tmp_path / "run.b", tmp_path, *options) == expected


def test_options_of_a_part_are_not_changed_by_a_merge(tmp_path: Path) -> None:
    part = tmp_path / "x.nspart"
    extract(REPORT, "-o", part)
    refused = call("merge", part, "-o", tmp_path / "x.pftrace", "--flows")
    assert_refused(
        refused,
        f"`{part}` was made with `--detail kernels --ops kernel --scope auto`, and"
        " `--detail cpu --ops kernel --scope auto --flows` is asked for",
    )
    assert_refused(call("merge", part, "-o", tmp_path / "x.json"), "is a part", "Chrome's format")
    refused = call("merge", part, "-o", tmp_path / "x.pftrace", "--start", "1ms")
    assert_refused(refused, "is a part", "`--start` and `--end`")


def test_a_part_is_replaced_with_force_only(tmp_path: Path) -> None:
    part = tmp_path / "x.nspart"
    part.write_text("precious")
    assert_refused(call("extract", REPORT, "-o", part), f"`{part}` exists")
    assert part.read_text() == "precious"
    extract(REPORT, "-o", part, "--force")
    assert part.read_bytes().startswith(b"PK")


def test_reports_never_share_a_part(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first = shutil.copy(REPORT, tmp_path / "a" / "x.sqlite")
    second = shutil.copy(PIPELINE / "node2" / "rank1.sqlite", tmp_path / "b" / "x.sqlite")
    refused = call("extract", first, second, "-o", tmp_path)
    assert_refused(refused, f"`{first}` and `{second}` would both be written to `{tmp_path / 'x.nspart'}`")
    (tmp_path / "x.txt").write_text("precious")
    refused = call("extract", first, second, "-o", tmp_path / "x.txt")
    assert_refused(refused, f"cannot write 2 parts to `{tmp_path / 'x.txt'}`: it is not a folder")
    (tmp_path / "x.txt").unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
