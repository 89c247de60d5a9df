"""Writer of baselines (`nsys_pp.frames.baseline`) to a folder or a SQLite file, for many writers at once.

New files and folders are readable by their owner alone. In a folder, a file appears complete and never replaces another
one: it is linked to the first free number. A SQLite file is written in one transaction, which waits for other writers.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import msgspec

from nsys_pp.arrays.packed_frames import pack_frame
from nsys_pp.errors import BaselineError, OutputError
from nsys_pp.frames.aggregates import SAMPLE, SAMPLED, RunSums
from nsys_pp.frames.baseline import (
    FACTS_MEMBER,
    FORMAT,
    FRAMES_MEMBER,
    TABLE,
    BaselineRecord,
    file_name,
    is_sqlite_store,
    parse_file_name,
)
from nsys_pp.frames.conform import conform
from nsys_pp.leftovers import make_temporary_file
from nsys_pp.write.deflate import deflate, measure_deflated
from nsys_pp.write.files import sync_file, translate_errors

_WAIT_S = 60
_CREATE = f"CREATE TABLE IF NOT EXISTS {TABLE} (name TEXT NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (name, number))"
_UNLINKED = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}  # file systems without links


def encode_baseline(sums: RunSums, *, tagged_at: str) -> bytes:
    """Encode the content of a baseline; equal for equal arguments.

    Args:
        sums: Sums of the run.
        tagged_at: Time, as in `BaselineRecord`.
    """
    frames = {
        name: deflate(pack_frame(conform(sums.samples[name], SAMPLE), SAMPLE, measure=measure_deflated))
        for name in SAMPLED
    }
    record = BaselineRecord(
        format=FORMAT,
        tagged_at=tagged_at,
        facts=sums.facts,
        frame_bytes={name: len(data) for name, data in frames.items()},
    )
    stream = BytesIO()
    with ZipFile(stream, "w") as archive:
        for name, data, how in (
            (FACTS_MEMBER, msgspec.json.encode(record), ZIP_DEFLATED),
            (FRAMES_MEMBER, b"".join(frames.values()), ZIP_STORED),
        ):
            info = ZipInfo(name)
            info.external_attr = 0o600 << 16
            info.compress_type = how
            archive.writestr(info, data)
    return stream.getvalue()


def add_baseline(store: Path, name: str, content: bytes, *, keep: int | None = None) -> tuple[int, list[int]]:
    """Add a baseline under the next number of its name.

    Args:
        store: A folder, or a SQLite file; it is made if missing.
        name: Name of the baseline.
        content: Its content.
        keep: Number of baselines of this name to keep, the newest ones; None: all.

    Returns:
        Its number, and the numbers of removed ones.

    Raises:
        OutputError: The store cannot be written.
        BaselineError: The SQLite file is none.
    """
    if is_sqlite_store(store):
        with _open(store, create=True) as connection:
            connection.execute(_CREATE)
            row = connection.execute(f"SELECT max(number) FROM {TABLE} WHERE name = ?", (name,)).fetchone()
            number = (row[0] or 0) + 1
            connection.execute(f"INSERT INTO {TABLE} VALUES (?, ?, ?)", (name, number, content))
            known = [
                value
                for (value,) in connection.execute(f"SELECT number FROM {TABLE} WHERE name = ?", (name,))
            ]
            old = _choose_old(known, keep)
            connection.executemany(
                f"DELETE FROM {TABLE} WHERE name = ? AND number = ?", [(name, value) for value in old]
            )
        return number, old
    number = _add_file(store, name, content)
    old = _choose_old(_numbers(store, name), keep)
    for value in old:
        with suppress(FileNotFoundError):
            (store / file_name(name, value)).unlink()
    return number, old


def remove_baselines(store: Path, keys: Collection[tuple[str, int]]) -> None:
    """Remove baselines by name and number; absent ones are ignored.

    Raises:
        OutputError: The store cannot be written.
        BaselineError: The SQLite file is none.
    """
    if is_sqlite_store(store):
        with _open(store, create=False) as connection:
            connection.executemany(f"DELETE FROM {TABLE} WHERE name = ? AND number = ?", list(keys))
        return
    with translate_errors(store):
        for name, number in keys:
            with suppress(FileNotFoundError):
                (store / file_name(name, number)).unlink()


def _add_file(store: Path, name: str, content: bytes) -> int:
    if store.exists() and not store.is_dir():
        raise OutputError(
            f"cannot write baselines to `{store}`: it is a file",
            "name a folder or a .sqlite file with `--baselines`",
        )
    with translate_errors(store):
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = make_temporary_file(store / file_name(name, 0))
        try:
            new.write_bytes(content)
            sync_file(new)
            while True:
                number = max(_numbers(store, name), default=0) + 1
                with suppress(FileExistsError):
                    _link(new, store / file_name(name, number))
                    return number
        finally:
            with suppress(FileNotFoundError):
                new.unlink()


def _link(new: Path, path: Path) -> None:
    """Link a complete file to its name, unless another writer has it.

    Raises:
        FileExistsError: Another writer has it.
    """
    try:
        os.link(new, path)
    except OSError as error:
        if error.errno not in _UNLINKED:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # takes the name
        os.replace(new, path)


def _numbers(store: Path, name: str) -> list[int]:
    keys = [parse_file_name(entry.name) for entry in store.iterdir()]
    return [key[1] for key in keys if key is not None and key[0] == name]


def _choose_old(numbers: list[int], keep: int | None) -> list[int]:
    return [] if keep is None else sorted(numbers)[: max(len(numbers) - keep, 0)]


@contextmanager
def _open(store: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file in a transaction, which is committed when the block succeeds."""
    with translate_errors(store):
        if create and not store.exists():
            with suppress(FileExistsError):  # another writer makes it
                os.close(os.open(store, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(store, timeout=_WAIT_S, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN IMMEDIATE")
            _check_objects(connection, store)
            yield connection
            connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise OutputError(f"cannot write `{store}`: {error}", "name another with `--baselines`") from None
    except (sqlite3.Error, OverflowError) as error:
        raise BaselineError(
            f"cannot write `{store}`: {error}", "name a SQLite file of nsys-pp with `--baselines`"
        ) from None


def _check_objects(connection: sqlite3.Connection, store: Path) -> None:
    """Refuse a table of another kind, and triggers on it, which would run on writing."""
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = ? OR name = ?", (TABLE, TABLE)
    )
    for kind, _, sql in rows.fetchall():
        is_index = kind == "index" and sql is None  # of the primary key
        if not is_index and (kind != "table" or not str(sql).startswith(f"CREATE TABLE {TABLE}")):
            raise BaselineError(
                f"`{store}` has another `{TABLE}` than nsys-pp makes",
                "name another with `--baselines`",
            )
