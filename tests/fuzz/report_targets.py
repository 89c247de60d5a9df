"""Targets whose inputs are reports: changed rows, changed pages, exported folders, and parts."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import polars as pl

import nsys_pp
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.part import FACTS_MEMBER, FRAMES_MEMBER
from nsys_pp.read import read_report
from nsys_pp.read.sqlite import CompiledConnection, Connection, PlainConnection, find_library
from tests.fuzz import seeds
from tests.fuzz.choices import Choices
from tests.fuzz.promise import Work
from tests.fuzz.values import change_bytes, pick_value

_MOST_CHANGES = 6
_COLUMN_TYPES: tuple[Any, ...] = (
    *(pl.String, pl.Float64, pl.Int8, pl.UInt64, pl.Boolean, pl.Binary, pl.Null, pl.Categorical, pl.Date),
    *(pl.List(pl.Int64), pl.Datetime("ns"), pl.Int128, pl.Decimal(20, 3)),
)


def write_changed_rows(choices: Choices, folder: Path) -> None:
    """Write a report with changed cells, rows, columns and tables, and the report of another rank as it is."""
    first, second = seeds.read_seed(choices.below(seeds.COUNT))
    path = folder / "rank0.sqlite"
    path.write_bytes(first)
    (folder / "rank1.sqlite").write_bytes(second)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for _ in range(1 + choices.below(_MOST_CHANGES)):
            with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                _change_table(connection, choices)
        connection.execute("COMMIT")


def _change_table(connection: sqlite3.Connection, choices: Choices) -> None:
    table = choices.pick(seeds.list_tables(connection))
    info = list(connection.execute(f'SELECT name FROM pragma_table_info("{table}")'))
    columns = [str(name).replace('"', '""') for (name,) in info]
    column, other = choices.pick(columns), choices.pick(columns)
    row = 1 + choices.below(seeds._MOST_ROWS)
    kind = choices.below(12)
    if kind <= 2:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', [pick_value(choices), row])
    elif kind == 3:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ?', [pick_value(choices)])
    elif kind == 4:
        connection.execute(f'UPDATE "{table}" SET "{column}" = "{other}", "{other}" = "{column}"')
    elif kind == 5:
        step = choices.pick([1, -1, 10**9, 2**40, 2**62, -(2**62)])
        connection.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + ? WHERE rowid >= ?', [step, row])
    elif kind == 6:
        connection.execute(f'DELETE FROM "{table}" WHERE rowid >= ?', [row])
    elif kind == 7:
        names = ", ".join(f'"{name}"' for name in columns)
        connection.execute(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM "{table}" LIMIT ?', [row])
    elif kind == 8:
        connection.execute(f'DROP TABLE "{table}"')
    elif kind == 9:
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif kind == 10:
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{other}x"')
    else:
        connection.execute(
            f'ALTER TABLE "{table}" RENAME TO "{choices.pick(["x", "StringIds", "PROCESSES"])}"'
        )


def write_changed_pages(choices: Choices, folder: Path) -> None:
    """Write a report with changed bytes and pages."""
    data = seeds.read_seed(choices.below(seeds.COUNT))[0]
    (folder / "rank0.sqlite").write_bytes(change_bytes(data, choices))


def write_changed_folder(choices: Choices, folder: Path) -> None:
    """Write an exported folder, Parquet or Arrow, with columns of other types or changed bytes."""
    tables = dict(seeds.read_tables(choices.below(seeds.COUNT)))
    suffix = choices.pick(["parquet", "arrow", "stream"])
    export = folder / "rank0_exported"
    export.mkdir()
    for _ in range(choices.below(4)):
        name = choices.pick(sorted(tables))
        tables[name] = _change_frame(tables[name], choices)
    for name, frame in tables.items():
        path = export / f"{name}.{'parquet' if suffix == 'parquet' else 'arrow'}"
        with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
            if suffix == "parquet":
                frame.write_parquet(path)
            elif suffix == "arrow":
                frame.write_ipc(path)
            else:
                frame.write_ipc_stream(path)
    if choices.below(2):
        path = choices.pick(sorted(export.iterdir()))
        path.write_bytes(change_bytes(path.read_bytes(), choices, block=64, most=6))


def _change_frame(frame: pl.DataFrame, choices: Choices) -> pl.DataFrame:
    if not frame.width:
        return frame
    column = choices.pick(frame.columns)
    kind = choices.below(5)
    try:
        if kind == 0:
            return frame.drop(column)
        if kind == 1:
            return frame.with_columns(pl.lit(pick_value(choices)).alias(column))
        if kind == 2:
            return frame.with_columns(pl.lit(None, choices.pick(_COLUMN_TYPES)).alias(column))
        if kind == 3:
            return frame.with_columns(pl.col(column).cast(choices.pick(_COLUMN_TYPES), strict=False))
        return frame.clear() if choices.below(2) else pl.concat([frame, frame])
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError):
        return frame


def write_changed_part(choices: Choices, folder: Path, number: int | None = None) -> None:
    """Write a part with changed bytes, or with changed facts, frames or blocks in a sound archive."""
    data = seeds.read_part(choices.below(seeds.COUNT) if number is None else number)
    path = folder / "rank0.nspart"
    if choices.below(3) == 0:
        path.write_bytes(change_bytes(data, choices, block=64))
        return
    sound = folder / "sound.zip"
    sound.write_bytes(data)
    with ZipFile(sound) as archive, ZipFile(path, "w", ZIP_STORED) as changed:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        facts = json.loads(members[FACTS_MEMBER])
        kind = choices.below(4)
        if kind == 0:
            change_json(facts, choices)
        elif kind == 3:
            name = choices.pick(sorted(members.keys() - {FACTS_MEMBER, FRAMES_MEMBER}))
            members[name] = change_bytes(members[name], choices, block=64)
        else:
            members[FRAMES_MEMBER] = _change_packed(members[FRAMES_MEMBER], facts["frame_bytes"], choices)
        members[FACTS_MEMBER] = json.dumps(facts).encode()
        for info in archive.infolist():
            changed.writestr(info.filename, members[info.filename], info.compress_type)
    sound.unlink()


def write_changed_part_of_two(choices: Choices, folder: Path) -> None:
    """Write a changed part, and one of another report as it is."""
    number = choices.below(seeds.COUNT)
    (folder / "other.nspart").write_bytes(seeds.read_part(number, rank=1))
    write_changed_part(choices, folder, number)


def change_json(facts: Any, choices: Choices) -> None:
    """Change a value at any depth."""
    inner: Any = facts
    for _ in range(1 + choices.below(4)):
        keys: list[Any] = sorted(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            return
        key = choices.pick(keys)
        if isinstance(inner[key], dict | list) and choices.below(4):
            inner = inner[key]
            continue
        kind = choices.below(8)
        if kind == 0:
            del inner[key]
        else:
            value = pick_value(choices)
            odd: list[Any] = [
                value if not isinstance(value, bytes) else str(value),
                {},
                [],
                [[]],
                {"x": value},
            ]
            inner[key] = odd[min(max(kind - 3, 0), 3)]
        return


def _change_packed(data: bytes, sizes: dict[str, int], choices: Choices) -> bytes:
    """Change the bytes of one frame, unpacked or packed."""
    frames, at = {}, 0
    for name, size in sizes.items():
        frames[name], at = data[at : at + size], at + size
    name = choices.pick(sorted(frames))
    if choices.below(6):
        frames[name] = zlib.compress(change_bytes(zlib.decompress(frames[name]), choices, block=16))
    else:
        frames[name] = change_bytes(frames[name], choices, block=16)
    sizes.update({name: len(frame) for name, frame in frames.items()})
    return b"".join(frames.values())


def scrub_all(source: Path, output: Path) -> None:
    """Copy each report with pseudonyms; the numbers of rows are equal."""
    for path in sorted(source.iterdir()):
        copy = output / path.name
        nsys_pp.scrub(path, copy, hosts=True, users=True, paths=True)
        if read_report(path, threads=1).recorded != read_report(copy, threads=1).recorded:
            raise AssertionError("the copy has other numbers of rows")


def read_both_ways(source: Path, output: Path) -> None:
    """Read all columns of all tables by the compiled function and by Python's module: equal values, or refused by both."""
    path, library = source / "rank0.sqlite", find_library()
    uri, size = f"file:{path}?mode=ro", path.stat().st_size
    assert library is not None
    connections = CompiledConnection(uri, size, library), PlainConnection(uri, size)
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                quoted = '"' + table.replace('"', '""') + '"'
                names = [
                    row[1].replace('"', '""') for row in connection.execute(f"PRAGMA table_info({quoted})")
                ]
                columns = [f'"{name}", CAST("{name}" AS REAL), CAST("{name}" AS TEXT)' for name in names]
                _compare(connections, f"SELECT {', '.join(columns)} FROM {quoted}", "irt" * len(names))
    finally:
        for one in connections:
            one.close()
    read_report(path, threads=1)


