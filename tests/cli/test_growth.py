"""Work grows with the rows of a report, not with their square, whatever is in them: four times the rows are compared with the rows.

Times of a processor are compared with those of the same code on the same machine, the least of several; the number of Python's
calls does not depend on the machine at all.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nsys_pp
from nsys_pp.projection import waited_calls

_FEW, _FACTOR = 12_000, 4
_MOST_TIMES = 8.0  # with four times the rows; their square would take 16 times as long
_MOST_CALLS = 4.4  # a call for each distinct name of a range is usual
_FIXED_S = 0.1  # of tables without rows; a quadratic step of this size is seen at its fourfold
_TRIES = 4

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_CALL = "CUPTI_ACTIVITY_KIND_RUNTIME"
_PROCESS = 1 << 24
_THREAD = _PROCESS + 1
Column = Callable[[int, int], object]
"""A value of a row, by its number and the number of rows."""

_COLUMNS: dict[str, dict[str, Column]] = {
    _KERNEL: {
        "start": lambda i, n: 10 * i,
        "end": lambda i, n: 10 * i + 5,
        "streamId": lambda i, n: 7,
        "deviceId": lambda i, n: 0,
        "globalPid": lambda i, n: _PROCESS,
        "correlationId": lambda i, n: i,
        "shortName": lambda i, n: 0,
    },
    _CALL: {
        "start": lambda i, n: 10 * i,
        "end": lambda i, n: 10 * i + 4,
        "globalTid": lambda i, n: _THREAD,
        "correlationId": lambda i, n: i,
        "nameId": lambda i, n: 1,
    },
    "NVTX_EVENTS": {
        "eventType": lambda i, n: 59,
        "start": lambda i, n: 10 * i,
        "end": lambda i, n: 10 * i + 5,
        "globalTid": lambda i, n: _THREAD,
        "text": lambda i, n: "a",
        "rangeId": lambda i, n: None,
        "endGlobalTid": lambda i, n: None,
    },
}
_Shape = dict[str, dict[str, Column]]
_NESTED: dict[str, Column] = {"start": lambda i, n: i, "end": lambda i, n: 30 * n - i}
_SHAPES: dict[str, _Shape] = {
    "ranges that are all nested": {"NVTX_EVENTS": _NESTED},
    "ranges that are all equal": {
        "NVTX_EVENTS": {"start": lambda i, n: 0, "end": lambda i, n: 10 * n},
    },
    "ranges that all overlap": {
        "NVTX_EVENTS": {
            "eventType": lambda i, n: 60,
            "start": lambda i, n: i,
            "end": lambda i, n: 5 * n + i,
            "rangeId": lambda i, n: i,
            "endGlobalTid": lambda i, n: _THREAD + i % 3,
        }
    },
    "a name for each range": {"NVTX_EVENTS": {"text": lambda i, n: f"name {i} of {n}"}},
    "a step for each range": {"NVTX_EVENTS": {"text": lambda i, n: f"step {i}"}},
    "jobs that are all nested": {"NVTX_EVENTS": {**_NESTED, "text": lambda i, n: f"forward {i % 7}"}},
    "kernels at one instant": {
        _KERNEL: {"start": lambda i, n: i // 900 * 10, "end": lambda i, n: i // 900 * 10 + 5}
    },
    "kernels longer than the time between them": {_KERNEL: {"end": lambda i, n: 10 * i + 8000}},
    "kernels on hundreds of streams": {
        _KERNEL: {"streamId": lambda i, n: i % 600, "end": lambda i, n: 10 * i + 8000}
    },
    "hundreds of GPUs and processes": {
        _KERNEL: {"deviceId": lambda i, n: i % 8, "globalPid": lambda i, n: _PROCESS * (1 + i % 60)},
        _CALL: {"globalTid": lambda i, n: _PROCESS * (1 + i % 60) + 1},
        "NVTX_EVENTS": {"globalTid": lambda i, n: _PROCESS * (1 + i % 60) + 1},
    },
    "launches without operations": {_KERNEL: {"correlationId": lambda i, n: i + n}},
    "one launch of all operations": {
        _KERNEL: {"correlationId": lambda i, n: 5},
        _CALL: {"correlationId": lambda i, n: 5},
    },
    "huge ids": {
        _KERNEL: {"correlationId": lambda i, n: 2**62 - i, "globalPid": lambda i, n: _PROCESS << 30},
        _CALL: {"correlationId": lambda i, n: 2**62 - i, "globalTid": lambda i, n: (_PROCESS << 30) + 1},
    },
    "thousands of threads": {
        _CALL: {"globalTid": lambda i, n: _PROCESS + i % 8000},
        "NVTX_EVENTS": {"globalTid": lambda i, n: _PROCESS + i % 8000},
    },
    "calls that are all nested": {_CALL: {"start": lambda i, n: i, "end": lambda i, n: 100 * n - i}},
    "messages": {_KERNEL: {"shortName": lambda i, n: 2}, "NVTX_EVENTS": {"text": lambda i, n: "ncclSend"}},
}
_STRINGS = [
    (0, "k"),
    (1, "cudaLaunchKernel"),
    (2, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
]


def _write(path: Path, shape: _Shape, count: int) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", _STRINGS)
        for table, columns in _COLUMNS.items():
            columns = {**columns, **shape.get(table, {})}
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            rows = ([column(row, count) for column in columns.values()] for row in range(count))
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
    return path


def _count_calls(work: Callable[[], object]) -> int:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def _measure_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.few(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", _SHAPES)
def test_work_grows_with_the_rows(shape: str, tmp_path: Path) -> None:
    paths = [_write(tmp_path / f"{count}.sqlite", _SHAPES[shape], count) for count in (_FEW, _FEW * _FACTOR)]
    analyses: dict[str, Callable[[Path], object]] = {
        "merge": lambda path: nsys_pp.merge(path, tmp_path / "x.pftrace", force=True),
        "pipeline": lambda path: nsys_pp.pipeline(path).tables(),
        "summary": lambda path: nsys_pp.summarise(path).tables,
    }
    for name, analyse in analyses.items():
        few, many = (partial(_refusable, analyse, path) for path in paths)
        few()  # imports what it uses
        calls = [_count_calls(work) for work in (few, many)]
        assert calls[1] <= _MOST_CALLS * calls[0], f"{name}: {calls[0]:,} and {calls[1]:,} calls"
        times = []
        for _ in range(_TRIES):
            few_s, many_s = _measure_s(few), _measure_s(many)
            times.append((few_s, many_s))
            if many_s <= _MOST_TIMES * max(few_s, _FIXED_S):
                break
        else:
            pytest.fail(f"{name}: {times}")


def _refusable(analyse: Callable[[Path], object], path: Path) -> None:
    """Analyse a report; what it lacks or has too much of is a sentence, after as little work."""
    try:
        analyse(path)
    except nsys_pp.NsysPPError:
        return


def test_pairs_of_threads_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread may wait for each other: of a process with many, only its first thread is compared with all."""
    compared: list[object] = []
    relate = waited_calls._relate

    def count(events: Any, calls: Any) -> Any:
        compared.append(calls)
        return relate(events, calls)

    monkeypatch.setattr(waited_calls, "_relate", count)
    path = _write(tmp_path / "threads.sqlite", _SHAPES["thousands of threads"], 600)
    nsys_pp.merge(path, tmp_path / "x.pftrace")
    assert 0 < len(compared) < 600
