"""Connections to a SQLite file, opened only where a query needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import adbc_driver_manager as adbc
import adbc_driver_sqlite

from nsys_pp.read.interruptible import open_interruptibly
from nsys_pp.read.sqlite_file import IMMUTABLE

# messages of SQLite on file systems without locks, which clusters have
_NO_LOCKS = ("disk i/o error", "locking protocol")

Call = Callable[[Callable[[adbc.AdbcConnection], Any]], Any]
"""Calls a function with a connection."""


class Connection:
    """A connection that is opened when it is first used.

    Args:
        stack: Closes it.
        uri: Of the database; without locks, if its file system has none.
    """

    def __init__(self, stack: ExitStack, uri: str) -> None:
        self._stack = stack
        self._call: Call | None = None
        self.uri = uri

    def call(self, work: Callable[[adbc.AdbcConnection], Any]) -> Any:
        """Call a function with the connection; an interrupt ends the wait for it."""
        if self._call is not None:
            return self._call(work)
        try:
            return self._open(work)
        except adbc.Error as error:
            if IMMUTABLE in self.uri or not any(sign in str(error).lower() for sign in _NO_LOCKS):
                raise
            self.uri += IMMUTABLE
            return self._open(work)

    def _open(self, work: Callable[[adbc.AdbcConnection], Any]) -> Any:
        call = self._stack.enter_context(open_interruptibly(partial(connect, self.uri)))
        result = call(work)
        self._call = call
        return result


@contextmanager
def connect(uri: str) -> Iterator[adbc.AdbcConnection]:
    """Open a connection; several threads may each open one."""
    with adbc_driver_sqlite.connect(uri) as database, adbc.AdbcConnection(database) as connection:
        yield connection
