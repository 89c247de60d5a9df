"""Whole commands, measured from outside: wall time, processor time, or peak memory."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nsys_pp.frames.raw import Group
from nsys_pp.read.plan import plan_sources

TEXT = {"text", "json", "binary", "value", "name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished process."""

    wall_s: float
    cpu_s: float


def run(command: Sequence[str | Path], standard_input: str = "") -> Run:
    """Run a command to its end and ask the system what it took.

    The clock of the system is read around the process, so its start-up counts.
    """
    import time

    began = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(standard_input)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Run(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime)


_REPORT_PEAK = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measure_peak_bytes(*words: str | Path) -> int:
    """Run our own command line and return its peak memory.

    Linux counts the peak of the process that started a program as that of the program, so a small process starts it: this one
    may have drawn a large report.
    """
    command = [
        sys.executable,
        "-c",
        _REPORT_PEAK,
        sys.executable,
        "-m",
        "nsys_pp",
        *(str(word) for word in words),
    ]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def nsys_pp(*words: str | Path) -> Run:
    return run([sys.executable, "-m", "nsys_pp", *words])


def scan(report: Path, need: frozenset[Group]) -> Run:
    """Run SQLite's own scan of the columns that are read for `need`: the floor of any reader."""
    tool = shutil.which("sqlite3")
    if tool is None:
        pytest.skip("no sqlite3 command line: it is the floor that the figures are ratios to")
    return run([tool, "-readonly", report], scan_sql(report, need))


def scan_sql(report: Path, need: frozenset[Group]) -> str:
    """Write the SQL that steps over every needed column in C and sums it, a statement a table."""
    database = sqlite3.connect(f"file:{report}?mode=ro", uri=True)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    catalog = {
        table: [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')] for table in tables
    }
    database.close()
    statements = []
    for source in plan_sources(catalog, need, has_row_id=True):
        columns = dict.fromkeys(source.columns.items())
        sums = [
            f'total(length("{theirs}"))' if ours in TEXT else f'total("{theirs}")' for ours, theirs in columns
        ]
        statements.append(f'SELECT {", ".join(sums)} FROM "{source.name}";')
    return "\n".join(statements)
