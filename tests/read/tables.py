"""Write small exports, of any version's shape, with SQLite itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, object]

PROCESS = (1 << 48) | (4242 << 24)  # host 0, virtual machine 1, pid 4242
THREAD = PROCESS | 4243

_TEXT = {"text", "value", "name", "jsonText", "binaryData", "uuid", "busLocation", "pciBusId", "description"}
_REAL = {"doubleValue", "floatValue"}


def declare(column: str, table: str = "") -> str:
    if (column, table) == ("eventId", "NVTX_EVENTS"):
        return "eventId INTEGER PRIMARY KEY"
    return f'"{column}" {"TEXT" if column in _TEXT else "REAL" if column in _REAL else "INTEGER"}'


def write_export(path: Path, tables: Mapping[str, Sequence[Row]]) -> Path:
    """Write tables with the columns that their rows have; one without rows has just times."""
    with sqlite3.connect(path) as connection:
        for name, rows in tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row)) or ["start", "end"]
            declared = ", ".join(declare(column, name) for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({declared})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f'INSERT INTO "{name}" VALUES ({marks})',
                [[row.get(column) for column in columns] for row in rows],
            )
    connection.close()
    return path


def strings(*texts: str) -> list[Row]:
    return [{"id": index, "value": text} for index, text in enumerate(texts)]


def push_pop(start: int, end: int | None, **more: object) -> Row:
    return {
        "start": start,
        "end": end,
        "eventType": 59,
        "globalTid": THREAD,
        "text": None,
        "textId": None,
        "domainId": 0,
        "endGlobalTid": None,
        **more,
    }


def call(start: int, end: int, correlation: int, **more: object) -> Row:
    row = {"start": start, "end": end, "eventClass": 0, "globalTid": THREAD, "correlationId": correlation}
    return {**row, "nameId": 0, "returnValue": 0, **more}


def op(start: int, end: int, correlation: int, **more: object) -> Row:
    row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7}
    return {**row, "correlationId": correlation, "globalPid": PROCESS, **more}


def os_call(start: int, end: int, **more: object) -> Row:
    row = {"start": start, "end": end, "eventClass": 27, "globalTid": THREAD, "nameId": 0}
    return {**row, "returnValue": 0, "nestingLevel": 0, "callchainId": 0, **more}


def switch(start: int, is_in: int, **more: object) -> Row:
    return {"start": start, "cpu": 3, "isSchedIn": is_in, "globalTid": THREAD, **more}


def memory(start: int, operation: int, address: int, size: int, **more: object) -> Row:
    row = {"start": start, "globalPid": PROCESS, "deviceId": 0, "contextId": 1, "address": address, "pc": 0}
    kind = {"memKind": 2, "memoryOperationType": operation}
    return {**row, "bytes": size, **kind, "name": None, "correlationId": None, **more}


def kernel(start: int, end: int, correlation: int, **more: object) -> Row:
    grid = {f"grid{axis}": 1 for axis in "XYZ"} | {f"block{axis}": 32 for axis in "XYZ"}
    names = {"demangledName": 1, "shortName": 0, "registersPerThread": 16}
    shared = {"staticSharedMemory": 0, "dynamicSharedMemory": 0}
    return {**op(start, end, correlation), **names, **grid, **shared, **more}
