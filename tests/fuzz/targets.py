"""What is fuzzed: inputs (reports, parts, options) with changes, what is done with them, and what it has to keep."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import click
import polars as pl
from click.testing import CliRunner

import nsys_pp
from nsys_pp import options
from nsys_pp.arrays.packed_frames import pack_frame, unpack_frames
from nsys_pp.cli import main
from nsys_pp.commands.pipeline import _count_flops
from nsys_pp.errors import NsysPPError, UnforeseenError
from nsys_pp.frames.part import (
    BLOCKS_MEMBER,
    FACTS_MEMBER,
    FRAMES_MEMBER,
    PART_FRAMES,
    Encoded,
    EncodedSubtrack,
)
from nsys_pp.output.perfetto.trace import check_blocks
from nsys_pp.read import check_part_blocks, read_part, read_report
from nsys_pp.read.sqlite import CompiledConnection, PlainConnection, find_library
from nsys_pp.run.options import (
    parse_counted_ops,
    parse_patterns,
    parse_rank_from,
    parse_run_layout,
    parse_steps,
)
from nsys_pp.tables.compare import parse_gate
from nsys_pp.training import names as presets
from nsys_pp.training.names import load_preset, parse_job_rule, parse_step_rule
from tests.fuzz.values import (
    COUNT,
    MOST_ROWS,
    NUMBERS,
    TEXTS,
    Choices,
    change_bytes,
    list_tables,
    pick_value,
    read_seed,
    read_seed_part,
    read_tables,
)
from tests.read.test_sqlite import assert_equal_rows, fetch
from tests.unpacking import read_folder

_MOST_CHANGES = 6


_COLUMN_TYPES: tuple[Any, ...] = (
    *(pl.String, pl.Float64, pl.Int8, pl.UInt64, pl.Boolean, pl.Binary, pl.Null, pl.Categorical, pl.Date),
    *(pl.List(pl.Int64), pl.Datetime("ns"), pl.Int128, pl.Decimal(20, 3)),
    pl.Struct({"a": pl.Int64}),
)


def write_changed_rows(choices: Choices, folder: Path) -> None:
    """Write a report with changed cells, rows, columns and tables, and the report of another rank as it is."""
    first, second = read_seed(choices.below(COUNT))
    path = folder / "rank0.sqlite"
    path.write_bytes(first)
    (folder / "rank1.sqlite").write_bytes(second)
    _change(path, _change_table, choices)


def _change(path: Path, change: Callable[[sqlite3.Connection, Choices], None], choices: Choices) -> None:
    """Change a report a few times; what SQLite refuses is no change."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)  # here no program runs either
        connection.execute("BEGIN")
        for _ in range(1 + choices.below(_MOST_CHANGES)):
            with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                change(connection, choices)
        connection.execute("COMMIT")


_STEPS = (1, -1, 10**9, 2**40, 2**62, -(2**62))


