"""What hosts did, in the verdict: calls, stacks and states of launching threads, and other threads meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.verdict import Finding

_RUN = "--steps 5 --micro-batches 4 --jitter 0.01 --dp 2 --layers 2 --host --no-truth"


class Stall(NamedTuple):
    report: Path
    start: int
    end: int
    thread: int


def stall(folder: Path, seed: int, call: str) -> Stall:
    """Simulate a run in which the host of rank 2 is in a call for 30 ms of step 12."""
    simulate([*f"{_RUN} --host-stall 2,12=30 --seed {seed}".split(), str(folder)])
    report = next(folder.rglob("rank2.sqlite"))
    with closing(sqlite3.connect(report)) as connection, connection:
        where = "WHERE end - start > 10000000"
        start, end, thread = connection.execute(
            f"SELECT start, end, globalTid FROM OSRT_API {where}"
        ).fetchone()
        connection.execute(f"UPDATE OSRT_API SET nameId = ? {where}", (add_string(connection, call),))
    return Stall(report, start, end, thread)


def add_string(connection: sqlite3.Connection, text: str) -> int:
    number = int(connection.execute("SELECT max(id) + 1 FROM StringIds").fetchone()[0])
    connection.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (number, text))
    return number


def add_workers(stalled: Stall, call: str) -> None:
    """Add two threads of a loader, which are in a call meanwhile."""
    with closing(sqlite3.connect(stalled.report)) as connection, connection:
        number = add_string(connection, call)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(OSRT_API)")]
        some = dict(
            zip(columns, connection.execute("SELECT * FROM OSRT_API LIMIT 1").fetchone(), strict=True)
        )
        marks = ", ".join("?" * len(columns))
        for worker in (1, 2):
            thread = stalled.thread + 500 + worker
            row = some | {"start": stalled.start, "end": stalled.end, "globalTid": thread, "nameId": number}
            connection.execute(f"INSERT INTO OSRT_API VALUES ({marks})", [row[name] for name in columns])
            connection.execute(
                "INSERT INTO ThreadNames (nameId, priority, globalTid) VALUES (?, 0, ?)",
                (add_string(connection, f"pt_data_worker_{worker}"), thread),
            )


def find_host(folder: Path) -> Finding:
    return next(found for found in nsys_pp.pipeline(folder).verdict.findings if found.kind == "host")


def test_a_loader_that_reads_while_the_program_waits_is_a_guess(tmp_path: Path) -> None:
    stalled = stall(tmp_path, 19_200, "pthread_cond_wait")
    add_workers(stalled, "read")
    found = find_host(tmp_path)
    assert "in `pthread_cond_wait()`" in found.line
    assert "; meanwhile `pt_data_worker_*` was in `read()` for " in found.line
    assert "(a guess that this is why)" in found.line


@pytest.mark.parametrize(("call", "others"), [("pthread_cond_wait", "sem_wait"), ("read", "read")])
def test_threads_that_wait_too_and_those_of_a_busy_program_are_not_named(
    tmp_path: Path, call: str, others: str
) -> None:
    stalled = stall(tmp_path, 19_201, call)
    add_workers(stalled, others)
    found = find_host(tmp_path)
    assert f"in `{call}()`" in found.line
    assert "pt_data_worker" not in found.line


def test_parts_name_the_same(tmp_path: Path) -> None:
    stalled = stall(tmp_path / "run", 19_202, "pthread_cond_wait")
    add_workers(stalled, "read")
    nsys_pp.extract(tmp_path / "run", tmp_path / "parts")
    lines = nsys_pp.pipeline(tmp_path / "run").verdict.lines
    assert "pt_data_worker" in lines[0]
    assert nsys_pp.pipeline(tmp_path / "parts").verdict.lines == lines


def test_short_calls_are_summed_and_their_stack_is_named(tmp_path: Path) -> None:
    stalled = stall(tmp_path, 19_203, "read")
    with closing(sqlite3.connect(stalled.report)) as connection, connection:
        connection.execute("DELETE FROM OSRT_API WHERE end - start > 10000000")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(OSRT_API)")]
        some = dict(
            zip(columns, connection.execute("SELECT * FROM OSRT_API LIMIT 1").fetchone(), strict=True)
        )
        marks = ", ".join("?" * len(columns))
        number = add_string(connection, "fsync")
        length = (stalled.end - stalled.start) // 100
        for at in range(100):  # 80 of 100 pieces of the stall, none of which is a large part of it
            if at % 5:
                start = stalled.start + at * length
                row = some | {"start": start, "end": start + length, "globalTid": stalled.thread}
                row |= {"nameId": number, "callchainId": 1}
                connection.execute(f"INSERT INTO OSRT_API VALUES ({marks})", [row[name] for name in columns])
        connection.execute("CREATE TABLE IF NOT EXISTS OSRT_CALLCHAINS (id, symbol, module, stackDepth)")
        for depth, name in enumerate(("fsync", "save_checkpoint", "train")):
            connection.execute(
                "INSERT INTO OSRT_CALLCHAINS (id, symbol, module, stackDepth) VALUES (1, ?, ?, ?)",
                (add_string(connection, name), add_string(connection, "python"), depth),
            )
    line = find_host(tmp_path).line
    assert "in `fsync()`" in line
    assert "called from `save_checkpoint < train`" in line
