"""Choices read from bytes: the fuzzer changes bytes, and a target makes its input of the choices that they are."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import polars as pl

import nsys_pp
from fixtures import simulate
from nsys_pp.options import DETAILS

T = TypeVar("T")


class Choices:
    """A sequence of choices; at the end of the bytes all are 0, the first, and nothing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_used_up(self) -> bool:
        return self._at >= len(self._data)

    def byte(self) -> int:
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value

    def below(self, limit: int) -> int:
        """Choose a number from 0 on; of one byte if that is enough."""
        size = max(1, (max(limit, 1) - 1).bit_length() + 7 >> 3)
        value = int.from_bytes(bytes(self.byte() for _ in range(size)), "little")
        return value % max(limit, 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def take(self, length: int) -> bytes:
        chunk = self._data[self._at : self._at + length]
        self._at += length
        return chunk


Value = int | float | str | bytes | None


NUMBERS = [
    *(0, 1, -1, 2, 7, 59, 60, 70, 255, 10**6, 10**9, 10**12, 999_999_999_999),
    *(2**15, 2**24, 2**31 - 1, 2**31, 2**32, 2**40, 2**48, 2**53, 2**56, 2**62, 2**63 - 1),
    *(-(2**31), -(2**40), -(2**62), -(2**63), -(2**63) + 1),
]


TEXTS = [
    *("", " ", "0", "-1", "1e400", "99999999999999999999", "9" * 5000, "٣", "x", "a=b", "=1+1", "\0", "a\0b"),
    *(
        "\x1b[31m",
        "line\nbreak",
        "\u202eright",
        "step_10",
        "step_99999999999",
        "forward_0",
        "forward_9",
        "rank7",
    ),
    *(
        "RANK=3",
        "WORLD_SIZE=2",
        "RANK=99999999999",
        "LOCAL_RANK=-1",
        "SLURM_PROCID=5",
        "ncclKernel_AllReduce",
    ),
    *(
        "[",
        "{",
        '{"a":1}',
        "../../etc",
        "/",
        "%s{0}",
        "\U0001f600" * 300,
        "é" * 70_000,
        "NaN",
        "inf",
        "null",
        "true",
    ),
]


BYTES = [b"", b"\xff", b"\xff\xfe\xff", b"\0" * 9, bytes(range(256)), b"\xed\xa0\x80", b"\x80" * 3000]


REALS = [0.0, -0.0, 1.5, 0.1, 1e18, 9.3e18, -9.3e18, 1e308, math.inf, -math.inf, 5e-324, 2.0**53]


def pick_value(choices: Choices) -> Value:
    kind = choices.below(10)
    if kind == 0:
        return None
    if kind < 5:
        number = choices.pick(NUMBERS) + choices.pick([0, 0, 0, 1, -1])
        return max(-(2**63), min(number, 2**63 - 1))
    if kind < 7:
        return choices.pick(TEXTS)
    if kind == 7:
        return choices.pick(BYTES)
    if kind == 8:
        return choices.pick(REALS)
    return choices.take(choices.below(40)).decode("utf-8", "replace")


def change_bytes(data: bytes, choices: Choices, *, block: int = 512, most: int = 12) -> bytes:
    """Change some bytes, or blocks of them as the pages of a file."""
    changed = bytearray(data)
    for _ in range(1 + choices.below(most)):
        if not changed:
            break
        at = choices.below(len(changed))
        kind = choices.below(9)
        blocks = max(1, len(changed) // block)
        if kind <= 2:
            changed[at] = choices.byte()
        elif kind == 3:
            changed[at] ^= 1 << choices.below(8)
        elif kind == 4:  # a number
            width = choices.pick([2, 4, 8])
            order = "big" if choices.below(2) else "little"
            number = choices.pick(NUMBERS) % (1 << 8 * width)
            changed[at : at + width] = number.to_bytes(width, order)  # type: ignore[arg-type]
        elif kind == 5:  # a block in another's place
            source, target = (block * choices.below(blocks) for _ in range(2))
            changed[target : target + block] = changed[source : source + block]
        elif kind == 6:
            target = block * choices.below(blocks)
            changed[target : target + block] = bytes(min(block, len(changed) - target))
        elif kind == 7:
            changed[at:] = changed[at : at + choices.below(len(changed))]
        else:
            changed[at:at] = choices.take(choices.below(16))
        if choices.is_used_up:
            break
    return bytes(changed)


MOST_ROWS = 40  # of each table


_PAGE_BYTES = 512


_SHAPES = (
    ("--schema", "3.7.2"),
    ("--schema", "3.25.0", "--mpi", "--nccl-payload"),
    ("--schema", "3.0.0", "--xla"),
)


COUNT = len(_SHAPES)


@cache
def read_seed(number: int) -> tuple[bytes, bytes]:
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
            connection.execute(f'DELETE FROM "{name}" WHERE rowid > {MOST_ROWS}')
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("VACUUM")


def list_tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
    return [name for (name,) in rows]


@cache
def read_tables(number: int) -> dict[str, pl.DataFrame]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        path.write_bytes(read_seed(number)[0])
        with closing(sqlite3.connect(path)) as connection:
            return {
                name: pl.read_database(f'SELECT * FROM "{name}"', connection, infer_schema_length=None)
                for name in list_tables(connection)
            }


@cache
def read_seed_part(number: int, rank: int = 0) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rank{rank}.sqlite"
        path.write_bytes(read_seed(number)[rank])
        output = path.with_suffix(".nspart")
        nsys_pp.extract(path, output, detail=DETAILS[-1 - number % len(DETAILS)])
        return output.read_bytes()
