"""Reader of baselines (`nsys_pp.frames.baseline`), from a folder or a SQLite file; the inverse of `nsys_pp.write.baselines`.

A store can come from anywhere, so contents have limits, and a SQLite file may run nothing: views and virtual tables are refused,
and a query that takes too many steps ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import msgspec
import polars as pl

from nsys_pp.arrays.packed_frames import unpack_frame
from nsys_pp.errors import BaselineError, ReportError
from nsys_pp.frames.aggregates import SAMPLE, SAMPLED, RunSums
from nsys_pp.frames.baseline import (
    FACTS_MEMBER,
    FORMAT,
    MOST_BYTES,
    TABLE,
    Baseline,
    BaselineRecord,
    is_sqlite_store,
    parse_file_name,
    split_reference,
)
from nsys_pp.read.frame_archives import DAMAGES, read_packed_frames, unpack_bytes
from nsys_pp.read.unreadable import check_regular, unreadable_error

_TAG_AGAIN = "tag it again with `nsys-pp baseline tag`"
_MOST_FRAME_BYTES = 1 << 28
_STEPS, _MOST_CALLS = 1_000_000, 2_000  # of SQLite's machine: seconds
_DAMAGES = (
    *DAMAGES,
    IndexError,
    OverflowError,
    MemoryError,
    RuntimeError,  # zipfile raises it for an encrypted member
)


def list_baselines(store: Path, *, version: str) -> list[Baseline]:
    """List the baselines of a store, by time; without their samples.

    Args:
        store: A folder, or a SQLite file.
        version: Version of nsys-pp, for messages.

    Raises:
        BaselineError: The store does not exist, or a baseline in it cannot be read.
    """
    found = [
        _decode(content, name, number, where=f"`{store}`", version=version, with_samples=False)
        for name, number, content in _iterate(store, None)
    ]
    return sorted(found, key=lambda baseline: (baseline.tagged_at, baseline.name, baseline.number))


def read_baseline(store: Path, reference: str, *, version: str) -> Baseline:
    """Read a baseline with its samples.

    Args:
        store: A folder, or a SQLite file.
        reference: `NAME` for the newest one of that name, or `NAME@NUMBER`.
        version: Version of nsys-pp, for messages.

    Raises:
        BaselineError: The reference is invalid, or the store has no such baseline, or it cannot be read.
    """
    name, number = parse_reference(reference)
    known = list_numbers(store)
    if number is None:
        number = max((of_name for other, of_name in known if other == name), default=None)
    if number is None or (name, number) not in known:
        names = sorted({other for other, _ in known})
        listed = ", ".join(f"`{other}`" for other in names[:8]) or "none"
        raise BaselineError(f"`{store}` has no baseline `{reference}`", f"it has: {listed}")
    for _, _, content in _iterate(store, (name, number)):
        return _decode(content, name, number, where=f"`{store}`", version=version, with_samples=True)
    raise BaselineError(f"`{store}` has no baseline `{reference}` any more", _TAG_AGAIN)


def parse_reference(text: str) -> tuple[str, int | None]:
    """Return name and number of a baseline; None: the newest one.

    Raises:
        BaselineError: The text is no reference.
    """
    reference = split_reference(text)
    if reference is None:
        raise BaselineError(
            f"invalid name of a baseline `{text[:120]}`; expected letters, digits, `.`, `_`, `+` and `-`, and optionally"
            " `@NUMBER`",
            "examples: `main`, `v2.1`, `main@3`",
        )
    return reference


def list_numbers(store: Path) -> set[tuple[str, int]]:
    """List name and number of the baselines of a store.

    Raises:
        BaselineError: The store does not exist, or cannot be read.
    """
    if is_sqlite_store(store):
        with _open(store) as connection:
            return {
                (str(name), int(number))
                for name, number in connection.execute(f"SELECT name, number FROM {TABLE}")
                if _is_valid(name, number)
            }
    return set(_list_files(store))


def _iterate(store: Path, wanted: tuple[str, int] | None) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, number and content of the wanted baseline; of all if None."""
    if is_sqlite_store(store):
        yield from _iterate_rows(store, wanted)
        return
    for (name, number), path in sorted(_list_files(store).items()):
        if wanted in (None, (name, number)):
            yield name, number, _read_file(path)


def _list_files(store: Path) -> dict[tuple[str, int], Path]:
    """List the files of a folder by name and number."""
    if not store.is_dir():
        problem = "is no folder" if store.exists() else "does not exist"
        raise BaselineError(
            f"the folder of baselines `{store}` {problem}",
            "name a folder or a .sqlite file with `--baselines`; `nsys-pp baseline tag` makes it",
        )
    try:
        paths = [(parse_file_name(path.name), path) for path in store.iterdir()]
    except OSError as error:
        raise BaselineError(
            f"cannot read `{store}`: {error.strerror}", "name another folder with `--baselines`"
        ) from None
    return {key: path for key, path in paths if key is not None}


