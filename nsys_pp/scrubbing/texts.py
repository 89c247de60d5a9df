"""Texts of a report and of its copy.

Which are shown, who is named, and which of them the bytes of the copy still hold.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.model import build_report
from nsys_pp.model.contents import list_losses
from nsys_pp.model.identity import RANK_THREAD
from nsys_pp.read.arrow import is_table_directory, list_table_files, read_whole_table
from nsys_pp.read.files import check_database, damaged_error
from nsys_pp.read.names import ENVIRONMENT_ROWS, FACT_TABLES, USER_ROWS
from nsys_pp.scrubbing.pseudonyms import REMOVED, Identities, Pseudonyms

LEAST_BYTES = 8
"""Of a text that is searched for or taken for a secret: shorter ones occur by chance."""

_MOST_BYTES = 64  # of a pattern: a longer text is searched for in pieces, as SQLite cuts it into pages

_PIECE_BYTES = 1 << 26


def find_texts(path: Path, texts: Collection[bytes]) -> set[bytes]:
    """Find pieces of texts (`cut_texts`) that occur in a file, at any position of any format.

    Args:
        path: The file.
        texts: The texts; pieces with fewer than `LEAST_BYTES` bytes are ignored.
    """
    patterns = sorted(cut_texts(texts))
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


def cut_texts(texts: Iterable[bytes]) -> set[bytes]:
    """Cut texts into the pieces that are searched for."""
    return {
        piece
        for text in texts
        for at in range(0, max(len(text), 1), _MOST_BYTES)
        if len(piece := text[at : at + _MOST_BYTES]) >= LEAST_BYTES
    }


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
    threads, processes = report.threads["thread_key"].implode(), report.processes["process_key"].implode()
    frames["processes"] = _clear(
        raw["processes"], "name", unless=pl.col("process").is_in(processes).fill_null(value=False)
    )
    of_ranks = raw["strings"].filter(pl.col("text").str.contains(RANK_THREAD))["id"].drop_nulls()
    names_rank = pl.col("name_id").is_in(of_ranks.implode())
    is_shown = pl.col("thread").is_in(threads) | names_rank
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
    if pseudonyms.is_idle:
        return raw
    frames = {
        name: frame.with_columns(
            [
                replace_column(frame[column], pseudonyms)
                for column, dtype in frame.schema.items()
                if dtype == pl.String and (name, column) not in {("facts", "name"), ("launcher", "name")}
            ]
        )
        for name, frame in raw.frames.items()
    }
    return replace(raw, frames=frames)


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
    is_naming = pl.col("kind").is_in(["domain", "category"])
    is_whole = pl.col("start").is_not_null() & pl.col("thread").is_not_null()
    events = nvtx.filter(is_whole & ~is_naming)
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
    payloads = raw["payloads"]
    for column in ("json", "json_id", "binary"):
        payloads = _clear(payloads, column, unless=pl.col("row").is_in(event_rows).fill_null(value=False))
    return cleared, payloads


def _clear(frame: pl.DataFrame, column: str, *, unless: pl.Expr) -> pl.DataFrame:
    return frame.with_columns(pl.when(unless).then(column).alias(column))


def list_folder_texts(path: Path) -> set[bytes]:
    """List the distinct texts and bytes of all tables of an exported folder.

    Raises:
        ReportError: A table cannot be read.
    """
    texts: set[bytes] = set()
    for file in list_table_files(path).values():
        for column in read_whole_table(file):
            for value in _as_texts(column).drop_nulls().unique():
                texts.add(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    texts.discard(b"")
    return texts


def copy_folder_tables(path: Path, connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Copy some tables as they are into a database, which has none of them.

    Names without a table are ignored.

    Raises:
        ReportError: A table cannot be read.
        sqlite3.Error: The copy cannot be written.
    """
    for name, file in list_table_files(path).items():
        table = read_whole_table(file)
        if name in names and table.width:
            plain = table.select(_as_plain(column) for column in table)
            columns, places = ", ".join(map(quote, plain.columns)), ", ".join("?" * plain.width)
            connection.execute(f"CREATE TABLE {quote(name)} ({columns})")
            connection.executemany(f"INSERT INTO {quote(name)} VALUES ({places})", plain.iter_rows())


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
    if column.dtype.is_nested():
        return pl.Series(column.name, [None if value is None else str(value) for value in column], pl.String)
    return column.cast(pl.String)


def quote(name: str) -> str:
    """Quote a name of SQLite."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


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
        with open_database(path) as connection:
            for (sql,) in connection.execute(
                "SELECT CAST(sql AS BLOB) FROM sqlite_master WHERE sql IS NOT NULL"
            ):
                texts.add(sql)
            for table, columns in list_columns(connection).items():
                for name in map(quote, columns):
                    query = f"SELECT DISTINCT CAST({name} AS BLOB) FROM {quote(table)}"
                    rows = connection.execute(f"{query} WHERE typeof({name}) IN ('text', 'blob')")
                    texts.update(value for (value,) in rows)
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
    for name, value in _read_facts(path):
        if name in USER_ROWS:
            users.add(value)
        users.update(match[1] for match in _HOME.finditer(value))
        if name not in ENVIRONMENT_ROWS:
            continue
        for variable, content in split_variables(value, is_block=ENVIRONMENT_ROWS[name] == "block"):
            if _USER_VARIABLES.match(variable):
                users.add(content)
            if _TELLING.search(variable) and len(content) >= LEAST_BYTES:
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


def open_database(path: Path) -> closing[sqlite3.Connection]:
    """Open a SQLite file for reading; undecodable bytes of texts are replaced."""
    connection = sqlite3.connect(check_database(path), uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return closing(connection)


def list_columns(connection: sqlite3.Connection, schema: str = "main") -> dict[str, list[str]]:
    """List the stored columns of the real tables, by table: programs in a file are not run."""
    query = f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' AND rootpage > 0"
    columns = {}
    for (name,) in connection.execute(query).fetchall():
        info = connection.execute(f"PRAGMA {schema}.table_xinfo({quote(name)})")
        columns[name] = [row[1] for row in info if row[6] == 0]
    return columns


def _read_facts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the tables of facts."""
    is_folder = is_table_directory(path)
    try:
        with closing(sqlite3.connect(":memory:")) if is_folder else open_database(path) as connection:
            if is_folder:
                copy_folder_tables(path, connection, FACT_TABLES)
            for table, columns in list_columns(connection).items():
                if table in FACT_TABLES and {"name", "value"} <= {*columns}:
                    query = f"SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM {quote(table)}"
                    yield from (row for row in connection.execute(query) if None not in row)
    except sqlite3.Error:
        raise damaged_error(path) from None
