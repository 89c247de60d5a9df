"""A SQLite export written from raw frames, and texts: shown ones, names of users, and those that are left.

It has the tables and columns that nsys-pp reads, and nothing else.

The file is new: it has no free pages, no definition of the original, and no text that is not in the frames.
"""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import ReportError, disk_errno
from nsys_pp.frames.ids import process_key, strip_uuid
from nsys_pp.frames.raw import ALL_GROUPS, SCHEMAS, Group, RawReport
from nsys_pp.frames.report import RANGE_KIND
from nsys_pp.model import build_report
from nsys_pp.model.contents import list_losses
from nsys_pp.model.identity import RANK_THREAD
from nsys_pp.read import read_report
from nsys_pp.read.arrow import is_table_directory, list_table_files, read_whole_tables
from nsys_pp.read.files import (
    COPY_ID,
    STORED,
    UNSTORED,
    check_database,
    connect_plainly,
    explain_sqlite,
    limit_steps,
    quote_name,
)
from nsys_pp.read.names import (
    BLOCK,
    COUNTED,
    ENVIRONMENT_ROWS,
    FACT_TABLES,
    METRIC_TABLES,
    ROW_ID,
    STRINGS,
    TABLES,
    USER_ROWS,
    Column,
    Table,
    spell,
)
from nsys_pp.scrubbing.pseudonyms import REMOVED, Identities, Pseudonyms

_OWN_ID = "INTEGER PRIMARY KEY"
_SHARED = {"payloads": "nvtx"}  # frames of the rows of another frame's table


