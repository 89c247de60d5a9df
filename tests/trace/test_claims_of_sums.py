"""What `info` says of tables of results is true: rows of a table change the table of results that it names."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from fixtures.recording.metrics import add_metrics
from tests.read.tables import Row, write_export
from tests.tables.training.test_network import add_network

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"
STEPS = 2_000

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def list_rows(thread: int, begin: int, end: int, name: int) -> dict[str, list[Row]]:
    """List rows over the whole recording, of the thread that launches."""
    process, length = thread & ~0xFFFFFF, (end - begin) // STEPS
    times = range(begin, end, length)
    call = {"globalTid": thread, "nameId": name}
    memory = {"globalPid": process, "deviceId": 0, "contextId": 1, "pc": 0, "memKind": 2, "name": None}
    return {
        "OSRT_API": [
            {
                "start": at,
                "end": at + length // 2,
                "eventClass": 27,
                **call,
                "returnValue": 0,
                "callchainId": 0,
            }
            for at in times
        ],
        "SCHED_EVENTS": [
            {"start": at, "cpu": 1, "isSchedIn": number % 2, "globalTid": thread}
            for number, at in enumerate(times)
        ],
        "COMPOSITE_EVENTS": [
            {
                "id": number + 1,
                "start": at + length // 2,
                "cpu": 1,
                "threadState": 0,
                "globalTid": thread,
                "cpuCycles": 1,
            }
            for number, at in enumerate(times)
        ],
        "SAMPLING_CALLCHAINS": [
            {"id": number + 1, "symbol": name, "module": name, "stackDepth": 0} for number in range(STEPS)
        ],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [
            {"start": at, "address": 4096 * at, "bytes": 64, "memoryOperationType": 0, "correlationId": None}
            | memory
            for at in times
        ],
        "PROFILER_OVERHEAD": [{"start": at, "end": at + length // 4, **call} for at in times],
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the reports of the fixture, with rows in all tables that results have sums of."""
    folder = tmp_path_factory.mktemp("sums") / "pipeline"
    shutil.copytree(PIPELINE, folder)
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(path)) as connection, connection:
            begin, end = connection.execute(
                "SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL"
            ).fetchone()
            (thread,) = connection.execute(
                "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1"
            ).fetchone()
            (name,) = connection.execute("SELECT max(id) FROM StringIds").fetchone()
        write_export(path, list_rows(thread, begin, end, name))
        add_metrics(path, rows=10_000, end_ns=end)
        add_network(path, until_ns=end, rates={5: 3000, 6: 500})
    return folder


def read_result(folder: Path, sums: str) -> pl.DataFrame:
    command, _, table = sums.split()
    if command == "summary":
        return nsys_pp.summarise(folder, tables=[table]).tables.get(table, pl.DataFrame())
    return nsys_pp.pipeline(folder).tables([table])[table]


def test_each_table_with_sums_changes_them(recorded: Path, tmp_path: Path) -> None:
    (info,) = nsys_pp.info([recorded / "node2" / "rank0.sqlite"]).reports
    claims = info.contents.tables.drop_nulls("sums").select("table", "sums").rows()
    assert len(claims) >= 8
    assert len({sums for _, sums in claims}) >= 7
    results = {sums: read_result(recorded, sums) for _, sums in claims}
    for table, sums in claims:
        folder = tmp_path / table
        shutil.copytree(recorded, folder)
        for path in folder.rglob("*.sqlite"):
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(f'DROP TABLE "{table}"')
        assert len(results[sums]), table
        assert not results[sums].equals(read_result(folder, sums)), (table, sums)
