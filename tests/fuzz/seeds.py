"""Sound inputs that targets change: small reports of the simulator, of several versions, and what is made of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import nsys_pp
from fixtures import simulate
from nsys_pp.options import DETAILS

_MOST_ROWS = 40  # of each table
_PAGE_BYTES = 512
_SHAPES = (
    ("--schema", "3.7.2"),
    ("--schema", "3.25.0", "--mpi", "--nccl-payload"),
    ("--schema", "3.0.0", "--xla"),
)
COUNT = len(_SHAPES)


@cache
def read_seed(number: int) -> tuple[bytes, bytes]:
    """Return the reports of two ranks."""
    with TemporaryDirectory() as folder:
        shape = ("--pp", "2", "--machines", "2", "--layers", "1", "--micro-batches", "1", "--steps", "2")
        simulate.main([folder, *shape, *_SHAPES[number], "--no-truth"])
        paths = sorted(Path(folder).rglob("*.sqlite"))
        for path in paths:
            _shrink(path)
        first, second = (path.read_bytes() for path in paths)
        return first, second


def _shrink(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in list_tables(connection):
            connection.execute(f'DELETE FROM "{name}" WHERE rowid > {_MOST_ROWS}')
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("VACUUM")


def list_tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
    return [name for (name,) in rows]


@cache
def read_tables(number: int) -> dict[str, pl.DataFrame]:
    """Return the tables of the first rank."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        path.write_bytes(read_seed(number)[0])
        with closing(sqlite3.connect(path)) as connection:
            return {
                name: pl.read_database(f'SELECT * FROM "{name}"', connection, infer_schema_length=None)
                for name in list_tables(connection)
            }


@cache
def read_part(number: int, rank: int = 0) -> bytes:
    """Return a part of a rank."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rank{rank}.sqlite"
        path.write_bytes(read_seed(number)[rank])
        output = path.with_suffix(".nspart")
        nsys_pp.extract(path, output, detail=DETAILS[-1 - number % len(DETAILS)])
        return output.read_bytes()
