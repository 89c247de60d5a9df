"""Damage of single bytes: what SQLite's own check sees is noted, and the sums of rows hold."""

from __future__ import annotations

import random
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from nsys_pp.errors import NsysPPError
from nsys_pp.model import build_report
from nsys_pp.read import read_report, sqlite_damage
from nsys_pp.read.integrity import check_integrity
from tests.read.tables import call, kernel, push_pop, strings, write_export
from tests.row_sums import check_row_sums

_ROWS = 400
_PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_export(
        tmp_path_factory.mktemp("whole") / "a.sqlite",
        {
            "StringIds": strings("a", "b"),
            "NVTX_EVENTS": [push_pop(i, i + 5, text="x" * 20) for i in range(_ROWS)],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [call(i, i + 1, i) for i in range(_ROWS)],
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(_ROWS)],
        },
    )


def _damage(data: bytes, seed: int) -> bytes:
    """Flip bits, overwrite a run, or swap two pages; the header stays."""
    drawn, broken = random.Random(seed), bytearray(data)
    if seed % 3 == 0:
        for _ in range(drawn.randrange(1, 9)):
            broken[drawn.randrange(100, len(data))] ^= 1 << drawn.randrange(8)
    elif seed % 3 == 1:
        at = drawn.randrange(100, len(data) - 64)
        broken[at : at + 64] = drawn.randbytes(64)
    else:
        one, other = (drawn.randrange(1, len(data) // _PAGE) * _PAGE for _ in range(2))
        broken[one : one + _PAGE], broken[other : other + _PAGE] = (
            data[other : other + _PAGE],
            data[one : one + _PAGE],
        )
    return bytes(broken)


def _count_by_outcome(whole: Path, folder: Path, seeds: range) -> dict[str, int]:
    outcomes = {"refused": 0, "noted": 0, "silent": 0, "intact": 0}
    for seed in seeds:
        path = folder / f"{seed}.sqlite"
        path.write_bytes(_damage(whole.read_bytes(), seed))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                check_row_sums(path)
            except NsysPPError:
                outcomes["refused"] += 1
                continue
        is_noted = any("is damaged, so rows may be" in str(note.message) for note in caught)
        complaints = check_integrity(path, time_limit_s=60).complaints
        # pages of a lost table: only a walk of the whole file sees that
        unseen = [] if sqlite_damage._SMALL_FILE_BYTES else [c for c in complaints if "never used" in c]
        is_intact = len(complaints) == len(unseen)
        outcomes["noted" if is_noted else "intact" if is_intact else "silent"] += 1
    return outcomes


@pytest.mark.parametrize("small_file_bytes", [sqlite_damage._SMALL_FILE_BYTES, 0])
def test_no_damage_that_sqlite_sees_is_silent(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_file_bytes: int
) -> None:
    monkeypatch.setattr(sqlite_damage, "_SMALL_FILE_BYTES", small_file_bytes)
    outcomes = _count_by_outcome(whole, tmp_path, range(60))
    assert outcomes["silent"] == 0, outcomes
    assert min(outcomes["refused"], outcomes["noted"], outcomes["intact"]) > 0, outcomes


def test_a_large_table_that_is_damaged_is_noted(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are not of the plain form, so SQLite reads it, and checks it."""
    monkeypatch.setattr(sqlite_damage, "_SMALL_FILE_BYTES", 0)
    monkeypatch.setattr("nsys_pp.read.sqlite._LARGE_TABLE_ROWS", 10)
    path = tmp_path / "a.sqlite"
    data = bytearray(whole.read_bytes())
    with closing(sqlite3.connect(whole)) as connection:
        [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
    page = data[(root - 1) * _PAGE : root * _PAGE]
    leaves = [int.from_bytes(page[at : at + 4], "big") for at in _cells(page)]
    one, other = (slice((leaf - 1) * _PAGE, leaf * _PAGE) for leaf in leaves[:2])
    data[one], data[other] = data[other], data[one]
    path.write_bytes(data)
    with pytest.warns(UserWarning, match=r"is damaged, so rows may be missing or wrong \(SQLite: .*Rowid"):
        build_report(read_report(path))


def _cells(page: bytes | bytearray) -> list[int]:
    count = int.from_bytes(page[3:5], "big")
    return [int.from_bytes(page[12 + 2 * at : 14 + 2 * at], "big") for at in range(count)]


def test_constraints_of_a_file_are_not_run(tmp_path: Path) -> None:
    """A check of `randomblob` would need gigabytes."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, CHECK (length(randomblob(900000000)) > 1))"
        )
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, 999)", [(i,) for i in range(99)]
        )
    assert check_integrity(path, time_limit_s=60).is_whole
    assert len(build_report(read_report(path)).gpu_ops) == 99
