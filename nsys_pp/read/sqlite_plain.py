"""Tables of the plain form, decoded from their pages by numpy; all others are left to SQLite.

Plain are tables with row ids, without generated columns, of UTF-8 text, whose needed values are integers, texts or
NULL within the leaf pages. Blocks of leaf pages that fit in the processor's cache are decoded by several threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.stored_texts import build_names, open_store
from nsys_pp.arrays.threads import open_executor
from nsys_pp.frames.names import NAME
from nsys_pp.frames.raw import SCHEMAS
from nsys_pp.read.plan import shape_rows
from nsys_pp.read.sqlite_columns import Columns, OrderedColumns
from nsys_pp.read.sqlite_pages import Leaves, Pages, UnusualPageError, find_leaves, open_pages
from nsys_pp.read.sqlite_query import column_types
from nsys_pp.read.sqlite_records import Wanted, decode_rows
from nsys_pp.read.table import Source
from nsys_pp.read.tables import ROW_ID
from nsys_pp.stages import report_stage
from nsys_pp.units import format_bytes

_BLOCK_BYTES = 1 << 21
_MANY_ROWS = 200_000  # of events, of which each text takes 16 bytes and more
_MOST_ROWS = 20_000_000  # of all tables, beyond which names are in files, and not in memory
_LEAST_BYTES = 5  # of a row without its header: pointer, length, row id, length of the header


class Layout(Struct, frozen=True):
    """Storage of a table."""

    root: int  # page; 0: a view or a virtual table
    columns: tuple[str, ...]
    row_id: str | None  # the column that is an alias of the row id
    is_plain: bool  # no column is generated, and none hides the row id


class _Task(Struct, frozen=True):
    source: Source
    width: int
    wanted: list[Wanted]


def describe_table(root: int, columns: Sequence[tuple[str, str, int, int]], *, mentions_desc: bool) -> Layout:
    """Describe a table.

    Args:
        root: Its root page.
        columns: Name, declared type, position in the primary key from 1 (0: not in it), and kind (0: usual) of each.
        mentions_desc: Its definition has the word DESC: a primary key in descending order is no alias of the row id.
    """
    keys = [(name, declared) for name, declared, key, _ in columns if key]
    alias = keys[0][0] if len(keys) == 1 and keys[0][1].upper() == "INTEGER" else None
    names = tuple(name for name, *_ in columns)
    is_plain = (
        root > 1
        and not any(kind for *_, kind in columns)
        and ROW_ID not in {name.lower() for name in names}
        and not (alias is not None and mentions_desc)
    )
    return Layout(root, names, alias, is_plain)


def read_plain(
    path: Path,
    sources: Sequence[Source],
    layouts: Mapping[str, Layout],
    *,
    last_rows: Mapping[str, int],
    threads: int,
) -> dict[int, pl.DataFrame]:
    """Read the tables that are of the plain form.

    Args:
        path: The file.
        sources: Tables to read.
        layouts: How each is stored, by name.
        last_rows: Last row id of each, by name.
        threads: Number of threads.

    Returns:
        Rows as from `shape_rows`, by the position of the table in `sources`; tables that must be read by SQLite are
        missing.
    """
    tasks = {
        at: task
        for at, source in enumerate(sources)
        if (task := _plan(source, layouts.get(source.name))) is not None
    }
    if not tasks or not hasattr(os, "preadv"):  # not on Windows
        return {}
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return {}
    try:
        pages = open_pages(file)
        # row ids may be far apart
        most_rows = {
            at: min(
                last_rows.get(task.source.name, 0), pages.count * pages.size // (task.width + _LEAST_BYTES)
            )
            for at, task in tasks.items()
        }
        names = _choose_names(sum(most_rows.values()))
        tasks = {at: _mark_repeated(task, most_rows[at], names) for at, task in tasks.items()}
        with _open_pool(sum(most_rows.values()), threads) as pool:
            running = {
                at: _start(pool, pages, task, layouts[task.source.name].root, most_rows[at])
                for at, task in tasks.items()
            }
            total = sum(len(table.futures) for table in running.values() if table is not None)
            finished, done = {}, 0
            for at, table in running.items():
                finished[at] = None if table is None else _finish(table, done, total)
                done += 0 if table is None else len(table.futures)
    except UnusualPageError:
        return {}
    finally:
        os.close(file)
    return {at: rows for at, rows in finished.items() if rows is not None}


@contextmanager
def _open_pool(row_count: int, threads: int) -> Iterator[Executor]:
    """Open threads; an interrupt waits for the blocks in work, and for no others."""
    with open_executor(row_count, threads=max(1, threads)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _plan(source: Source, layout: Layout | None) -> _Task | None:
    """Plan the decoding of a table; None if SQLite must select its rows or convert its values."""
    if layout is None or source.table.any_of or source.table.rows_named:
        return None
    wanted = plan_columns(source, layout)
    return None if wanted is None else _Task(source, len(layout.columns), wanted)


def plan_columns(source: Source, layout: Layout) -> list[Wanted] | None:
    """Plan the decoding of the columns of a table; None if SQLite must convert its values."""
    table = source.table
    if not layout.is_plain or not source.columns:
        return None
    kinds = column_types(source)
    # numbers that may be real are mostly integers; a real one is not of the plain form
    if any(not (kind.is_numeric() or kind == pl.String) for kind in kinds.values()):
        return None
    wanted = []
    for ours, kind in kinds.items():
        theirs = source.columns[ours]
        if theirs != ROW_ID and theirs not in layout.columns:
            return None
        if kind == pl.String and (ours == "binary" or theirs in {ROW_ID, layout.row_id}):
            return None
        position = None if theirs == ROW_ID else layout.columns.index(theirs)
        is_narrow = table.columns[ours].words is None and SCHEMAS[table.frame][ours] == pl.Int32
        bits = 32 if is_narrow else 64
        wanted.append(Wanted(ours, position, theirs == layout.row_id, kind == pl.String, bits))
    return wanted


def _choose_names(row_count: int) -> pl.DataType:
    """Choose the type of names for this number of rows of all tables."""
    store = open_store() if row_count > _MOST_ROWS else None
    return NAME if store is None else store.dtype


def _mark_repeated(task: _Task, row_count: int, names: pl.DataType) -> _Task:
    """Mark the columns of texts that become names: of many events, the texts take more than all else.

    They are names in all frames of the report; here, each different text of a block is made one, not that of each row.
    """
    if task.source.table.frame != "nvtx" or row_count <= _MANY_ROWS:
        return task
    wanted = [replace(want, words=names if want.name == "text" else None) for want in task.wanted]
    return replace(task, wanted=wanted)


class _Table(Struct, frozen=True):
    """A table whose blocks are decoded, each by a future."""

    futures: list[Future[pl.DataFrame | None]]  # rows of the only block; None: they are among the columns
    columns: OrderedColumns


def _start(pool: Executor, pages: Pages, task: _Task, root: int, most_rows: int) -> _Table | None:
    """Start to decode the blocks of a table."""
    try:
        leaves = find_leaves(pages, root)
    except UnusualPageError:
        return None
    step = max(1, _BLOCK_BYTES // pages.size)
    blocks = [slice(at, at + step) for at in range(0, leaves.pages.size, step)]
    most_rows = min(most_rows, len(blocks) * _BLOCK_BYTES // (task.width + _LEAST_BYTES))
    repeated = {want.name: want.words for want in task.wanted if want.words is not None}
    columns = OrderedColumns(Columns(most_rows, repeated))

    def decode(number: int) -> pl.DataFrame | None:
        block = blocks[number]
        part = Leaves(leaves.pages[block], leaves.above[block], leaves.last[block])
        rows = shape_rows(task.source, decode_rows(pages, part, task.width, task.wanted), texts=repeated)
        # in this thread, because blocks would wait for one that does it
        texts = [name for name in repeated if rows.schema[name] == pl.String]
        rows = rows.with_columns(build_names(rows[name], repeated[name]) for name in texts) if texts else rows
        if len(blocks) == 1:  # all rows: no copy of them
            return rows
        columns.add(number, rows)
        return None

    return _Table([pool.submit(decode, number) for number in range(len(blocks))], columns)


def _finish(table: _Table, done: int, total: int) -> pl.DataFrame | None:
    """Wait for the blocks of a table; None if one is not of the plain form, or there is none.

    Args:
        table: The table.
        done: Blocks of other tables that are finished.
        total: Blocks of all tables.
    """
    rows = None
    try:
        for number, future in enumerate(table.futures, start=done + 1):
            rows = future.result()
            if len(table.futures) > 1:
                read, whole = (format_bytes(count * _BLOCK_BYTES) for count in (number, total))
                report_stage(f"read {read} of {whole}", number / total)
    except UnusualPageError:
        for future in table.futures:
            future.cancel()
        return None
    return table.columns.build() if len(table.futures) > 1 else rows
