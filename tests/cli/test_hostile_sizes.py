"""Small files that describe much: a command ends with a result or a sentence, within a stated multiple of memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.bench.measure import measure_peak_bytes
from tests.cli.calls import assert_refused, call

# of docs/limits.md
_FIXED_BYTES = 400_000_000
_BYTES_PER_BYTE = 40

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_CALL = "CUPTI_ACTIVITY_KIND_RUNTIME"
_Table = tuple[tuple[str, ...], Iterable[tuple[int, ...]]]


def _write(path: Path, tables: Mapping[str, _Table]) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.execute("INSERT INTO StringIds VALUES (0, 'k')")
        for name, (columns, rows) in tables.items():
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    return path


_REFUSED: dict[str, tuple[dict[str, _Table], str]] = {
    "streams": (
        {_KERNEL: (("start", "end", "streamId"), [(i, i + 1, i) for i in range(5_000)])},
        "streams of a GPU; expected at most 4,096",
    ),
    "GPUs": (
        {_KERNEL: (("start", "end", "deviceId"), [(i, i + 1, i) for i in range(600)])},
        "has 600 GPUs (of all processes); expected at most 512",
    ),
    "kernels at the same time": (
        {_KERNEL: (("start", "end"), [(0, 1)] * 20_000)},
        "slices at the same time in one row; expected at most 10,000",
    ),
    "rows of slices": (
        {_KERNEL: (("start", "end", "streamId"), [(i // 900, 900, i % 30) for i in range(27_000)])},
        "rows of slices; expected at most 20,000",
    ),
    "threads": (
        {
            _KERNEL: (("start", "end"), [(0, 1)]),
            _CALL: (("start", "end", "globalTid"), [(0, 1, i) for i in range(60_000)]),
        },
        "has 60,000 threads with events; expected at most 50,000",
    ),
}


@pytest.mark.parametrize("shape", _REFUSED)
def test_more_than_a_recording_has_is_refused(shape: str, tmp_path: Path) -> None:
    tables, words = _REFUSED[shape]
    path = _write(tmp_path / "a.sqlite", tables)
    done = call("merge", path, "-o", tmp_path / "x.pftrace")
    assert_refused(done)
    assert f"`{path}`" in done.stderr
    assert words in done.stderr
    assert not (tmp_path / "x.pftrace").exists()


_COUNT = 100_000
_LARGE: dict[str, dict[str, _Table]] = {
    "kernels of few bytes": {
        _KERNEL: (("start", "end"), [(i // 900 * 2, i // 900 * 2 + 1) for i in range(_COUNT)])
    },
    "ranges of few bytes": {
        "NVTX_EVENTS": (("eventType", "start", "end", "globalTid"), [(59, 0, 1, 1)] * _COUNT),
        _CALL: (("start", "end", "globalTid", "correlationId"), [(0, 1, 1, 1)] * 3),
        _KERNEL: (("start", "end", "correlationId"), [(0, 1, 1)] * 3),
    },
}


@pytest.mark.parametrize("shape", _LARGE)
def test_memory_is_a_multiple_of_the_file(shape: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "a.sqlite", _LARGE[shape])
    peak = measure_peak_bytes("merge", path, "-o", tmp_path / "x.pftrace")
    assert peak < _FIXED_BYTES + _BYTES_PER_BYTE * path.stat().st_size
