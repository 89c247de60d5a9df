"""Files of any form that SQLite reads give the same rows, by the compiled function and by Python's module."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.read import read_report
from nsys_pp.read.sqlite import CompiledConnection, Connection, PlainConnection, Rows, find_library
from tests.draws import count_draws

COLUMNS = {
    "start": "INTEGER",
    "end": "INTEGER",
    "eventType": "INTEGER",
    "globalTid": "INTEGER",
    "text": "TEXT",
    "textId": "INTEGER",
    "color": "INTEGER",
    "doubleValue": "REAL",
}
Value = int | float | str | None


def draw_rows(seed: int, count: int = 400) -> list[list[Value]]:
    """Draw rows of NVTX events: numbers of all widths, texts of all lengths, nulls."""
    chance = random.Random(seed)
    rows: list[list[Value]] = []
    for number in range(count):
        end = chance.choice(
            [None, 0, -(1 << 63), (1 << 63) - 1, chance.randrange(1 << chance.randrange(1, 63))]
        )
        text = chance.choice([None, "", "forward", "é" * chance.randrange(40), "x" * chance.randrange(9000)])
        real = chance.choice([None, 0.0, -1.5, 1e300, float("inf"), 7])
        rows.append([number * 1000 + chance.randrange(900), end, 59, 1 << 48, text, number % 300, None, real])
    return rows


def write(
    path: Path,
    rows: Sequence[Sequence[Value]],
    *,
    before: Sequence[str] = (),
    declared: str = "",
    suffix: str = "",
) -> Path:
    """Write NVTX events with SQLite, after some statements."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in before:
            connection.execute(statement)
        columns = declared or ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE NVTX_EVENTS ({columns}){suffix}")
        connection.execute("BEGIN")
        marks = ", ".join("?" * len(COLUMNS))
        connection.executemany(f"INSERT INTO NVTX_EVENTS ({', '.join(COLUMNS)}) VALUES ({marks})", rows)
        connection.execute("COMMIT")
    return path


_KEYED = ", ".join(f"{name} {kind}{' PRIMARY KEY' * (name == 'start')}" for name, kind in COLUMNS.items())
_COMPUTED = ", ".join(["twice INTEGER AS (2 * start) STORED", *(f"{n} {k}" for n, k in COLUMNS.items())])


@pytest.mark.parametrize(
    ("before", "declared", "suffix"),
    [
        *(([f"PRAGMA page_size = {size}"], "", "") for size in (512, 1024, 16384, 65536)),
        (["PRAGMA auto_vacuum = FULL"], "", ""),
        (["PRAGMA encoding = 'UTF-16le'"], "", ""),
        (["PRAGMA encoding = 'UTF-16be'"], "", ""),
        (["PRAGMA journal_mode = WAL"], "", ""),
        ([], _KEYED, ""),
        ([], _KEYED, " WITHOUT ROWID"),
        ([], _KEYED.replace("PRIMARY KEY", "PRIMARY KEY DESC"), ""),
        ([], _COMPUTED, ""),
    ],
)
def test_files_of_any_form_have_the_rows_that_were_written(
    before: list[str], declared: str, suffix: str, tmp_path: Path
) -> None:
    rows = draw_rows(1)
    raw = read_report(write(tmp_path / "a.sqlite", rows, before=before, declared=declared, suffix=suffix))
    events = raw["nvtx"].select("start", "end", "text", "text_id").rows()
    assert events == [(row[0], row[1], row[4] or None, row[5]) for row in rows]
    reals = [row[-1] for row in rows if row[-1] is not None]
    assert raw["payloads"]["double"].drop_nulls().to_list() == reals


def fetch(connection: Connection) -> Rows | str:
    query = f"SELECT rowid, {', '.join(COLUMNS)} FROM NVTX_EVENTS NOT INDEXED"
    query = query.replace("text,", "CAST(text AS TEXT),").replace("doubleValue", "CAST(doubleValue AS REAL)")
    try:
        return connection.fetch(query, "iiiiitiir")
    except sqlite3.Error as error:
        return str(error)
    finally:
        connection.close()


@settings(max_examples=count_draws(100), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), is_damaged=st.booleans())
def test_both_connections_are_equal(
    seed: int, is_damaged: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, chance = tmp_path_factory.mktemp("drawn") / "a.sqlite", random.Random(seed)
    write(path, draw_rows(seed, chance.randrange(600)), before=["PRAGMA page_size = 512"])
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 2, 8]) * is_damaged):
        data[chance.randrange(1024, len(data))] = chance.randrange(256)
    path.write_bytes(data)
    library, uri = find_library(), f"file:{path}?mode=ro"
    assert library is not None
    try:
        compiled = fetch(CompiledConnection(uri, len(data), library))
        plain = fetch(PlainConnection(uri, len(data)))
    except sqlite3.Error:
        return
    if isinstance(compiled, str) or isinstance(plain, str):
        assert compiled == plain
        return
    assert compiled.is_odd == plain.is_odd
    if not compiled.is_odd:
        for ours, theirs in zip(compiled.columns, plain.columns, strict=True):
            assert ours.equals(theirs, null_equal=True)
