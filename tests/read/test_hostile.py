"""Files that are programs: nothing in them is run, and no work is larger than the file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.calls import environment, run
from tests.read.tables import push_pop, write_export

_PAGE = 4096
_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
_SLOW = "hex(zeroblob(20000000))"


def _export(path: Path, rows: int = 200) -> Path:
    return write_export(path, {"NVTX_EVENTS": [push_pop(number, number + 1) for number in range(rows)]})


def _edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _make_view(path: Path) -> None:
    _edit(
        path,
        "ALTER TABLE NVTX_EVENTS RENAME TO t",
        f"CREATE VIEW NVTX_EVENTS AS {_ENDLESS} SELECT t.* FROM t, n",
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {_ENDLESS} SELECT i AS start, i AS end, i AS deviceId FROM n",
        f"CREATE VIEW StringIds2 AS {_ENDLESS} SELECT max(i) AS id FROM n",
    )


def _make_virtual_table(path: Path) -> None:
    _edit(path, 'CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, "end", deviceId)')


def _make_slow_columns(path: Path) -> None:
    _edit(
        path,
        "DROP TABLE NVTX_EVENTS",
        "CREATE TABLE NVTX_EVENTS (start INTEGER PRIMARY KEY, end INTEGER, eventType INTEGER, globalTid INTEGER,"
        f" text TEXT AS ({_SLOW}) VIRTUAL) WITHOUT ROWID",
        *(f"INSERT INTO NVTX_EVENTS VALUES ({number}, {number + 1}, 59, 1)" for number in range(20)),
    )


def _make_endless_tree(path: Path) -> None:
    """Make pages whose children are one page, in levels: 300^5 rows in a file of a few pages."""
    path.unlink()
    _export(path, 60_000)
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
    model = bytes(data[(root - 1) * _PAGE : root * _PAGE])
    assert model[0] == 0x05
    leaf = int.from_bytes(model[8:12], "big")
    chain = [root, *range(len(data) // _PAGE + 1, len(data) // _PAGE + 5), leaf]
    data += bytes(4 * _PAGE)
    for page, child in pairwise(chain):
        changed = bytearray(model)
        changed[8:12] = child.to_bytes(4, "big")
        for cell in range(int.from_bytes(model[3:5], "big")):
            at = int.from_bytes(model[12 + 2 * cell : 14 + 2 * cell], "big")
            changed[at : at + 4] = child.to_bytes(4, "big")
        data[(page - 1) * _PAGE : page * _PAGE] = changed
    data[28:32] = (len(data) // _PAGE).to_bytes(4, "big")
    path.write_bytes(data)


@pytest.mark.parametrize("make", [_make_view, _make_virtual_table, _make_slow_columns, _make_endless_tree])
def test_a_hostile_file_is_read_or_refused_soon(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = _export(tmp_path / "a.sqlite")
    make(path)
    begin = os.times()
    for command in ("info", "summary", "project"):
        done = run(command, path, env=environment(PYTHONWARNINGS=""))
        assert "unforeseen" not in done.stderr
        assert done.code in (0, 1)
    if make is _make_endless_tree:
        assert "is damaged" in done.stderr
    end = os.times()  # time of processors: other work on the machine does not count
    assert sum(end[:4]) - sum(begin[:4]) < 120
