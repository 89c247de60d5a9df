"""Ways in which a report of SQLite can be broken: a function that breaks it, and words of our sentence about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.sql import edit, select

PAGE = 4096
LEAST_BYTES = 45 * PAGE  # of a report that all of these break


def _cut(size: int) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, size if size > 0 else path.stat().st_size + size)


def _encrypt(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40 * PAGE : 45 * PAGE] = os.urandom(5 * PAGE)
    path.write_bytes(data)


def _fill_with_zeros(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2 * PAGE :] = bytes(len(data) - 2 * PAGE)
    path.write_bytes(data)


def _scramble_kernels(path: Path) -> None:
    """Break a page that is not looked at before the kernels are read."""
    [(root,)] = select(path, "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'")
    data = bytearray(path.read_bytes())
    interior = data[(root - 1) * PAGE : root * PAGE]
    assert interior[0] == 5  # a page of a tree that has pages below it
    cell = int.from_bytes(interior[12:14], "big")
    leaf = int.from_bytes(interior[cell : cell + 4], "big")
    data[(leaf - 1) * PAGE : leaf * PAGE] = b"\xa5" * PAGE
    path.write_bytes(data)


def make_foreign(path: Path) -> None:
    path.unlink()
    edit(path, "CREATE TABLE cats (name TEXT)")


def _make_pipe(path: Path) -> None:
    """Replace a report by a pipe, which nobody writes: to open it would wait for ever."""
    path.unlink()
    os.mkfifo(path)


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "not SQLite": (lambda path: path.write_text("no database\n" * 500), "is not a SQLite database"),
    "cut within the header": (_cut(50), "is truncated"),
    "cut after the header": (_cut(100), "is truncated"),
    "cut after a page": (_cut(PAGE), "is truncated"),
    "cut within a page": (_cut(10 * PAGE + 1234), "is truncated"),
    "cut by a page": (_cut(-PAGE), "is truncated"),
    "cut by a byte": (_cut(-1), "is truncated"),
    "scrambled": (_scramble, "is damaged"),
    "scrambled kernels": (_scramble_kernels, "is damaged"),
    "a hole to the end": (_fill_with_zeros, "is damaged"),
    "encrypted": (_encrypt, "is not a SQLite database, or an encrypted one"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "absent": (lambda path: path.unlink(), "does not exist"),
    "another database": (make_foreign, "has no table that Nsight Systems exports"),
    "a pipe": (_make_pipe, "is a pipe, not a file"),
    "a link to no file": (lambda path: _link(path, "none.sqlite"), "is a link to no file"),
    "a link to a device": (lambda path: _link(path, "/dev/zero"), "is a device, not a file"),
}