def _compare(connections: Sequence[Connection], query: str, kinds: str) -> None:
    results: list[Any] = []
    for connection in connections:
        try:
            results.append(connection.fetch(query, kinds))
        except sqlite3.Error as error:
            results.append(str(error))
    compiled, plain = results
    if isinstance(compiled, str) or isinstance(plain, str):
        if compiled != plain:
            raise AssertionError(f"{compiled} is not {plain}")
    elif compiled.is_odd != plain.is_odd:
        raise AssertionError(f"{query}: {compiled.is_odd} {plain.is_odd}")
    else:
        for kind, ours, theirs in zip(kinds, compiled.columns, plain.columns, strict=True):
            if (kind != "i" or not plain.is_odd) and not ours.equals(theirs, null_equal=True):
                raise AssertionError(f"{query}: {ours} is not {theirs}")


def read_once(source: Path, output: Path) -> None:
    """Read the report."""
    (path,) = source.iterdir()
    read_report(path, threads=1)


def merge(source: Path, output: Path, *, name: str = "run.pftrace", **options: Any) -> None:
    nsys_pp.merge(source, output / name, **options)


def merge_kept(source: Path, output: Path) -> None:
    """Merge what can be merged: there is always a result, since one input is sound."""
    try:
        merge(source, output, keep_going=True)
    except NsysPPError as error:
        raise AssertionError(f"{error.message}\n{error}") from error


def pipeline(source: Path, output: Path) -> None:
    nsys_pp.pipeline(source).tables()


def summarise(source: Path, output: Path) -> None:
    nsys_pp.summarise(source)


def project(source: Path, output: Path) -> None:
    nsys_pp.project(source, ops="all", scope="process")


def info(source: Path, output: Path) -> None:
    nsys_pp.info(source)


def align(source: Path, output: Path) -> None:
    nsys_pp.align(source)


def extract(source: Path, output: Path) -> None:
    nsys_pp.extract(source / "rank0.sqlite", output / "rank0.nspart")


def chart(source: Path, output: Path) -> None:
    nsys_pp.chart(source, output / "run.html")


def _named(work: Callable[..., object], title: str, /, **options: Any) -> Work:
    bound = partial(work, **options)
    bound.__name__ = title  # type: ignore[attr-defined]
    return bound


WHOLE: tuple[Work, ...] = (
    merge,
    _named(merge, "merge_cpu", detail="cpu", flows=True),
    _named(merge, "merge_json", name="run.json", detail="kernels"),
    pipeline,
    summarise,
    project,
    info,
    align,
    extract,
    chart,
)
OF_PARTS: tuple[Work, ...] = (merge, pipeline, summarise, align, chart)
