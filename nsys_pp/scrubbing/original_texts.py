"""Texts of a report, in its tables and definitions: a copy is checked to lack most of them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from nsys_pp.read.arrow import is_table_directory
from nsys_pp.read.names import ENVIRONMENT_ROWS, FACT_TABLES, USER_ROWS
from nsys_pp.read.sqlite_file import check_database, damaged_error
from nsys_pp.scrubbing.folders import list_folder_texts, read_folder_facts
from nsys_pp.scrubbing.pseudonyms import Identities

LEAST_SECRET = 8
"""Characters of a value that is taken for a secret; shorter ones occur by chance."""

_TELLING = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY|CREDENTIAL", re.IGNORECASE)
_USER_VARIABLES = re.compile(r"^(?:USER|LOGNAME|USERNAME|SUDO_USER)$")
_HOME = re.compile(r"(?:^|[\s=:\"';,])/(?:home|Users)/([^/\s\"';:,\0]{2,40})")
_SYSTEM_USERS = {"root", "user", "users", "shared", "runner"}
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def list_texts(path: Path) -> set[bytes]:
    """List the distinct texts and blobs of all tables of a report, and its definitions in SQLite.

    Raises:
        ReportError: It cannot be read to its end.
    """
    if is_table_directory(path):
        return list_folder_texts(path)
    texts: set[bytes] = set()
    try:
        with _open(path) as connection:
            for (sql,) in connection.execute(
                "SELECT CAST(sql AS BLOB) FROM sqlite_master WHERE sql IS NOT NULL"
            ):
                texts.add(sql)
            for table, columns in _list_columns(connection):
                for column in columns:
                    texts.update(_read_column(connection, table, column))
    except sqlite3.Error:
        raise damaged_error(path) from None
    texts.discard(b"")
    return texts


def find_people(path: Path) -> Identities:
    """Find user names and secrets in the environment that a report holds.

    Raises:
        ReportError: It cannot be read.
    """
    users: set[str] = set()
    secrets: set[str] = set()
    for name, value in read_folder_facts(path) if is_table_directory(path) else _read_database_facts(path):
        if name in USER_ROWS:
            users.add(value)
        users.update(match[1] for match in _HOME.finditer(value))
        if name not in ENVIRONMENT_ROWS:
            continue
        for variable, content in split_variables(value, is_block=ENVIRONMENT_ROWS[name] == "block"):
            if _USER_VARIABLES.match(variable):
                users.add(content)
            if _TELLING.search(variable) and len(content) >= LEAST_SECRET:
                secrets.add(content)
    users = {user for user in users if len(user) > 1 and user.lower() not in _SYSTEM_USERS}
    return Identities(users=frozenset(users), secrets=frozenset(secrets))


def split_variables(value: str, *, is_block: bool) -> Iterator[tuple[str, str]]:
    """Split the environment into names and values without quotes.

    >>> list(split_variables('A=1;B="x"', is_block=True))
    [('A', '1'), ('B', 'x')]
    """
    for entry in value.split(";") if is_block else [value]:
        if match := _VARIABLE.fullmatch(entry):
            yield match[1], match[2].strip('"')


def _open(path: Path) -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(check_database(path), uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return closing(connection)


def _list_columns(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    """List the stored columns of the real tables: programs in a file are not run."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    names = [name for (name,) in connection.execute(query).fetchall()]
    return [
        (name, [row[1] for row in connection.execute(f"PRAGMA table_xinfo({_quote(name)})") if row[6] == 0])
        for name in names
    ]


def _read_column(connection: sqlite3.Connection, table: str, column: str) -> Iterable[bytes]:
    name = _quote(column)
    query = (
        f"SELECT DISTINCT CAST({name} AS BLOB) FROM {_quote(table)} WHERE typeof({name}) IN ('text', 'blob')"
    )
    return (value for (value,) in connection.execute(query))


def _read_database_facts(path: Path) -> list[tuple[str, str]]:
    try:
        with _open(path) as connection:
            return list(_read_facts(connection))
    except sqlite3.Error:
        raise damaged_error(path) from None


def _read_facts(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for table, columns in _list_columns(connection):
        if table in FACT_TABLES and {"name", "value"} <= set(columns):
            query = f"SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM {_quote(table)}"
            yield from (row for row in connection.execute(query) if None not in row)


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