def _change_table(connection: sqlite3.Connection, choices: Choices) -> None:
    table = choices.pick(list_tables(connection))
    info = list(connection.execute(f'SELECT name FROM pragma_table_info("{table}")'))
    columns = [str(name).replace('"', '""') for (name,) in info]
    column, other = choices.pick(columns), choices.pick(columns)
    row, value, step = 1 + choices.below(MOST_ROWS), pick_value(choices), choices.pick(_STEPS)
    names = ", ".join(f'"{name}"' for name in columns)
    cell: tuple[str, list[Any]] = (f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', [value, row])
    change, values = choices.pick(
        [
            *[cell] * 3,
            (f'UPDATE "{table}" SET "{column}" = ?', [value]),
            (f'UPDATE "{table}" SET "{column}" = "{other}", "{other}" = "{column}"', []),
            (f'UPDATE "{table}" SET "{column}" = "{column}" + ? WHERE rowid >= ?', [step, row]),
            (f'DELETE FROM "{table}" WHERE rowid >= ?', [row]),
            (f'INSERT INTO "{table}" ({names}) SELECT {names} FROM "{table}" LIMIT ?', [row]),
            (f'DROP TABLE "{table}"', []),
            (f'ALTER TABLE "{table}" DROP COLUMN "{column}"', []),
            (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{other}x"', []),
            (f'ALTER TABLE "{table}" RENAME TO "{choices.pick(["x", "StringIds", "PROCESSES"])}"', []),
        ]
    )
    connection.execute(change, values)


_TYPES = ("", "TEXT", "REAL", "NUMERIC", "BLOB", "INTEGER", "ANY", "INT64 UNSIGNED", "DATETIME")
# Programs that would make gigabytes, or never end.
_COSTLY = (
    "hex(zeroblob(400000000))",
    "replace(hex(zeroblob(100000000)), '0', 'abcdefgh')",
    "length(randomblob(900000000))",
)


def write_odd_schema(choices: Choices, folder: Path) -> None:
    """Write a well-formed report whose tables are defined in odd ways, with values of other types than their columns say."""
    path = folder / "rank0.sqlite"
    path.write_bytes(read_seed(choices.below(COUNT))[0])
    _change(path, _define_oddly, choices)


def _define_oddly(connection: sqlite3.Connection, choices: Choices) -> None:
    table = choices.pick([*_READ.values(), *list_tables(connection)])
    info = list(connection.execute(f'SELECT name, type FROM pragma_table_info("{table}")'))
    names = [str(name).replace('"', '""') for name, _ in info]
    column, costly = choices.pick(names), choices.pick(_COSTLY)
    declared, default = choices.pick(_TYPES), choices.pick(["7", f"'{'n' * 500_000}'"])
    added = f'ALTER TABLE "{table}" ADD COLUMN "{choices.pick(TEXTS)[:60]}" {declared} DEFAULT {default}'
    odd = [
        [
            f'ALTER TABLE "{table}" RENAME TO "x{table}"',
            f'CREATE VIEW "{table}" AS SELECT *, {costly} AS costly FROM "x{table}"',
        ],
        [added],
        [f'ALTER TABLE "{table}" ADD COLUMN costly AS ({costly})'],
        [f'CREATE INDEX "i{table}" ON "{table}"("{column}") WHERE "{column}" IS NOT NULL'],
        [  # an index that could not be made is written to the catalog
            f'CREATE INDEX "e{table}" ON "{table}"(length("{column}"))',
            "PRAGMA writable_schema = ON",
            f"""UPDATE sqlite_master SET sql = replace(sql, 'length("{column}")', '{costly.replace("'", "''")}')""",
        ],
        [f'CREATE TRIGGER "t{table}" INSERT ON "{table}" BEGIN SELECT {costly}; END'],
    ]
    kind = choices.below(12)
    if kind in range(6, 10):
        _rebuild(connection, table, names, choices)
    elif kind < 6:
        for statement in odd[kind]:
            connection.execute(statement)
    else:
        row = 1 + choices.below(MOST_ROWS)
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', [pick_value(choices), row])


def _rebuild(connection: sqlite3.Connection, table: str, names: Sequence[str], choices: Choices) -> None:
    """Define a table anew: other types and order, a computed column, a costly constraint, STRICT or WITHOUT ROWID."""
    ordered = sorted(names, key=lambda _: choices.byte())
    computed = choices.pick(names) if choices.below(2) else None
    columns = [
        f'"{name}" AS ({choices.pick(["1", "NULL", *_COSTLY])}) {choices.pick(["STORED", "VIRTUAL"])}'
        if name == computed and choices.below(2)
        else f'"{name}" {choices.pick(_TYPES)}'
        for name in ordered
    ]
    tail = choices.pick(["", "", "STRICT", "WITHOUT ROWID"])
    if tail == "WITHOUT ROWID":
        columns.append("own_id INTEGER PRIMARY KEY")
    elif choices.below(4) == 0:
        columns.append(f"CHECK (length({choices.pick(_COSTLY)}) > 1)")
    stored = ", ".join(f'"{name}"' for name in ordered if f'"{name}" AS (' not in " ".join(columns))
    own, number = (", own_id", ", row_number() OVER ()") if tail == "WITHOUT ROWID" else ("", "")
    connection.execute(f'ALTER TABLE "{table}" RENAME TO "old{table}"')
    try:
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)}) {tail}')
        connection.execute(f'INSERT INTO "{table}" ({stored}{own}) SELECT {stored}{number} FROM "old{table}"')
        connection.execute(f'DROP TABLE "old{table}"')
    except sqlite3.Error:
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        connection.execute(f'ALTER TABLE "old{table}" RENAME TO "{table}"')
        raise


