"""Second readings of a small file that is kept in memory: equal, checked once, and of the file as it is then."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_pp.arrays.core import load_core
from nsys_pp.frames.raw import Group
from nsys_pp.read import keep_last_file, read_report, sqlite_small
from nsys_pp.read.sqlite_small import SmallFile, SoundFile
from tests.read.tables import Row, call, kernel, os_call, strings, write_export

_FIRST: frozenset[Group] = frozenset({"ranges", "ops"})
_SECOND: frozenset[Group] = frozenset({"show_os", "show_states"})


def _write(path: Path, count: int) -> Path:
    """Write a report with calls of the operating system."""
    calls: list[Row] = [os_call(time, time + 1, nameId=1) for time in range(count)]
    return write_export(
        path,
        {
            "StringIds": strings("read", "cudaLaunchKernel_v7000"),
            "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, 7)],
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(4, 5, 7)],
            "OSRT_API": calls,
        },
    )


def test_a_second_reading_is_equal_and_needs_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if load_core() is None:
        pytest.skip("small files are left to SQLite without the compiled functions")
    path = _write(tmp_path / "a.sqlite", 3)
    expected = [read_report(path, need=need) for need in (_FIRST, _SECOND)]
    checks: list[SmallFile] = []
    check = sqlite_small._check_small

    def count(file: SmallFile) -> SoundFile | None:
        checks.append(file)
        return check(file)

    monkeypatch.setattr(sqlite_small, "_check_small", count)
    with keep_last_file():
        found = [read_report(path, need=need) for need in (_FIRST, _SECOND)]
    assert len(checks) == 1
    for one, other in zip(found, expected, strict=True):
        assert one.tally == other.tally
        assert one.recorded == other.recorded
        assert all(one[name].equals(other[name]) for name in other.frames)
    assert len(found[1]["activities"]) == 3
    read_report(path, need=_FIRST)
    assert len(checks) == 2  # nothing is kept after the context


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path, other = _write(tmp_path / "a.sqlite", 3), _write(tmp_path / "b.sqlite", 5)
    with keep_last_file():
        read_report(path, need=_FIRST)
        assert len(read_report(other, need=_SECOND)["activities"]) == 5
        assert len(read_report(path, need=_SECOND)["activities"]) == 3
        path.unlink()
        _write(path, 400)
        assert len(read_report(path, need=_SECOND)["activities"]) == 400
