"""Reports that come late, and in pieces."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import nsys_pp
from nsys_pp.errors import ReportError
from nsys_pp.progress import Share
from nsys_pp.read import find_reports
from nsys_pp.read.readers import find_lack
from nsys_pp.run.inputs import wait_for_reports
from tests.cli.calls import PATIENCE_S, REPORTS

AT_ONCE = 0.0


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("part") / "x.nspart"
    nsys_pp.extract(REPORTS[0], made)
    return made


class Clock:
    """A clock that goes on where somebody sleeps; then a file grows, a limited number of times."""

    def __init__(self, grow: Callable[[], object], *, growths: int) -> None:
        self.now, self.grow, self.growths_left = 0.0, grow, growths

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 0.001  # no sleep ends too early
        if self.growths_left:
            self.growths_left -= 1
            self.grow()


def after(seconds: float, work: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


def test_what_is_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    paths, missing = wait_for_reports(REPORTS, count=4)
    assert (paths, missing) == (REPORTS, [])
    assert wait_for_reports(REPORTS, count=1)[0] == REPORTS


def test_late_reports_are_found_by_folders_and_patterns(tmp_path: Path, part: Path) -> None:
    shares: list[tuple[str, int, int]] = []

    def tell(what: str, share: float) -> None:
        assert isinstance(share, Share)
        shares.append((share.doing, share.done, share.total))

    inputs: list[str | Path] = [tmp_path / "a", str(tmp_path / "b*" / "*.nspart"), tmp_path / "%h.%q{RANK}"]

    def come() -> None:
        (tmp_path / "b1").mkdir()
        shutil.copy(part, tmp_path / "b1")
        shutil.copy(REPORTS[1], tmp_path / "node.7.sqlite")
        (tmp_path / "a").mkdir()
        shutil.copy(REPORTS[2], tmp_path / "a")

    after(0.3, come)
    paths, _ = wait_for_reports(inputs, count=3, timeout_s=PATIENCE_S, progress=tell)
    assert [path.name for path in paths] == ["rank2.sqlite", "x.nspart", "node.7.sqlite"]
    assert shares[0] == ("waiting", 0, 3)


@pytest.mark.parametrize("kind", ["report", "part"])
def test_what_is_half_copied_is_waited_for(kind: str, tmp_path: Path, part: Path) -> None:
    source = part if kind == "part" else REPORTS[0]
    target = tmp_path / source.name
    whole = source.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    assert find_lack(target)
    with pytest.raises(ReportError) as missing:
        wait_for_reports([tmp_path], count=1, timeout_s=AT_ONCE)
    assert "0 of 1 reports are there and whole" in missing.value.message
    assert f"`{target}` is {'damaged' if kind == 'part' else 'truncated'}" in missing.value.message
    after(0.3, lambda: target.write_bytes(whole))
    assert wait_for_reports([tmp_path], count=1, timeout_s=PATIENCE_S)[0] == [target]


def test_a_database_that_is_written_is_waited_for(tmp_path: Path) -> None:
    target = Path(shutil.copy(REPORTS[0], tmp_path))
    writer = sqlite3.connect(target)
    writer.execute("CREATE TABLE more (x)")
    writer.execute("BEGIN")
    writer.execute("PRAGMA cache_spill = 1")
    writer.execute("INSERT INTO more VALUES (1)")
    journal = target.with_name(target.name + "-journal")
    journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    with pytest.raises(ReportError, match="is incomplete: a program writes it"):
        wait_for_reports([target], count=1, timeout_s=AT_ONCE)
    writer.rollback()
    writer.close()
    journal.unlink(missing_ok=True)
    assert wait_for_reports([target], count=1, timeout_s=PATIENCE_S)[0] == [target]


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_does_not_tell_its_end_must_not_grow(
    is_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / ("x_pqtdir" if is_folder else "x.nsys-rep")
    growing = target
    if is_folder:
        target.mkdir()
        growing = target / "StringIds.parquet"
    growing.write_bytes(b"x")
    clock = Clock(lambda: growing.write_bytes(growing.read_bytes() + b"x"), growths=8)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    with pytest.raises(ReportError, match="is still growing"):
        wait_for_reports([target], count=1, timeout_s=3)
    assert clock.growths_left
    assert wait_for_reports([target], count=1, timeout_s=PATIENCE_S)[0] == [target]
    assert not clock.growths_left
    assert 8 + 3 < clock.now < 8 + 7  # after the last growth, as long as settled files do not change


def test_an_empty_recording_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "x.nsys-rep").touch()
    with pytest.raises(ReportError, match=r"x\.nsys-rep` is empty"):
        wait_for_reports([tmp_path], count=1, timeout_s=AT_ONCE)


def test_when_time_is_over_what_is_missing_is_named(tmp_path: Path, part: Path) -> None:
    whole = Path(shutil.copy(part, tmp_path / "a.nspart"))
    cut = tmp_path / "b.nspart"
    cut.write_bytes(part.read_bytes()[:1000])
    inputs = [whole, cut, tmp_path / "c.nspart"]
    with pytest.raises(ReportError) as missing:
        wait_for_reports(inputs, count=4, timeout_s=0.1)
    assert missing.value.message == (
        f"after 0.1s, 1 of 4 reports are there and whole: `{cut}` is damaged: it has no end, as a file that "
        "was not written or copied whole;"
        f" `{inputs[2]}` does not exist"
    )
    paths, lacking = wait_for_reports(inputs, count=4, timeout_s=0.1, keep_going=True)
    assert paths == [whole]
    assert [(path, error.message) for path, error in lacking] == [
        (inputs[2], f"`{inputs[2]}` does not exist after 0.1s"),
        (cut, f"`{cut}` is damaged: it has no end, as a file that was not written or copied whole"),
    ]
    whole.unlink()
    with pytest.raises(ReportError, match="0 of 4"):
        wait_for_reports(inputs, count=4, timeout_s=AT_ONCE, keep_going=True)


def test_a_folder_with_too_few_reports_is_missing_some(tmp_path: Path, part: Path) -> None:
    whole = Path(shutil.copy(part, tmp_path / "a.nspart"))
    paths, missing = wait_for_reports([tmp_path], count=3, timeout_s=AT_ONCE, keep_going=True)
    assert paths == [whole]
    assert [(path, error.message) for path, error in missing] == [
        (tmp_path, "after 0s, 1 of 3 reports are there and whole")
    ]


def test_names_of_nsys_are_patterns(tmp_path: Path) -> None:
    names = ["n10.0", "n2.11", "n2.9"]
    for name in names:
        shutil.copy(REPORTS[0], tmp_path / f"{name}.sqlite")
    (tmp_path / "n2.txt").touch()
    expected = [tmp_path / f"{name}.sqlite" for name in ("n2.9", "n2.11", "n10.0")]
    for pattern in ("%h.%q{SLURM_PROCID}.sqlite", "%h.%p", "%h.%q{RANK}", "n%n.%p", "%h*.sqlite"):
        assert find_reports([tmp_path / pattern]) == expected, pattern
    with pytest.raises(ReportError, match=r"`.*%h\.none` matches no report"):
        find_reports([tmp_path / "%h.none"])
    odd = tmp_path / "%h.sqlite"
    os.rename(expected[0], odd)
    assert find_reports([odd]) == [odd]