def write_changed_pages(choices: Choices, folder: Path) -> None:
    """Write a report with changed bytes and pages."""
    data = read_seed(choices.below(COUNT))[0]
    (folder / "rank0.sqlite").write_bytes(change_bytes(data, choices))


def write_changed_folder(choices: Choices, folder: Path) -> None:
    """Write an exported folder, Parquet or Arrow, with columns of other types or changed bytes."""
    tables = dict(read_tables(choices.below(COUNT)))
    write, suffix = choices.pick(
        [("write_parquet", "parquet"), ("write_ipc", "arrow"), ("write_ipc_stream", "arrow")]
    )
    export = folder / "rank0_exported"
    export.mkdir()
    for _ in range(choices.below(4)):
        name = choices.pick(sorted(tables))
        tables[name] = _change_frame(tables[name], choices)
    for name, frame in tables.items():
        with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
            getattr(frame, write)(export / f"{name}.{suffix}")
    if choices.below(2):
        path = choices.pick(sorted(export.iterdir()))
        path.write_bytes(change_bytes(path.read_bytes(), choices, block=64, most=6))


def _change_frame(frame: pl.DataFrame, choices: Choices) -> pl.DataFrame:
    column, value, dtype = (
        choices.pick([*frame.columns, ""]),
        pick_value(choices),
        choices.pick(_COLUMN_TYPES),
    )
    changes: list[Callable[[], pl.DataFrame]] = [
        lambda: frame.drop(column),
        lambda: frame.with_columns(pl.lit(value).alias(column)),
        lambda: frame.with_columns(pl.lit(None, dtype).alias(column)),
        lambda: frame.with_columns(pl.col(column).cast(dtype, strict=False)),
        lambda: choices.pick([frame.clear(), pl.DataFrame(), pl.concat([frame, frame])]),
    ]
    try:
        return choices.pick(changes)()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError):
        return frame


def write_changed_part(choices: Choices, folder: Path, number: int | None = None) -> None:
    """Write a part with changed bytes, or with changed facts, frames or blocks in a sound archive."""
    data = read_seed_part(choices.below(COUNT) if number is None else number)
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
    number = choices.below(COUNT)
    (folder / "other.nspart").write_bytes(read_seed_part(number, rank=1))
    write_changed_part(choices, folder, number)


def change_json(facts: Any, choices: Choices) -> None:
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
    """Change one frame: its bytes, unpacked or packed, or the first values of a column to nulls."""
    frames, at = {}, 0
    for name, size in sizes.items():
        frames[name], at = data[at : at + size], at + size
    name = choices.pick(sorted(frames))
    if choices.below(3) == 0:
        frame, _ = unpack_frames([zlib.decompress(frames[name])], PART_FRAMES[name])
        column, row = choices.pick(frame.columns), pl.int_range(pl.len())
        nulls = pl.when(row >= choices.pick([1, 3, len(frame)])).then(column).alias(column)
        frames[name] = zlib.compress(pack_frame(frame.with_columns(nulls), PART_FRAMES[name]))
    elif choices.below(6):
        frames[name] = zlib.compress(change_bytes(zlib.decompress(frames[name]), choices, block=16))
    else:
        frames[name] = change_bytes(frames[name], choices, block=16)
    sizes.update({name: len(frame) for name, frame in frames.items()})
    return b"".join(frames.values())


