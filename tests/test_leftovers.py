"""Temporary files of dead processes are removed, those of living ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsys_pp import leftovers
from tests.cli.calls import PATIENCE_S

_MAKE = """
import sys, time
from pathlib import Path
from nsys_pp.leftovers import make_temporary_file, make_temporary_folder
output = Path(sys.argv[1])
make_temporary_file(output)
(make_temporary_folder(output) / "new").write_text("half")
print("made", flush=True)
time.sleep(1000)
"""


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    output = tmp_path / ("x" * 255)
    names = [".hidden", f".nsys-pp-{'0' * 10}-1-1-x", "plain.nsys-pp-0123456789-1-1-x", ".x.nsys-pp-zz-1-1-x"]
    for name in names:
        (tmp_path / name).touch()
    with subprocess.Popen(
        [sys.executable, "-c", _MAKE, str(output)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        made = {path.name for path in tmp_path.iterdir()} - {*names}
        assert len(made) == 2
        leftovers.sweep_folder.__wrapped__(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == made | {*names}
        (tmp_path / f"{min(made)}-journal").touch()  # of SQLite
        process.kill()
        process.wait(timeout=PATIENCE_S)
    leftovers.sweep_folder.__wrapped__(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names}


def test_a_number_of_a_process_may_be_used_again(tmp_path: Path) -> None:
    start = leftovers._read_start(os.getpid())
    if start is None:
        pytest.skip("needs /proc to see when a process started")
    marks = [f".x.nsys-pp-{leftovers._own_host()}-{os.getpid()}-{when}-x" for when in (start, start + 1)]
    for mark in marks:
        (tmp_path / mark).mkdir()
    leftovers.sweep_folder.__wrapped__(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == marks[:1]


def test_files_of_other_machines_are_left_for_a_day(tmp_path: Path) -> None:
    mark = tmp_path / f".x.nsys-pp-{'f' * 10}-1-1-x"
    mark.touch()
    leftovers.sweep_folder.__wrapped__(tmp_path)
    assert mark.exists()
    day_ago = time.time() - leftovers._FOREIGN_S - 60
    os.utime(mark, (day_ago, day_ago))
    leftovers.sweep_folder.__wrapped__(tmp_path)
    assert not mark.exists()


def test_a_link_among_leftovers_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    left = tmp_path / "job" / ".a.nsys-pp-0123456789-1-1-x"
    left.mkdir()
    (left / leftovers.MOVED_ASIDE).symlink_to(tmp_path / "other")
    os.utime(left, (0, 0))
    leftovers.sweep_folder(tmp_path / "job")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "job", "other"]


def test_a_folder_that_cannot_be_listed_is_no_error(tmp_path: Path) -> None:
    leftovers.sweep_folder.__wrapped__(tmp_path / "absent")


def test_files_of_a_process_end_with_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nsys_pp import leftovers\n"
        "for name in ('a', 'b'): leftovers.make_temporary_file(Path(sys.argv[1], name))\n"
        "leftovers.make_temporary_folder(Path(sys.argv[1], 'c')).joinpath('block').touch()\n"
        "Path(sys.argv[1], 'result').touch()\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


_REPLACE = """
import os, signal, sys
from pathlib import Path
from nsys_pp.output.files import replace_folder
path, renamings = Path(sys.argv[1]), int(sys.argv[2])
rename = os.rename
def count(*names):
    global renamings
    if renamings == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    renamings -= 1
    rename(*names)
os.rename = count
with replace_folder(path, force=True, is_ours=lambda folder: True) as new:
    (new / "file").write_text("new")
"""


@pytest.mark.few(4)
@pytest.mark.parametrize(("renamings", "content"), [(0, "old"), (1, "old"), (2, "new"), (3, "new")])
@pytest.mark.parametrize("name", ["run.traces", "x" * 255])
def test_a_folder_is_whole_after_a_kill_between_renamings(
    tmp_path: Path, renamings: int, content: str, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "file").write_text("old")
    subprocess.run([sys.executable, "-c", _REPLACE, folder, str(renamings)], check=False)
    assert folder.exists() == (renamings != 1)
    if renamings == 1:
        with pytest.warns(
            UserWarning, match="is the earlier one: the run that began to replace it was killed"
        ):
            leftovers.sweep_folder.__wrapped__(tmp_path)
    else:
        leftovers.sweep_folder.__wrapped__(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (folder / "file").read_text() == content


def test_a_folder_that_was_written_again_is_not_replaced_by_an_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "run.traces"
    folder.mkdir()
    (folder / "file").write_text("old")
    subprocess.run([sys.executable, "-c", _REPLACE, folder, "1"], check=False)
    folder.mkdir()
    leftovers.sweep_folder.__wrapped__(tmp_path)
    assert [*tmp_path.rglob("*")] == [folder]
