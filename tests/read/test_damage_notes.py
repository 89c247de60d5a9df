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
from nsys_pp.read import read_report
from nsys_pp.read.files import check_integrity
from tests.read.tables import call, kernel, push_pop, strings, write_export
from tests.row_sums import check_row_sums

_PAGE = 4096


def _write(path: Path, rows: int) -> Path:
    return write_export(
        path,
        {
            "StringIds": strings("a", "b"),
            "NVTX_EVENTS": [push_pop(i, i + 5, text="x" * 20) for i in range(rows)],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [call(i, i + 1, i) for i in range(rows)],
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(rows)],
        },
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("small") / "a.sqlite", 400)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of more than `_SMALL_FILE_BYTES`, of which only the read tables are checked."""
    path = _write(tmp_path_factory.mktemp("large") / "a.sqlite", 40_000)
    assert path.stat().st_size > 4_000_000
    return path


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


@pytest.mark.parametrize("seed", range(60))
def test_no_damage_that_sqlite_sees_is_silent(small: Path, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(_damage(small.read_bytes(), seed))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_row_sums(path)
        except NsysPPError:
            return
    is_noted = any("is damaged, so rows may be" in str(note.message) for note in caught)
    assert is_noted or not check_integrity(path, time_limit_s=60).complaints


def test_swapped_pages_of_a_large_table_are_noted(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    data = bytearray(large.read_bytes())
    with closing(sqlite3.connect(large)) as connection:
        [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
    page = data[(root - 1) * _PAGE : root * _PAGE]
    leaves = [int.from_bytes(page[at : at + 4], "big") for at in _cells(page)]
    one, other = (slice((leaf - 1) * _PAGE, leaf * _PAGE) for leaf in leaves[:2])
    data[one], data[other] = data[other], data[one]
    path.write_bytes(data)
    with pytest.warns(UserWarning, match=r"is damaged, so rows may be missing or wrong \(SQLite: .*Rowid"):
        build_report(read_report(path))


def test_a_repeated_page_of_a_large_table_is_noted(large: Path, tmp_path: Path) -> None:
    """Its rows are there twice, and those of the page that it hides are missing: the number of rows is right."""
    path = tmp_path / "a.sqlite"
    data = bytearray(large.read_bytes())
    with closing(sqlite3.connect(large)) as connection:
        [[root]] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'"
        )
    begin = (root - 1) * _PAGE
    first, second = (begin + at for at in _cells(data[begin : begin + _PAGE])[:2])
    data[second : second + 4] = data[first : first + 4]
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="is damaged, so rows may be missing or wrong"):
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