def scrub_all(source: Path, output: Path) -> None:
    """Copy each report with pseudonyms; the numbers of rows are equal, but of tables without a row that can be read."""
    for path in sorted(source.iterdir()):
        copy = output / path.name
        nsys_pp.scrub(path, copy, hosts=True, users=True, paths=True)
        raw, copied = read_report(path), read_report(copy)
        for name, count in raw.recorded.items():
            if copied.recorded.get(name) != count and not (name in raw.frames and raw[name].is_empty()):
                raise AssertionError(f"the copy has other numbers of {name}")


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
                query, kinds = f"SELECT {', '.join(columns)} FROM {quoted}", "irt" * len(names)
                compiled, plain = (fetch(one, query, kinds) for one in connections)
                assert_equal_rows(compiled, plain, kinds)
    finally:
        for one in connections:
            one.close()
    read_report(path)


# Raw frames of tables whose rows are compared.
_READ = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL",
    "calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "copies": "CUPTI_ACTIVITY_KIND_MEMCPY",
}
_NUMBERED = {"start": "start", "end": "end", "correlation": "correlationId"}


def read_like_sqlite(source: Path, output: Path) -> None:
    """Read a report: its numbers are those that plain sqlite3 gives, value by value, and no row is lost without a word."""
    path = source / "rank0.sqlite"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raw = read_report(path)
    told = " ".join(str(one.message) for one in caught)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        for frame, table in _READ.items():
            kinds = {
                name.decode(): hidden
                for name, hidden in connection.execute(
                    "SELECT c.name, c.hidden FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c"
                    " WHERE t.type = 'table' AND t.name = ?",
                    [table],
                )
            }
            stored = {ours: theirs for ours, theirs in _NUMBERED.items() if kinds.get(theirs) == 0}
            if {"start", "end"} - stored.keys():
                continue
            columns = ", ".join(f'"{theirs}"' for theirs in stored.values())
            rows = [
                [_to_number(value) for value in row]
                for row in connection.execute(f'SELECT {columns} FROM "{table}"')
            ]
            found = raw[frame].select(*stored).rows()
            expected = [tuple(row) for row in rows if "refused" not in row]
            lost = Counter(expected) - Counter(found)
            if Counter(found) - Counter(expected):
                raise AssertionError(f"{table}: {Counter(found) - Counter(expected)} is not stored")
            if (lost or len(expected) < len(rows)) and f"of `{table}` with no whole number in" not in told:
                raise AssertionError(f"{table}: {lost} is lost, and nothing says so: {told}")


