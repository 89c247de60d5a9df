"""Reports with rows in the tables of any known version of nsys; `layouts.txt` has the tables and their columns.

Sources: exports of nsys 2022.4, 2023.4 and 2024.2 with all tables (`nsys export --lazy=false`), and NVIDIA's schema reference of 2026.4.
Times of a row are in a range of its own, so that what is drawn shows its table and row.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path

from tests.read.tables import PROCESS, THREAD

Layout = Mapping[str, tuple[str, ...]]  # columns by table, as `layouts.txt` has them

TABLE_NS, ROW_NS = 100_000, 1_000
FIRST_NS = 1_000_000
STARTS = ("start", "timestamp", "startedAt")
UNTIMED = ("CUPTI_ACTIVITY_KIND_CUDA_EVENT",)  # drawn at the times of their calls
NAMES = ("cudaEventRecord_v3020", "MPI_Send", "compute", "SM Occupancy", "value")
GPU_TYPE = 1 << 40  # the low 8 bits are the GPU
CALLS = 64  # rows of CUDA events have correlation ids from here on
_TYPES = {"": "INTEGER", "T": "TEXT", "R": "REAL", "B": "BLOB"}
_IDS = {
    "nameId": 1,
    "textId": 2,
    "apiCallId": 2,
    "shortName": 2,
    "demangledName": 2,
    "symbol": 2,
    "module": 4,
}
_VALUES: Mapping[str, object] = {
    **_IDS,
    **dict.fromkeys(("globalTid", "endGlobalTid", "globalThreadId"), THREAD),
    **dict.fromkeys(("globalPid", "globalProcessId"), PROCESS),
    "hwId": 0,
    "vmId": 1,
    "processId": 4242,
    "pid": 4242,
    "deviceId": 0,
    "cuDevice": 0,
    "contextId": 1,
    "streamId": 7,
    "gpuId": 0,
    "gpu": 0,
    "cudaId": 0,
    "typeId": GPU_TYPE,
    "metricsListId": 1,
    "metricsIdx": 0,
    "fieldIdx": 0,
    "cpu": 3,
    "nameEnum": 1,
    "copyKind": 1,
    "memKind": 2,
    "srcKind": 1,
    "dstKind": 2,
    "operationType": 1,
    "timestampType": 1,
    "memoryOperationType": 0,
    "syncType": 1,
    "severity": 2,
    "flag": 1,
    "endNameId": 1,
    "fieldNameId": 4,
    "fieldName": "value",
    "idx": 0,
    "componentId": 2,
    "clusterId": 1,
    "rank": 0,
    "remoteRank": 1,
    "commHandle": 1,
    "tag": 5,
    "unit": "count",
    "busLocation": "0000:01:00.0",
    "data": '{"irq": 4}',
    "metricName": "SM Occupancy [Throughput %]",
    "address": 4096,
    "localMemoryPoolAddress": 8192,
    "nicId": 1,
    "instance": 0,
    "parentId": 0,
    "parentComponentId": 0,
}


@cache
def read_layouts() -> dict[str, Layout]:
    layouts: dict[str, Layout] = {}
    tables: dict[str, tuple[str, ...]] = {}
    for line in (Path(__file__).parent / "layouts.txt").read_text().splitlines():
        name, *columns = line.split() or ["#"]
        if version := re.match(r"\[(.*)\]", name):
            tables = dict(tables)
            layouts[version[1]] = tables
        elif name == "-":
            del tables[columns[0]]
        elif name != "#":
            tables[name] = tuple(columns)
    return layouts


def read_layout(path: Path) -> Layout:
    """Read the layout of an export; enumerations are left out."""
    letters = {"TEXT": ":T", "REAL": ":R", "BLOB": ":B"}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: tuple(
                f"{column}{letters.get(kind, '')}{'*' * (key == 1)}"
                for _, column, kind, _, _, key in connection.execute(f'PRAGMA table_info("{name}")')
            )
            for (name,) in names
            if not name.startswith(("ENUM_", "UnwindMethodType", "sqlite_"))
        }


def find_starts(layout: Layout, table: str) -> str | None:
    """Return the column of a table with the starts of its rows; None without one."""
    names = [column.split(":")[0].rstrip("*") for column in layout[table]]
    return next((name for name in STARTS if name in names), None)


def time_of(layout: Layout, table: str, row: int) -> int:
    return FIRST_NS + sorted(layout).index(table) * TABLE_NS + row * ROW_NS


def write_layout(path: Path, layout: Layout, counts: Mapping[str, int]) -> Path:
    """Write a report with a few rows in some of the tables of a layout; processes and strings have rows in any case.

    Args:
        path: The report.
        layout: Tables and columns.
        counts: Rows by table.
    """
    with closing(sqlite3.connect(path)) as connection, connection:
        needed = [table for table in ("StringIds", "PROCESSES") if table in layout]
        for table in dict.fromkeys((*counts, *needed)):
            columns = [re.match(r"(\w+):?([TRB]?)(\*?)", column) for column in layout[table]]
            declared = ", ".join(
                f'"{match[1]}" {_TYPES[match[2]]}{" PRIMARY KEY" * bool(match[3])}'
                for match in columns
                if match
            )
            connection.execute(f'CREATE TABLE "{table}" ({declared})')
            names = [match[1] for match in columns if match]
            texts = {match[1] for match in columns if match and match[2] == "T"}
            marks = ", ".join("?" * len(names))
            for row in _list_rows(layout, table, counts.get(table, 0)):
                values = [
                    _value(table, name, row, time_of(layout, table, row), name in texts) for name in names
                ]
                connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', values)
    return path


def _list_rows(layout: Layout, table: str, count: int) -> range:
    if table == "StringIds":
        return range(max(count, len(NAMES)))
    return range(max(count, 1) if table == "PROCESSES" else count)


def _value(table: str, column: str, row: int, time: int, is_text: bool) -> object:
    special: Mapping[tuple[str, str], object] = {
        ("StringIds", "id"): row,
        ("StringIds", "value"): NAMES[row] if row < len(NAMES) else f"text {row}",
        ("PROCESSES", "globalPid"): PROCESS + (row << 24),
        ("PROCESSES", "pid"): 4242 + row,
        ("NVTX_EVENTS", "eventType"): 59,
        ("OSRT_API", "eventClass"): 27,
        ("SCHED_EVENTS", "isSchedIn"): 1 - row % 2,
        ("COMPOSITE_EVENTS", "id"): row + 1,
        ("GPU_CONTEXT_SWITCH_EVENTS", "tag"): 8 - row % 2,
        ("FECS_EVENTS", "tag"): 8 - row % 2,
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"): 0,
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"): CALLS + row,
        ("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "correlationId"): CALLS + row,
        ("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "timestamp"): None,
        ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CpuInstruction"): 2,
        ("PMU_EVENTS", "counter_id"): row,
        ("UNCORE_PMU_EVENTS", "counterId"): row,
        ("TARGET_INFO_GPU", "id"): row,
        ("TARGET_INFO_CUDA_STREAM", "streamId"): 7 + row,
        ("GENERIC_EVENT_TYPES", "typeId"): GPU_TYPE + row,
        ("TARGET_INFO_PERF_METRIC", "id"): 0,
    }
    if (table, column) in special:
        return special[table, column]
    if column in (*STARTS, "rawTimestamp", "openedAt"):
        return time
    if column in ("end", "endedAt", "closedAt"):
        return time + ROW_NS // 2
    if column in ("id", "genericEventId", "eventId", "sourceId", "providerId", "seqNo"):
        return row
    if column in _VALUES and is_text == isinstance(_VALUES[column], str):
        return _VALUES[column]
    if is_text:
        return f"text {row}"
    return row + 1 if column in ("value", "bytes", "count", "correlationId") else 0
