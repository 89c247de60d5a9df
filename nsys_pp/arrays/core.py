"""The compiled functions of `core.c`; without them, numpy does the same in more passes.

The library is built with the wheel (`hatch_build.py`). Where it is missing, of another version, or `NSYS_PP_CORE=0` is set,
`load_core` returns None, and callers use the numpy functions of their own module, which tests compare it with.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import Executor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.core_arguments import MOST_ROWS, ArrayArgument, declare, find_address
from nsys_pp.arrays.types import Int64s

LIBRARY = Path(__file__).with_name("libcore.so")
_VERSION = 21
_HALF_OF_INT64 = 1 << 62
_MOST_OWNERS = 1 << 16
_ARRAY = ArrayArgument(np.int64)
_CODES = ArrayArgument(np.uint32)
_RESULT = ArrayArgument(np.int64, is_written=True)


class Core:
    """The functions of a library. Each checks its arguments: C does not."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, count, array, result = library, ctypes.c_int64, _ARRAY, _RESULT
        ops, windows = [count, array, array], [count, array, array]  # starts and ends; first and last
        self._find_first_rows = declare(library.core_find_first_rows, count, array, *[result] * 2)
        self._number_keys = declare(library.core_number_keys, count, array, _CODES, *[result] * 2)
        self._order_by_time = declare(library.core_order_by_time, count, *[array] * 3, count, result)
        self._order_by_number = declare(library.core_order_by_number, count, array, count, *[result] * 2)
        self._find_parents = declare(library.core_find_parents, count, *[array] * 3, *[result] * 2)
        self._search = declare(library.core_search, count, array, count, array, result)
        self._find_windows = declare(library.core_find_windows, *[count, *[array] * 3] * 2, *[result] * 2)
        self._find_extremes = declare(library.core_find_extremes, *ops, *windows, *[result] * 2)
        self._measure_unions = declare(library.core_measure_unions, *ops, count, *windows, result)
        self._sort_rows = declare(library.core_sort_rows, count, count, ctypes.c_void_p, *[result] * 3)
        # of arrays that `nearest.py` checks
        self.find_nearest = declare(
            library.core_find_nearest, count, *[array] * 2, count, *[array] * 2, count, count, result
        )
        self.find_launched = declare(
            library.core_find_launched, count, *[array] * 3, count, *[array] * 3, count, result
        )

    def sort_rows(self, *keys: Int64s) -> Int64s:
        """Sort rows by several keys, as `nsys_pp.arrays.order.sort_rows`."""
        count = _count(*keys)
        columns = [_contiguous(key) for key in keys]
        addresses = (ctypes.c_void_p * len(columns))(*(find_address(column) for column in columns))
        order, scratch, bounds = (np.empty(length, dtype=np.int64) for length in (count, count, count + 1))
        _check(self._sort_rows(count, len(columns), addresses, order, scratch, bounds))
        return order

    def find_first_rows(self, keys: Int64s) -> Int64s | None:
        """Find the first row of each key, as `nsys_pp.arrays.search.find_first_rows`; None where keys are too many."""
        first_row = np.empty(min(len(keys), _MOST_OWNERS), dtype=np.int64)
        found = np.empty(1, dtype=np.int64)
        if _check(self._find_first_rows(len(keys), _contiguous(keys), first_row, found)):
            return None
        return first_row[: found[0]]

    def number_keys(self, keys: Int64s) -> tuple[Int64s, npt.NDArray[np.uint32]] | None:
        """Number keys 0, 1, ... in order of appearance; None where keys are too many.

        Returns:
            First row of each number, number of each row.
        """
        first_row = np.empty(min(len(keys), _MOST_OWNERS), dtype=np.int64)
        found, number = np.empty(1, dtype=np.int64), np.empty(len(keys), dtype=np.uint32)
        if _check(self._number_keys(len(keys), _contiguous(keys), number, first_row, found)):
            return None
        return first_row[: found[0]], number

    def order_by_time(
        self, owner: Int64s, time: Int64s, second_key: Int64s, *, is_descending: bool = False
    ) -> Int64s:
        """Order rows by (owner, time, second key), stable, as `nsys_pp.arrays.time_order.order_by_time`.

        Args:
            owner: Any integers.
            time: ns.
            second_key: Any integers.
            is_descending: Of the second key: larger ones are before smaller ones.
        """
        count = _count(owner, time, second_key)
        order = np.empty(count, dtype=np.int64)
        columns = map(_contiguous, (owner, time, second_key))
        if _check(self._order_by_time(count, *columns, int(is_descending), order)):
            return np.lexsort((-second_key if is_descending else second_key, time, owner))
        return order

    def order_by_number(self, number: Int64s, limit: int) -> tuple[Int64s, Int64s]:
        """Order rows by number, stable, as `np.argsort`.

        Args:
            number: From 0 on.
            limit: Larger than all numbers.

        Returns:
            Order; count of the rows with a smaller number, for each number from 0 to `limit`.

        Raises:
            IndexError: A number is out of bounds.
        """
        if len(number) and (number.min() < 0 or number.max() >= limit):
            raise IndexError("a number that is out of bounds")
        order, before = np.empty(len(number), dtype=np.int64), np.empty(limit + 1, dtype=np.int64)
        _check(self._order_by_number(len(number), _contiguous(number), limit, before, order))
        return order, before

    def find_parents(self, owner: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
        """Find parents and depths, as `nsys_pp.arrays.nesting.find_parents`."""
        owner, end = _contiguous(owner), _contiguous(end)
        order = self.order_by_time(owner, start, end, is_descending=True)
        parent, depth = np.empty_like(order), np.empty_like(order)
        _check(self._find_parents(len(order), order, owner, end, parent, depth))
        return parent, depth

    def search(self, values: Int64s, wanted: Int64s) -> Int64s:
        """Find the first position with a value of at least each wanted one, as `np.searchsorted`.

        Fast where neighbours in `wanted` are near each other.

        Args:
            values: Ascending.
            wanted: In any order.
        """
        position = np.empty(len(wanted), dtype=np.int64)
        _check(self._search(len(values), _contiguous(values), len(wanted), _contiguous(wanted), position))
        return position

    def find_windows(
        self, ranges: tuple[Int64s, Int64s, Int64s], calls: tuple[Int64s, Int64s, Int64s]
    ) -> tuple[Int64s, Int64s] | None:
        """Find the calls inside ranges: positions from the first to after the last.

        Args:
            ranges: Owner, start and end of each range, in any order.
            calls: Of each call, by owner and start.

        Returns:
            `first` and `last` of `nsys_pp.projection.windows.find_windows`; None where the calls of an owner do not end
            in order of their starts.
        """
        range_count, call_count = _count(*ranges), _count(*calls)
        first, last = np.empty(range_count, dtype=np.int64), np.empty(range_count, dtype=np.int64)
        columns = (call_count, *map(_contiguous, calls), range_count, *map(_contiguous, ranges))
        return None if _check(self._find_windows(*columns, first, last)) else (first, last)

    def find_extremes(self, start: Int64s, end: Int64s, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
        """Find the operation of each window that starts first, and the one that ends last; the first of equal ones.

        Args:
            start: ns, of each operation.
            end: ns.
            first: First operation of each window.
            last: Operation after the last; every window holds at least one.

        Raises:
            IndexError: A window holds operations that are not there, or none.
        """
        columns = _check_windows(start, end, first, last)
        first_op, last_op = np.empty(len(first), dtype=np.int64), np.empty(len(first), dtype=np.int64)
        _check(self._find_extremes(*columns, first_op, last_op))
        return first_op, last_op

    def measure_unions(
        self,
        start: Int64s,
        end: Int64s,
        first: Int64s,
        last: Int64s,
        *,
        middle: int = 0,
        threads: Executor | None = None,
    ) -> Int64s | None:
        """Measure the union of the operations of each window in ns.

        Args:
            start: ns, of each operation; in any order.
            end: ns.
            first: As for `find_extremes`.
            last: As for `find_extremes`.
            middle: An operation such that no window has operations before it and others from it on; 0 always is.
            threads: Executor for the operations from `middle` on; None: not concurrently.

        Returns:
            ns; None where an operation ends before its start, or times are too far apart for their differences.

        Raises:
            IndexError: A window holds operations that are not there, or none, or some on both sides of `middle`.
        """
        count, start, end, *windows = _check_windows(start, end, first, last)
        if not 0 <= middle <= count or ((first < middle) & (last > middle)).any():
            raise IndexError("a window with operations on both sides of the middle")
        if count and ((end < start).any() or int(end.max()) - int(start.min()) >= _HALF_OF_INT64):
            return None
        length = np.empty(len(first), dtype=np.int64)
        halves = [slice(middle, count), slice(0, middle)] if middle else [slice(0, count)]
        arguments = [
            (half.stop - half.start, start[half], end[half], half.start, *windows, length) for half in halves
        ]
        if threads is None:
            results = [self._measure_unions(*half) for half in arguments]
        else:
            later = [threads.submit(self._measure_unions, *half) for half in arguments[1:]]
            results = [self._measure_unions(*arguments[0]), *(task.result() for task in later)]
        for result in results:
            _check(result)
        return length


@cache
def load_core() -> Core | None:
    """Load the library; None where it is not used."""
    if os.environ.get("NSYS_PP_CORE") == "0" or not LIBRARY.is_file():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.core_version.restype = ctypes.c_int64
        return Core(library) if library.core_version() == _VERSION else None
    except (OSError, AttributeError):  # of another platform
        return None


def _contiguous(values: Int64s) -> Int64s:
    return np.ascontiguousarray(values, dtype=np.int64)


def _count(*columns: npt.NDArray[np.integer[Any]]) -> int:
    """Return the length of columns of one length.

    Raises:
        ValueError: Their lengths differ.
    """
    (count, *others) = {len(column) for column in columns}
    if others:
        raise ValueError("columns of different lengths")
    return count


def _check_windows(
    start: Int64s, end: Int64s, first: Int64s, last: Int64s
) -> tuple[int, Int64s, Int64s, int, Int64s, Int64s]:
    """Check windows of operations, and return the arguments of the library's functions over these.

    Raises:
        IndexError: A window holds operations that are not there, or none.
    """
    count, window_count = _count(start, end), _count(first, last)
    if max(count, window_count) >= MOST_ROWS:
        raise IndexError("too many rows")
    if window_count and (first.min() < 0 or last.max() > count or (first >= last).any()):
        raise IndexError("a window of operations that are not there")
    return (
        *(count, _contiguous(start), _contiguous(end)),
        *(window_count, _contiguous(first), _contiguous(last)),
    )


def _check(result: int) -> int:
    """Return the result of a function.

    Raises:
        MemoryError: It failed.
    """
    if result < 0:
        raise MemoryError("not enough memory")
    return result