def _to_number(value: object) -> object:
    """Return the whole number that a stored value is; "refused" if it is none."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return (
            int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**63 else "refused"
        )
    if not isinstance(value, bytes):
        return "refused"
    text = value.decode("utf-8", "replace").strip(" ")
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        return "refused"
    return number if str(number) == text and abs(number) < 2**63 else "refused"


def read_once(source: Path, output: Path) -> None:
    (path,) = source.iterdir()
    read_report(path)


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
    nsys_pp.summary(source)


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


ODD: tuple[Work, ...] = (
    *WHOLE,
    _named(lambda source, output: nsys_pp.check(source), "check"),
    _named(lambda source, output: nsys_pp.report(source, output / "run.html"), "report"),
    _named(lambda source, output: nsys_pp.compare(source, source), "compare"),
    _named(lambda source, output: nsys_pp.sql("SELECT count(*) FROM jobs", source), "sql"),
    _named(lambda source, output: nsys_pp.scrub(source, output / "copies", hosts=True), "scrub"),
)


OF_PARTS: tuple[Work, ...] = (merge, pipeline, summarise, align, chart)


_SOUND = (
    *(
        "10:12",
        ":12",
        "10:",
        "pp=4,tp=2,dp=2,order=tp-dp-pp",
        r"rank(\d+)",
        "kernel,memcpy",
        "all",
        "1.5s",
        "-20ms",
    ),
    *(
        "0,1",
        "1.5s:1.7s",
        "8GB",
        "512MiB",
        "10m",
        "auto",
        "4",
        "node1=-1.2ms",
        "bubble>5%",
        "stage 2 forward>3%",
    ),
    *(
        "b step>20ms",
        "layers=2,hidden=8,sequence=4,batch=3,heads=4,kv_heads=2",
        r"forward=fwd(?P<micro_batch>\d+)",
    ),
    *(r"step (\d+)", r"(?P<kind>\w+)_(?P<step>.*)", "SELECT * FROM jobs", "SELECT count(*) FROM gpu_ops"),
)


_PIECES = (
    *(
        ":",
        ",",
        "=",
        ">",
        "<",
        "%",
        "ms",
        "s",
        "(",
        ")",
        "(?P<step>",
        "[",
        "]",
        "*",
        "+",
        "{1000000}",
        "\\d",
        "\\",
    ),
    *(
        "-",
        ".",
        " ",
        "pp",
        "tp",
        "order",
        "stage ",
        "bubble",
        "|",
        "^",
        "$",
        "(?i)",
        "(?=",
        "\\1",
        "kernel",
        "_",
        "/",
    ),
)


def pick_text(choices: Choices) -> str:
    """Choose a value of an option: a sound one with pieces, numbers and odd texts in it."""
    text = choices.pick(_SOUND) if choices.below(3) else ""
    for _ in range(choices.below(6)):
        at = choices.below(len(text) + 1)
        kind = choices.below(6)
        if kind == 0:
            piece = str(choices.pick(NUMBERS))
        elif kind == 1:
            piece = choices.pick(TEXTS)[:6000]
        elif kind == 2:
            piece = choices.take(choices.below(8)).decode("utf-8", "surrogateescape")
        elif kind == 3:
            text, piece = text[:at] + text[at + 1 + choices.below(3) :], ""
        else:
            piece = choices.pick(_PIECES)
        text = text[:at] + piece + text[at:]
    return text


def write_text(choices: Choices, folder: Path) -> None:
    (folder / "value.txt").write_text(
        pick_text(choices), encoding="utf-8", errors="surrogateescape", newline=""
    )


def _refuse(parse: Callable[[str], object]) -> Callable[[str], object]:
    def parse_value(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise NsysPPError("refused") from error

    return parse_value


_PARSERS: tuple[Callable[[str], object], ...] = (
    parse_steps,
    parse_run_layout,
    parse_rank_from,
    parse_counted_ops,
    lambda text: parse_patterns("job_patterns", text),
    parse_job_rule,
    parse_step_rule,
    parse_gate,
    lambda text: _count_flops(None, text),
    *map(
        _refuse,
        dict.fromkeys(option.type for option in options.OPTIONS if not isinstance(option.type, type)),
    ),
)


def _parser_work(parse: Callable[[str], object]) -> Work:
    def parse_value(source: Path, output: Path) -> None:
        text = (source / "value.txt").read_bytes().decode("utf-8", "surrogateescape")
        parse(text)

    return parse_value


# Parse a text by one of the grammars: it is a value, or refused.
PARSE_VALUE = tuple(map(_parser_work, _PARSERS))


@cache
def _read_presets() -> list[str]:
    return [path.read_text() for path in sorted(presets._FOLDER.glob("*.toml"))]


def write_rules(choices: Choices, folder: Path) -> None:
    """Write a file of rules: a preset with changed lines, or changed bytes."""
    lines = choices.pick(_read_presets()).splitlines()
    for _ in range(1 + choices.below(6)):
        at = choices.below(len(lines))
        key = choices.pick(
            ["pattern", "kind", "direction", "role", "domain", "batch", "title", "suffix", "signs"]
        )
        kind = choices.below(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(
                at, choices.pick(["[[job]]", "[[step]]", "[job]", "job = 1", "[[job.pattern]]", "{", "x ="])
            )
        elif kind == 2:
            lines[at] = f"{key} = {json.dumps(pick_text(choices))}"
        elif kind == 3:
            value = choices.pick(
                ["[]", "{}", "1", "true", "1e999", "[[1]]", "1979-05-27", "nan", "''", "9" * 5000]
            )
            lines.insert(at, f"{key} = {value}")
        elif kind == 4:
            lines[at] = re.sub(
                r"\(\?P<\w+>", f"(?P<{choices.pick(['step', 'kind', 'x', 'role'])}>", lines[at]
            )
        else:
            pattern = pick_text(choices).replace("'", "").replace("\n", "").replace("\0", "")
            lines[at] = f"{key} = '{pattern}'"
        if not lines:
            break
    data = "\n".join(lines).encode("utf-8", "replace")
    if choices.below(3) == 0:
        data = change_bytes(data, choices, block=32, most=4)
    (folder / "rules.toml").write_bytes(data)


def load_rules(source: Path, output: Path) -> None:
    load_preset(str(source / "rules.toml"))


def pipeline_with_rules(source: Path, output: Path) -> None:
    report = output.parent / "sound.sqlite"
    if not report.exists():
        report.write_bytes(read_seed(0)[0])
    nsys_pp.pipeline(report, preset=source / "rules.toml").tables()


_COMMANDS = ("merge", "pipeline", "chart", "summary", "compare", "project", "info", "align", "sql", "extract")


_LEFT_OUT = {
    "--nsys",
    "--open",
    "--processes",
    "--memory",
    "--dask-scheduler",
    "--wait-for",
    "--wait-timeout",
    "--result",
}


_OUTPUTS = (
    "run.pftrace",
    "run.json",
    "run.json.gz",
    "run.csv",
    "run.md",
    "run.parquet",
    "run.html",
    "run.svg",
    "x",
)


def write_command(choices: Choices, folder: Path) -> None:
    """Write a command line with options of the command, each with a value of any grammar."""
    name = choices.pick(_COMMANDS)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option) and option.opts[0] not in _LEFT_OUT
    ]
    line = [name]
    if choices.below(2):
        line += ["-o", "OUT/" + choices.pick(_OUTPUTS)]
    for _ in range(choices.below(5)):
        option = choices.pick(options)
        line.append(option.opts[0])
        if option.is_flag:
            continue
        if isinstance(option.type, click.Choice) and choices.below(8):
            value = str(choices.pick(list(option.type.choices)))
        elif option.opts[0] in ("-o", "--steptask"):
            value = "OUT/" + choices.pick(_OUTPUTS)
        else:
            value = pick_text(choices).replace("/", "_")
        line.append(value)
    line += {"compare": ["IN", "IN"], "sql": [pick_text(choices), "IN"]}.get(name, ["IN"])
    (folder / "line.json").write_text(json.dumps(line))


def run_command(source: Path, output: Path) -> None:
    reports = output.parent / "sound"
    if not reports.exists():
        reports.mkdir()
        for rank, data in enumerate(read_seed(0)):
            (reports / f"rank{rank}.sqlite").write_bytes(data)
    line = json.loads((source / "line.json").read_text())
    line = [word.replace("OUT/", f"{output}{os.sep}") if word.startswith("OUT/") else word for word in line]
    line = [str(reports) if word == "IN" else word for word in line]
    before = Path.cwd()
    os.chdir(output)
    try:
        done = CliRunner().invoke(main, line, env={"NSYS_PP_LOG_SECONDS": "0"})
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if "unforeseen" in done.stderr or "Traceback" in done.stderr:
        raise AssertionError(f"{line}\n{done.stderr}")
    if done.exit_code not in (0, 1, 2, 3, 4):
        raise AssertionError(f"{line}\nstatus {done.exit_code}")
    if done.exit_code in (1, 2) and not any(output.iterdir()):
        raise NsysPPError("refused")


@cache
def _read_frame_seeds(number: int) -> tuple[tuple[str, bytes], ...]:
    """Return the frames of a part with rows, unpacked, by name."""
    with ZipFile(BytesIO(read_seed_part(number))) as archive:
        sizes = json.loads(archive.read(FACTS_MEMBER))["frame_bytes"]
        data, at, frames = archive.read(FRAMES_MEMBER), 0, []
    for name, size in sizes.items():
        frames.append((name, zlib.decompress(data[at : at + size])))
        at += size
    return tuple(frames)


def write_changed_frame(choices: Choices, folder: Path) -> None:
    """Write a frame of a part with changed bytes."""
    name, data = choices.pick(_read_frame_seeds(choices.below(COUNT)))
    (folder / name).write_bytes(change_bytes(data, choices, block=16, most=6))


def unpack_changed_frame(source: Path, output: Path) -> None:
    """Unpack a frame: it has its schema, or is refused."""
    (path,) = source.iterdir()
    try:
        frame, _ = unpack_frames([path.read_bytes()], PART_FRAMES[path.name])
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError, pl.exceptions.PolarsError):
        raise NsysPPError("refused") from None  # as `nsys_pp.read.parts` does
    if frame.schema != PART_FRAMES[path.name]:
        raise AssertionError(f"{frame.schema}")


def write_changed_blocks(choices: Choices, folder: Path) -> None:
    """Write the blocks of a part with changed bytes, mostly of their heads."""
    with ZipFile(BytesIO(read_seed_part(choices.below(COUNT)))) as archive:
        data = archive.read(BLOCKS_MEMBER)
    kept = 64 if choices.below(4) else len(data)
    (folder / "blocks").write_bytes(change_bytes(data[:kept], choices, block=16, most=4) + data[kept:])


def check_blocks_of_a_track(source: Path, output: Path) -> None:
    """Check blocks as `check` does, those of one track."""
    data = (source / "blocks").read_bytes()
    track = EncodedSubtrack(
        track=("GPU 0",), ordinal=0, kind="slices", rows=1, first_ns=0, last_ns=1, size_bytes=len(data)
    )
    try:
        check_blocks(Encoded(report_id=1, base_ns=0, tracks=[], subtracks=[track]), BytesIO(data))
    except (ValueError, EOFError):
        raise NsysPPError("refused") from None


def read_whole_part(source: Path, output: Path) -> None:
    """Read a part: its facts, each of its frames, and its blocks by their checksum."""
    path = source / "rank0.nspart"
    part = read_part(path, version="0")
    for name in part.frames:
        if part.frames[name].schema != PART_FRAMES[name]:
            raise AssertionError(name)
    check_part_blocks(path)


MOST_CPU_S = 20.0  # of one input; 0.5 is usual


MOST_GROWTH_BYTES = 512 << 20  # of the memory of the process, by one input


# Reads the inputs in the first folder, and writes to the second one.
Work = Callable[[Path, Path], object]


class BrokenPromiseError(AssertionError):
    """An input with another outcome; `key` is equal for equal reasons."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


