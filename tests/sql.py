"""Reads and changes reports with statements of SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any


def select(report: Path, query: str, *values: object) -> list[Any]:
    """List the rows that a query finds; the report is not written."""
    with closing(sqlite3.connect(f"{report.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()


def dump(report: Path) -> list[str]:
    with closing(sqlite3.connect(report)) as connection:
        return list(connection.iterdump())


def edit(report: Path, *statements: str, **values: object) -> Path:
    """Run statements, in which `:name` stands for a value, and return the report."""
    with closing(sqlite3.connect(report)) as connection, connection:
        for statement in statements:
            connection.execute(statement, values)
    return report


def add_rows(report: Path, table: str, rows: Iterable[Sequence[object]]) -> None:
    """Append rows to a table: a value for each of its columns."""
    with closing(sqlite3.connect(report)) as connection, connection:
        for row in rows:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
