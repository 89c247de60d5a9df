"""Simulated reports with other processes: those of a restart, and another program on a rank's GPU."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_READING_NS = 70_000  # between two readings of UTC, by which nsys sessions of one machine differ
_PID_SHIFT = 24  # bits of the thread in nsys' ids of processes and threads


def delay(folder: Path, *, later_ns: int, pids: int = 1) -> None:
    """Move all reports of a folder to a later time of their machines, and add to the ids of their processes."""
    for path in folder.rglob("*.sqlite"):
        with sqlite3.connect(path) as report:
            report.execute(
                "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", [later_ns]
            )
            report.execute(
                "UPDATE ANALYSIS_DETAILS SET startTime = startTime + ?1, stopTime = stopTime + ?1",
                [later_ns + _READING_NS],
            )
            report.execute("UPDATE PROCESSES SET pid = pid + ?", [pids])
            tables = [
                name for (name,) in report.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            for table in tables:
                columns = [row[1] for row in report.execute(f"PRAGMA table_info({table})")]
                for column in {"globalPid", "globalTid", "processId"} & {*columns}:
                    added = pids << _PID_SHIFT if column != "processId" else pids
                    report.execute(f"UPDATE {table} SET {column} = {column} + ?", [added])
        report.close()


def add_process(path: Path, *, kernels: int, pids: int = 7) -> None:
    """Add a process to a report that launches kernels on the GPU of the first one, as a monitor does."""
    added = pids << _PID_SHIFT
    with sqlite3.connect(path) as report:
        (pid,) = report.execute("SELECT min(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        chosen = f"SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE streamId = 7 LIMIT {kernels}"
        for table, where in (
            ("CUPTI_ACTIVITY_KIND_KERNEL", f"correlationId IN ({chosen})"),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", f"correlationId IN ({chosen})"),
            ("TARGET_INFO_CUDA_CONTEXT_INFO", "TRUE"),
            ("PROCESSES", f"globalPid = {pid}"),
        ):
            report.execute(f"CREATE TEMP TABLE copied AS SELECT * FROM {table} WHERE {where}")
            columns = [row[1] for row in report.execute(f"PRAGMA table_info({table})")]
            for column in {"globalPid", "globalTid"} & {*columns}:
                report.execute(f"UPDATE copied SET {column} = {column} + {added}")
            for column in {"pid", "processId"} & {*columns}:
                report.execute(f"UPDATE copied SET {column} = {column} + {pids}")
            report.execute(f"INSERT INTO {table} SELECT * FROM copied")
            report.execute("DROP TABLE copied")
    report.close()