def hold(work: Work, source: Path, output: Path) -> bool:
    """Return whether there is a result (True), or a refusal.

    Raises:
        BrokenPromiseError: The outcome is neither, costs too much, changes the input, or leaves something half-done.
    """
    before, memory, start = read_folder(source), _peak_bytes(), time.process_time()
    is_result = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)  # of numpy: a number that did not fit
            work(source, output)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except NsysPPError as error:
        _check_refusal(error)
        is_result = False
    except BaseException as error:  # panics of polars derive from it
        raise BrokenPromiseError(traceback.format_exc(), _key_of(error)) from None
    spent, growth = time.process_time() - start, _peak_bytes() - memory
    name = getattr(work, "__name__", str(work))
    if spent > MOST_CPU_S:
        raise BrokenPromiseError(f"{name} took {spent:.1f} s", f"slow-{name}")
    if growth > MOST_GROWTH_BYTES:
        raise BrokenPromiseError(f"{name} took {growth >> 20} MiB more", f"memory-{name}")
    if read_folder(source) != before:
        raise BrokenPromiseError(f"{name} changed its input", f"changed-{name}")
    left = sorted(path.name for path in output.iterdir())
    if any(name.startswith(".") for name in left) or (left and not is_result):
        raise BrokenPromiseError(f"{name} left {left}", f"left-{name}")
    return is_result