def _read_file(path: Path) -> bytes:
    try:
        check_regular(path)
        if path.stat().st_size > MOST_BYTES:
            raise _damaged(f"`{path}`")
        return path.read_bytes()
    except OSError as error:
        reason = unreadable_error(path, error)
        raise BaselineError(reason.message, reason.hint) from None
    except ReportError as error:
        raise BaselineError(error.message, error.hint) from None


def _iterate_rows(store: Path, wanted: tuple[str, int] | None) -> Iterator[tuple[str, int, bytes]]:
    with _open(store) as connection:
        condition = "" if wanted is None else "WHERE name = ? AND number = ?"
        keys = connection.execute(
            f"SELECT name, number, length(content) FROM {TABLE} {condition} ORDER BY name, number",
            wanted or (),
        ).fetchall()
        for name, number, size in keys:
            if not _is_valid(name, number):
                continue
            if not isinstance(size, int) or size > MOST_BYTES:
                raise _damaged(f"`{store}`: baseline `{name}@{number}`")
            row = connection.execute(
                f"SELECT content FROM {TABLE} WHERE name = ? AND number = ?", (name, number)
            ).fetchone()
            if row is None:
                continue
            if not isinstance(row[0], bytes):
                raise _damaged(f"`{store}`: baseline `{name}@{number}`")
            yield name, number, row[0]


@contextmanager
def _open(store: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file read-only; convert all errors of reading."""
    if not store.exists():
        raise BaselineError(
            f"the file of baselines `{store}` does not exist", "`nsys-pp baseline tag` makes it"
        )
    try:
        check_regular(store)
        uri = f"{store.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
            calls = iter(range(_MOST_CALLS))
            connection.set_progress_handler(lambda: next(calls, None) is None, _STEPS)
            connection.execute("PRAGMA trusted_schema = OFF")
            _check_table(connection, store)
            yield connection
    except ReportError as error:
        raise BaselineError(error.message, error.hint) from None
    except (sqlite3.Error, OverflowError, UnicodeError, OSError) as error:
        raise BaselineError(f"cannot read the baselines of `{store}`: {error}", _TAG_AGAIN) from None


def _check_table(connection: sqlite3.Connection, store: Path) -> None:
    row = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (TABLE,)).fetchone()
    if row is None:
        raise BaselineError(
            f"`{store}` is a SQLite file without baselines", "name another with `--baselines`"
        )
    kind, sql = row
    if kind != "table" or not str(sql).upper().startswith("CREATE TABLE"):
        raise _damaged(f"`{store}`")


def _decode(
    content: bytes, name: str, number: int, *, where: str, version: str, with_samples: bool
) -> Baseline:
    """Decode a content; `where` names its store in messages."""
    where = f"{where}: baseline `{name}@{number}`"
    try:
        with ZipFile(BytesIO(content)) as archive:
            record = _read_record(archive, where, version)
            samples = _read_samples(archive, record) if with_samples else {}
    except _DAMAGES as error:
        raise _damaged(where) from error
    return Baseline(
        name=name,
        number=number,
        tagged_at=record.tagged_at,
        sums=RunSums(facts=record.facts, samples=samples),
    )


def _read_record(archive: ZipFile, where: str, version: str) -> BaselineRecord:
    if archive.getinfo(FACTS_MEMBER).file_size > MOST_BYTES:
        raise ValueError("the facts are too long")
    values = msgspec.json.decode(archive.read(FACTS_MEMBER))
    if not isinstance(values["format"], int):
        raise ValueError("the format is no number")
    if values["format"] != FORMAT:
        age = "a newer" if values["format"] > FORMAT else "an older"
        hint = "update nsys-pp" if values["format"] > FORMAT else _TAG_AGAIN
        raise BaselineError(
            f"{where} has format {values['format']}, of {age} nsys-pp; this is {version}, which reads format {FORMAT}",
            hint,
        )
    return msgspec.convert(values, BaselineRecord)


def _read_samples(archive: ZipFile, record: BaselineRecord) -> dict[str, pl.DataFrame]:
    if record.frame_bytes.keys() != {*SAMPLED}:
        raise ValueError("the frames differ from their list")
    return {
        name: unpack_frame(unpack_bytes(packed, most_bytes=_MOST_FRAME_BYTES), SAMPLE)
        for name, packed in read_packed_frames(archive, record.frame_bytes).items()
    }


def _is_valid(name: object, number: object) -> bool:
    if not isinstance(name, str) or not isinstance(number, int) or number < 0:
        return False
    reference = split_reference(name)
    return reference is not None and reference[1] is None


def _damaged(where: str) -> BaselineError:
    return BaselineError(f"{where} is damaged, or no baseline of nsys-pp", _TAG_AGAIN)