def write_database(path: Path, raw: RawReport) -> None:
    """Write raw frames as a SQLite export, whose raw frames are equal.

    Args:
        path: An empty file.
        raw: All groups of a report.

    Raises:
        ReportError: Rows of NVTX events have no numbers of their own, as in some exports to folders.
        OSError: The disk is full, or cannot be written.
    """
    with (
        _translated_errors(raw.path, path),
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA application_id = {COPY_ID}")
        connection.execute("BEGIN")
        for name, columns, rows in _list_tables(raw):
            definition = ", ".join(f"{quote_name(column)} {kind}" for column, kind in columns.items())
            connection.execute(f"CREATE TABLE IF NOT EXISTS {quote_name(name)} ({definition})")
            listed = [ROW_ID] * (_OWN_ID not in columns.values()) + [*columns]
            names, places = ", ".join(map(quote_name, listed)), ", ".join("?" * len(listed))
            connection.executemany(f"INSERT INTO {quote_name(name)} ({names}) VALUES ({places})", rows)
        connection.execute("COMMIT")


@contextmanager
def _translated_errors(original: Path, copy: Path) -> Iterator[None]:
    """Convert errors of SQLite into errors of the system.

    Raises:
        ReportError: The original is damaged.
        OSError: The disk is full, or cannot be written.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if (number := disk_errno(error, copy)) is None:
            raise explain_sqlite(original, error) from None
        raise OSError(number, str(error)) from error


_Rows = Iterator[tuple[object, ...]]


def _list_tables(raw: RawReport) -> Iterator[tuple[str, Mapping[str, str], _Rows]]:
    """List the name, the columns with their types, and the numbered rows of each table."""
    yield from _list_facts(raw)
    kept = (*TABLES, *(table for table in METRIC_TABLES if len(raw[table.frame])))
    of_metrics = {table.frame for table in kept[len(TABLES) :]}
    written: set[str] = set()
    for frame in dict.fromkeys(table.frame for table in kept):
        if frame in ("facts", "launcher", *_SHARED) or not (
            frame in raw.recorded or frame == "strings" or frame in of_metrics  # strings: of every export
        ):
            continue
        table = next(table for table in kept if table.frame == frame)
        frames = [raw[frame]]
        columns = dict(table.columns)
        for other in (other for other, owner in _SHARED.items() if owner == frame):
            frames.append(raw[other].drop("thread"))
            columns |= next(table.columns for table in TABLES if table.frame == other)
        written.add(table.names[0])
        yield _export_frame(table, columns, frames, raw.recorded.get(frame))
    for frame in dict.fromkeys(table.frame for table in COUNTED):
        if frame not in of_metrics and (count := raw.recorded.get(frame)) is not None:
            table = next(table for table in COUNTED if table.frame == frame)
            if table.names[0] in written:  # with all rows, by a frame that is read
                continue
            names = dict.fromkeys(table.must_have or ("id",), "INTEGER")
            # only counted, by the number of the last row
            last = [(count, *[None] * len(names))] if count else []
            yield table.names[0], names, iter(last)


def _list_facts(raw: RawReport) -> Iterator[tuple[str, Mapping[str, str], _Rows]]:
    """List the tables of names and values; launcher variables as nsys records them."""
    variable = next(name for name, kind in ENVIRONMENT_ROWS.items() if kind == "variable")
    by_table: dict[str, list[tuple[str, str | None]]] = {}
    for table in TABLES:
        if table.frame not in ("facts", "launcher"):
            continue
        rows = by_table.setdefault(table.names[0], [])
        if table.frame == "facts":
            exported = {ours: theirs for theirs, ours in reversed([*table.rows_named.items()])}
            rows += [(exported[name], value) for name, value in raw["facts"].rows() if name in exported]
    by_table[next(table.names[0] for table in TABLES if table.frame == "launcher")] += [
        (variable, f'{name}="{value}"') for name, value in raw["launcher"].drop_nulls().rows()
    ]
    for name, facts in by_table.items():
        if facts:
            numbered = ((number, *fact) for number, fact in enumerate(facts, start=1))
            yield name, {"name": "TEXT", "value": "TEXT"}, numbered


def _export_frame(
    table: Table, columns: Mapping[str, Column], frames: list[pl.DataFrame], count: int | None
) -> tuple[str, Mapping[str, str], _Rows]:
    ours = frames[0]
    for other in frames[1:]:
        if not other.is_empty():
            ours = ours.join(other, on="row", how="full", coalesce=True)
    ours = _number_rows(ours, table, count)
    exported = group_pairs(
        (column.names[0], name)
        for name, column in columns.items()
        if name in ours.columns and column.names[0] != ROW_ID
    )
    values = [_untranslate(ours, names, columns).alias(theirs) for theirs, names in exported.items()]
    types = {
        column.name: "INTEGER" if column.dtype.is_integer() else "REAL" if column.dtype.is_float() else "TEXT"
        for column in values
    }
    if count is not None and (ours["_row"] > count).any():  # numbers that were chosen, and have gaps
        types = {"id": _OWN_ID, **types}
    return table.names[0], types, iter(pl.DataFrame([ours["_row"], *values]).iter_rows())


def _number_rows(frame: pl.DataFrame, table: Table, count: int | None) -> pl.DataFrame:
    """Add `_row`, the number of each row: its own, else such that the last one is `count`."""
    if "row" not in frame.columns:
        first = max((count or 0) - len(frame), 0) + 1
        return frame.with_columns(_row=pl.int_range(len(frame), dtype=pl.Int64, eager=True) + first)
    if frame["row"].has_nulls() or frame["row"].n_unique() < len(frame):
        raise ReportError(
            f"rows of `{table.names[0]}` have no numbers of their own",
            "scrub an export of `nsys export --type sqlite`",
        )
    frame = frame.with_columns(_row="row").sort("_row")
    last = frame["_row"].max()
    if count and (last is None or int(last) < count):  # type: ignore[arg-type]
        # the last row was of an unknown kind, and is not read: its number is the count of rows
        frame = pl.concat([frame, pl.DataFrame({"_row": [count]})], how="diagonal")
    return frame


def _untranslate(frame: pl.DataFrame, names: list[str], columns: Mapping[str, Column]) -> pl.Series:
    """Return the exported values of a column, which may be the source of several columns of the frame."""
    described = [columns[name] for name in names]
    if described[0].words is None:
        return frame[names[0]]
    numbers = {number for column in described for number in column.words or {}}
    beyond = {column.words_beyond[0] for column in described if column.words_beyond is not None}
    ordered = sorted(numbers | beyond)
    words = [
        pl.Series(name, [_translate(column, number) for number in ordered], dtype=frame.schema[name])
        for name, column in zip(names, described, strict=True)
    ]
    known = pl.DataFrame([*words, pl.Series("_number", ordered)]).unique(
        names, keep="first", maintain_order=True
    )
    return frame.select(names).join(known, on=names, how="left", nulls_equal=True, maintain_order="left")[
        "_number"
    ]


def _translate(column: Column, number: int) -> object:
    if column.words_beyond is not None and number >= column.words_beyond[0]:
        return column.words_beyond[1]
    return (column.words or {}).get(number)


def list_tables(path: Path) -> list[str]:
    """List the tables of an exported folder, or the real ones of a SQLite file.

    Without views and virtual tables.
    """
    if is_table_directory(path):
        return sorted(list_table_files(path))
    with closing(connect_plainly(path)) as connection:
        return sorted(name for name in list_columns(connection) if not name.startswith("sqlite_"))


def copy_tables(path: Path, copy: Path, names: Collection[str]) -> None:
    """Copy some tables as they are, without indices, generated columns and definitions.

    Args:
        path: The original.
        copy: The copy, which has none of the tables.
        names: Tables of the original.
    """
    with (
        _translated_errors(path, copy),
        closing(sqlite3.connect(copy, isolation_level=None, uri=True)) as connection,
    ):
        if is_table_directory(path):
            copy_folder_tables(path, connection, names)
            return
        connection.execute("PRAGMA journal_mode = OFF")  # a killed process would leave it
        connection.execute("ATTACH ? AS original", (check_database(path),))
        of_tables = list_columns(connection, "original")
        for name in sorted(names):
            columns = ", ".join(map(quote_name, of_tables[name]))
            connection.execute(f"CREATE TABLE {quote_name(name)} ({columns})")
            limit_steps(connection, path)
            connection.execute(
                f"INSERT INTO {quote_name(name)} SELECT {columns} FROM original.{quote_name(name)}"
            )


_ODD_ROWS = "`nsys-pp check` names rows that cannot be read; if there are none, please report this"


def assert_equal_frames(path: Path, raw: RawReport, copy: RawReport) -> None:
    """Compare the frames of a copy with the written ones.

    Raises:
        ReportError: They differ.
    """
    for name in SCHEMAS:
        ours, copied = raw[name], copy[name]
        if len(copied) == len(ours) + 1 and {*copied.drop("row", strict=False).row(-1)} == {None}:
            copied = copied.head(-1)  # a row without values, whose number is the count of rows
        if not ours.equals(copied, null_equal=True):
            raise ReportError(f"the copy of `{path}` would differ from it in its {name}", _ODD_ROWS)
    different = {
        name
        for name in {*raw.recorded, *copy.recorded}
        if raw.recorded.get(name) != copy.recorded.get(name)
        # none of its rows can be read
        and not (name in SCHEMAS and raw[name].is_empty() and copy.recorded.get(name) == 0)
    }
    if different:
        raise ReportError(
            f"the copy of `{path}` would differ from it in its numbers of {', '.join(sorted(different))}",
            _ODD_ROWS,
        )


_GROUPS: frozenset[Group] = ALL_GROUPS | {"metric_sums"}


def find_identities(path: Path, *, users: bool) -> Identities:
    """Find the names of machines, GPUs and users in a report, and its secrets.

    Args:
        path: The report.
        users: Also look for folders of users in the texts that its copy keeps.

    Raises:
        ReportError: It cannot be read.
    """
    raw = read_report(path, need=frozenset())
    facts = raw["facts"].drop_nulls()
    values = {name: set(facts.filter(pl.col("name") == name)["value"]) for name in facts["name"].unique()}
    ids = values.get("hardware_id", set()) | values.get("system_id", set())
    uuids = pl.concat([raw["gpus"]["uuid"], raw["cuda_devices"]["uuid"]]).drop_nulls()
    homes = _find_homes(path) if users else frozenset()
    return find_people(path).joined(
        Identities(
            users=homes,
            hosts=frozenset(values.get("hostname", set())),
            # a process namespace, which is no machine's own
            machine_ids=frozenset(value for value in ids if not value.startswith("pid:")),
            uuids=frozenset(strip_uuid(uuid) for uuid in uuids),
        )
    )


def _find_homes(path: Path) -> frozenset[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the copying has the same
        raw = _read_kept(path)
    columns = [
        column
        for frame in raw.frames.values()
        for column in frame.iter_columns()
        if column.dtype == pl.String
    ]
    texts = pl.concat([column.alias("text") for column in columns]).drop_nulls().unique()
    return frozenset(_list_users(match[1] for text in texts for match in _HOME.finditer(text)))


def _read_kept(path: Path) -> RawReport:
    raw = remove_unused(read_report(path, need=_GROUPS))
    raw.release("generic_events")  # with texts of all kinds
    return raw


class ScrubbedReport(Struct, frozen=True):
    """Contents of a report that its copy lacks."""

    text_count: int  # distinct texts
    tables: list[str]  # in order of their names


def scrub_report(
    path: Path, target: Path, pseudonyms: Pseudonyms, *, keep_tables: Sequence[str] = ()
) -> ScrubbedReport:
    """Write a copy of a report with the tables, columns and texts that analyses read, and no others.

    Args:
        path: A SQLite export, or an exported folder of tables.
        target: The copy, an empty file.
        pseudonyms: Replacement of names.
        keep_tables: Other tables to copy as they are.

    Raises:
        ReportError: The report cannot be read, or the copy would differ from what was to be written.
        OSError: The copy cannot be written.
    """
    raw = replace_texts(_read_kept(path), pseudonyms)
    write_database(target, raw)
    assert_equal_frames(path, raw, read_report(target, need=_GROUPS))
    written = {*list_tables(target)}
    others = [name for name in list_tables(path) if spell(name) not in written]
    present = {*others} | written
    if absent := ", ".join(f"`{name}`" for name in keep_tables if present.isdisjoint((name, spell(name)))):
        warnings.warn(f"`{path}` has no table {absent}", stacklevel=3)
    if copied := [name for name in keep_tables if name in others]:
        copy_tables(path, target, copied)
        listed = ", ".join(f"`{name}`" for name in copied)
        warnings.warn(f"`{path}`: {listed} copied as they are, with all their texts", stacklevel=3)
    return ScrubbedReport(
        text_count=_check_texts(path, target), tables=[name for name in others if name not in keep_tables]
    )


def _check_texts(path: Path, copy: Path) -> int:
    """Check that the bytes of a copy hold no text that it should lack; return the number of these."""
    kept = list_texts(copy)
    removed = list_texts(path) - kept
    found = find_texts(copy, removed)
    # a removed text may be part of a kept one
    leaked = found - find_in(b"\0".join(sorted(kept)), sorted(found)) if found else found
    if leaked:
        raise ReportError(
            f"the copy of `{path}` would hold {len(leaked)} texts that were to be removed",
            "please report this",
        )
    return len(removed)


# Of a text that is searched for or taken for a secret: shorter ones occur by chance.
LEAST_BYTES = 8

_MOST_BYTES = 64  # of a pattern: a longer text is searched for in pieces, as SQLite cuts it into pages

_PIECE_BYTES = 1 << 26


def find_texts(path: Path, texts: Collection[bytes]) -> set[bytes]:
    """Find pieces of texts, of at most `_MOST_BYTES`, that occur in a file, at any position of any format.

    Args:
        path: The file.
        texts: The texts; pieces with fewer than `LEAST_BYTES` bytes are ignored.
    """
    patterns = sorted(
        {
            piece
            for text in texts
            for at in range(0, len(text), _MOST_BYTES)
            if len(piece := text[at : at + _MOST_BYTES]) >= LEAST_BYTES and any(piece)  # zeros are no text
        }
    )
    if not patterns:
        return set()
    overlap = max(map(len, patterns))
    found: set[bytes] = set()
    with path.open("rb") as file:
        tail = b""
        while piece := file.read(_PIECE_BYTES):
            found.update(find_in(tail + piece, patterns))
            tail = (tail + piece)[-overlap:]
    return found


def find_in(data: bytes, patterns: Iterable[bytes]) -> set[bytes]:
    """Find the patterns that occur in data: all at once, by the automaton of polars."""
    listed = [pattern.decode("latin-1") for pattern in patterns]  # a character for each byte
    matches = (
        pl.Series([data.decode("latin-1")])
        .to_frame("data")
        .select(pl.col("data").str.extract_many(listed, overlapping=True).list.unique())
    )
    return {text.encode("latin-1") for text in matches["data"][0].to_list()}


# columns that refer to strings, by frame
_REFERENCES = {
    "nvtx": ("text_id",),
    "payloads": ("json_id",),
    "calls": ("name_id",),
    "kernels": ("name_id", "full_name_id"),
    "thread_names": ("name_id",),
    "mpi_messages": ("name_id",),
    "mpi_collectives": ("name_id",),
    "os_calls": ("name_id",),
    "overheads": ("name_id",),
    "cuda_overheads": ("name_id",),
}


_OF_NAMES = ("nvtx", "payloads", "thread_names")  # frames whose threads need not have events


def remove_unused(raw: RawReport) -> RawReport:
    """Remove the texts that no analysis shows.

    Of strings, processes, threads, domains, categories and diagnostics.

    Args:
        raw: All groups of a report.

    Returns:
        The same rows of all frames except "strings"; equal results of all analyses.
    """
    report = build_report(raw)
    frames = dict(raw.frames)
    of_events = [
        frame["thread"] for name, frame in raw.frames.items() if "thread" in frame and name not in _OF_NAMES
    ]
    threads = pl.concat([report.threads["thread_key"], *of_events]).unique()
    processes = pl.concat(
        [report.processes["process_key"], threads.to_frame().select(process_key(pl.first())).to_series()]
    )
    frames["processes"] = _clear(
        raw["processes"], "name", unless=pl.col("process").is_in(processes.implode()).fill_null(value=False)
    )
    of_ranks = raw["strings"].filter(pl.col("text").str.contains(RANK_THREAD))["id"].drop_nulls()
    is_shown = pl.col("thread").is_in(threads.implode()) | pl.col("name_id").is_in(of_ranks.implode())
    frames["thread_names"] = _clear(raw["thread_names"], "name_id", unless=is_shown.fill_null(value=False))
    frames["nvtx"], frames["payloads"] = _remove_from_ranges(raw)
    frames["os_calls"] = _clear(raw["os_calls"], "name_id", unless=pl.col("is_call").fill_null(value=False))
    losses = list_losses(report.diagnostics)
    text = pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars()
    kept = pl.when(text.is_in(losses)).then("text").when(pl.col("text").is_not_null()).then(pl.lit(REMOVED))
    frames["diagnostics"] = raw["diagnostics"].with_columns(kept.alias("text"))
    used = pl.concat(
        frames[name][column].drop_nulls().unique().alias("id")
        for name, columns in _REFERENCES.items()
        for column in columns
    ).unique()
    frames["strings"] = raw["strings"].filter(pl.col("id").is_in(used.implode()).fill_null(value=False))
    return replace(raw, frames=frames)


def replace_texts(raw: RawReport, pseudonyms: Pseudonyms) -> RawReport:
    """Replace names in all texts."""
    return replace(
        raw,
        frames={
            name: frame.with_columns(
                [
                    replace_column(frame[column], pseudonyms)
                    for column, dtype in frame.schema.items()
                    if dtype == pl.String and (name, column) not in {("facts", "name"), ("launcher", "name")}
                ]
            )
            for name, frame in raw.frames.items()
        },
    )


def replace_column(texts: pl.Series, pseudonyms: Pseudonyms) -> pl.Series:
    """Replace names in a column; each distinct text once."""
    before = texts.drop_nulls().unique(maintain_order=True).to_list()
    changed = {text: new for text in before if (new := pseudonyms.replace(text)) != text}
    return texts.replace(changed) if changed else texts


def _remove_from_ranges(raw: RawReport) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Keep the texts of ranges and marks, and of the domains and categories that these have."""
    nvtx = raw["nvtx"].with_columns(
        process_key=process_key(pl.col("thread")), domain_key=pl.col("domain").fill_null(0)
    )
    is_shown = pl.col("kind").is_in([*RANGE_KIND.categories, "mark"]).fill_null(value=False)
    events = nvtx.filter(pl.col("start").is_not_null() & pl.col("thread").is_not_null() & is_shown)
    shown = [
        nvtx.filter(pl.col("kind") == kind)
        .join(events.select(keys).unique(), on=keys, how="semi", nulls_equal=False)
        .select("row")
        for kind, keys in (
            ("domain", ["process_key", "domain_key"]),
            ("category", ["process_key", "domain_key", "category"]),
        )
    ]
    rows = pl.concat([events.select("row"), *shown])["row"].implode()
    unless = pl.col("row").is_in(rows).fill_null(value=False)
    cleared = _clear(_clear(raw["nvtx"], "text", unless=unless), "text_id", unless=unless)
    event_rows = events["row"].implode()
    payloads = raw["payloads"].join(nvtx, on="row", how="semi", maintain_order="left")
    for column in ("json", "json_id", "binary"):
        payloads = _clear(payloads, column, unless=pl.col("row").is_in(event_rows).fill_null(value=False))
    has_value = pl.any_horizontal(pl.all().exclude("row", "thread").is_not_null())
    return cleared, payloads.filter(has_value)


def _clear(frame: pl.DataFrame, column: str, *, unless: pl.Expr) -> pl.DataFrame:
    return frame.with_columns(pl.when(unless).then(column).alias(column))


def list_folder_texts(path: Path) -> set[bytes]:
    """List the distinct texts and bytes of all tables of an exported folder.

    Raises:
        ReportError: A table cannot be read.
    """
    texts = {
        value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        for _, table in read_whole_tables(path)
        for column in table
        for value in _as_texts(column).drop_nulls().unique()
    }
    return texts - {b""}


def copy_folder_tables(path: Path, connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Copy some tables as they are into a database, which has none of them.

    Names without a table are ignored.

    Raises:
        ReportError: A table cannot be read.
        sqlite3.Error: The copy cannot be written.
    """
    for name, table in read_whole_tables(path, names):
        if table.width:
            plain = table.select(_as_plain(column) for column in table)
            columns, places = ", ".join(map(quote_name, plain.columns)), ", ".join("?" * plain.width)
            connection.execute(f"CREATE TABLE {quote_name(name)} ({columns})")
            limit_steps(connection, path)
            connection.executemany(f"INSERT INTO {quote_name(name)} VALUES ({places})", plain.iter_rows())


def _as_texts(column: pl.Series) -> pl.Series:
    """Return the texts and bytes of a column, also inside lists and structs; none for numbers."""
    if isinstance(column.dtype, pl.Struct):
        fields = [_as_texts(field).cast(pl.String, strict=False) for field in column.struct.unnest()]
        return pl.concat([field.rename("") for field in fields]) if fields else pl.Series("", [], pl.String)
    if isinstance(column.dtype, pl.List | pl.Array):
        return _as_texts(column.explode())
    if column.dtype in (pl.String, pl.Binary):
        return column
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    return pl.Series(column.name, [], dtype=pl.String)


def _as_plain(column: pl.Series) -> pl.Series:
    """Return a column with values that SQLite stores: numbers of 64 bits, texts, bytes."""
    if column.dtype == pl.UInt64:
        return column.reinterpret(signed=True)
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return column.cast(pl.Int64, strict=False)
    if column.dtype.is_float() or column.dtype == pl.Binary:
        return column
    if column.dtype.is_nested() or column.dtype.is_temporal():
        return pl.Series(column.name, [None if value is None else str(value) for value in column], pl.String)
    return column.cast(pl.String)


_TELLING = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE|JWT|_PAT$|_PWD$", re.IGNORECASE)
_HOME = re.compile(r"(?:^|[\s=:\"';,(\[/])/(?:home|Users)/([^/\s\"';:,\0]{2,40})")
_SYSTEM_USERS = {"root", "user", "users", "shared", "runner"}
_VARIABLE = re.compile(r"([\w.-]+)=(.*)", re.DOTALL)  # containers have such names, too
_NEXT_VARIABLE = re.compile(r";(?=[\w.-]+=)")


def list_texts(path: Path) -> set[bytes]:
    """List the distinct texts and blobs of all tables of a report, and its definitions in SQLite.

    Raises:
        ReportError: It cannot be read to its end.
    """
    if is_table_directory(path):
        return list_folder_texts(path)
    texts: set[bytes] = set()
    try:
        with closing(connect_plainly(path)) as connection:
            tables = list_columns(connection)
            connection.text_factory = bytes  # UTF-8, also of a file in UTF-16
            definitions = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
            texts.update(sql for (sql,) in connection.execute(definitions))
            for table, columns in tables.items():
                for name in map(quote_name, columns):
                    limit_steps(connection, path)
                    query = (
                        f"SELECT DISTINCT {name} COLLATE BINARY FROM {quote_name(table)}"
                        f" WHERE typeof({name}) IN ('text', 'blob')"
                    )
                    texts.update(value for (value,) in connection.execute(query))
    except sqlite3.Error as error:
        raise explain_sqlite(path, error) from None
    return texts - {b""}


def find_people(path: Path) -> Identities:
    """Find user names and secrets in the environment that a report holds.

    Raises:
        ReportError: It cannot be read.
    """
    users: set[str] = set()
    secrets: set[str] = set()
    for name, value in _read_facts(path):
        if name in USER_ROWS:
            users.add(value)
        users.update(match[1] for match in _HOME.finditer(value))
        is_block = ENVIRONMENT_ROWS.get(name) == "block"
        if not is_block and not name.endswith("ENVIRONMENT_VARIABLE"):  # also of other processes than 0
            continue
        for variable, content in split_variables(value, is_block=is_block):
            if variable in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"):
                users.add(content.partition(";")[0])
            if _TELLING.search(variable):
                pieces = {content, *content.split(";")}
                pieces |= {re.sub(r"\\(.)", r"\1", text) for text in pieces}  # of quoted values
                pieces |= {text.strip() for text in pieces}
                secrets.update(text for text in pieces if len(text) >= LEAST_BYTES)
    return Identities(users=frozenset(_list_users(users)), secrets=frozenset(secrets))


def _list_users(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if len(name) > 1 and name.lower() not in _SYSTEM_USERS)


def split_variables(value: str, *, is_block: bool) -> Iterator[tuple[str, str]]:
    r"""Split the environment into names and values without quotes; a value may have semicolons.

    >>> list(split_variables('A=1;2;B="x";', is_block=True))
    [('A', '1;2'), ('B', 'x')]
    >>> list(split_variables('A=1;B=2\0C=x', is_block=True))
    [('A', '1;B=2'), ('C', 'x')]
    >>> list(split_variables('db-key="1";x.y=2', is_block=True))
    [('db-key', '1'), ('x.y', '2')]
    """
    block = value.split("\0") if "\0" in value else _NEXT_VARIABLE.split(value.rstrip(";"))
    for entry in block if is_block else [value]:
        if match := _VARIABLE.fullmatch(entry):
            yield match[1], match[2].strip('"')


def list_columns(connection: sqlite3.Connection, schema: str = "main") -> dict[str, list[str]]:
    """List the stored columns of the real tables, by table: programs in a file are not run."""
    return group_pairs(
        connection.execute(
            f"SELECT t.name, c.name FROM {schema}.sqlite_master AS t,"
            f" pragma_table_xinfo(t.name, '{schema}') AS c WHERE {STORED} AND NOT ({UNSTORED})"
        )
    )


def _read_facts(path: Path) -> Iterator[tuple[str, str]]:
    is_folder = is_table_directory(path)
    try:
        with (
            closing(sqlite3.connect(":memory:"))
            if is_folder
            else closing(connect_plainly(path)) as connection
        ):
            if is_folder:
                copy_folder_tables(path, connection, [*FACT_TABLES, STRINGS])
            for table, columns in list_columns(connection).items():
                spelled = {*map(spell, columns)}
                if spell(table) in FACT_TABLES and {"name", "value"} <= spelled:
                    selected, rows = "CAST(name AS TEXT)", quote_name(table)
                elif spell(table) == STRINGS and "value" in spelled:
                    selected, rows = f"'{BLOCK}'", f"{quote_name(table)} WHERE instr(value, char(0))"
                else:
                    continue
                query = f"SELECT {selected}, CAST(value AS TEXT) FROM {rows}"
                yield from (row for row in connection.execute(query) if None not in row)
    except sqlite3.Error as error:
        raise explain_sqlite(path, error) from None