def _check_refusal(error: NsysPPError) -> None:
    if isinstance(error, UnforeseenError):
        raise BrokenPromiseError(error.details or error.message, _key_of(error.__cause__ or error)) from None
    if "not enough memory" in error.message:
        raise BrokenPromiseError(error.message, "memory") from None
    if not error.message or error.message.endswith("."):
        raise BrokenPromiseError(f"no sentence: {error.message!r}", "sentence") from None


def _key_of(error: BaseException) -> str:
    """Name an error by its type and the innermost place in the package."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "/nsys_pp/" in frame.filename
    ] or traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).stem}-{frames[-1].name}" if frames else "unknown"
    return f"{type(error).__name__}-{where}".replace("<", "").replace(">", "")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True)
class Target:
    """A kind of input.

    Attributes:
        write: Writes an input to a folder.
        works: What may be done with it; an input chooses one, and a replay does all.
        runs: Number of inputs in the tests of each change; a second or two.
    """

    write: Callable[[Choices, Path], None]
    works: tuple[Work, ...]
    runs: int


TARGETS = {
    "rows": Target(write_changed_rows, (read_both_ways,), 60),
    "schemas": Target(write_odd_schema, (read_like_sqlite, read_like_sqlite, *ODD), 20),
    "pages": Target(write_changed_pages, (read_once,), 120),
    "reports": Target(write_changed_rows, WHOLE, 15),
    "damaged": Target(write_changed_pages, WHOLE, 15),
    "folders": Target(write_changed_folder, (read_once, info), 40),
    "parts": Target(write_changed_part, OF_PARTS, 20),
    "copies": Target(write_changed_rows, (scrub_all,), 15),
    "frames": Target(write_changed_frame, (unpack_changed_frame,), 400),
    "blocks": Target(write_changed_blocks, (check_blocks_of_a_track,), 300),
    "kept": Target(write_changed_part_of_two, (merge_kept,), 20),
    "archives": Target(write_changed_part, (read_whole_part,), 60),
    "rules": Target(write_rules, (load_rules,), 100),
    "named": Target(write_rules, (pipeline_with_rules,), 10),
    "values": Target(write_text, PARSE_VALUE, 1000),
    "commands": Target(write_command, (run_command,), 20),
}


_IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files there cost no disk


class Bench:
    """A folder in which inputs of a target are made and used, one after the other."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._folder = Path(tempfile.mkdtemp(prefix="nsys-pp-fuzz-", dir=_IN_MEMORY))
        self.source, self.output = self._folder / "in", self._folder / "out"

    def use(self, data: bytes) -> bool:
        """Make an input of bytes, and work with it; results and errors as of `hold`."""
        choices = Choices(data)
        work = choices.pick(self._target.works)
        self._clear()
        self._target.write(choices, self.source)
        return hold(work, self.source, self.output)

    def replay(self, files: dict[str, bytes], work: Work) -> bool:
        """Work with an input of which the files are kept."""
        self._clear()
        for name, data in files.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return hold(work, self.source, self.output)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _clear(self) -> None:
        for folder in (self.source, self.output):
            folder.mkdir(exist_ok=True)
            for entry in folder.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
