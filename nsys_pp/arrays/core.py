"""The compiled functions of `core.c`; without them, numpy does the same in more passes.

The library is built with the wheel (`hatch_build.py`). Where it is missing, of another version, or `NSYS_PP_CORE=0` is set,
`load_core` returns None, and callers use the numpy functions of their own module, which tests compare it with.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.types import Int64s

LIBRARY = Path(__file__).with_name("libcore.so")
_VERSION = 2
_ARRAY = np.ctypeslib.ndpointer(dtype=np.int64, ndim=1, flags="C_CONTIGUOUS")
_CODES = np.ctypeslib.ndpointer(dtype=np.uint32, ndim=1, flags="C_CONTIGUOUS")
_MOST_EMPTY = 1 << 16  # codes without rows, of few rows
_RESULT = np.ctypeslib.ndpointer(dtype=np.int64, ndim=1, flags=("C_CONTIGUOUS", "WRITEABLE"))


class Core:
    """The functions of a library. Each checks its arguments: C does not."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pack_flat = library.core_pack_flat
        self._pack_flat.argtypes = [ctypes.c_int64, *[_ARRAY] * 3, _RESULT]
        self._pack_flat.restype = ctypes.c_int64
        self._pack_nested = library.core_pack_nested
        self._pack_nested.argtypes = [ctypes.c_int64, *[_ARRAY] * 4, *[_RESULT] * 2]
        self._pack_nested.restype = ctypes.c_int64
        self._sort_rows = library.core_sort_rows
        self._sort_rows.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, *[_RESULT] * 3]
        self._sort_rows.restype = ctypes.c_int64
        self._number_codes = library.core_number_codes
        self._number_codes.argtypes = [ctypes.c_int64, _CODES, ctypes.c_uint32, _CODES, _CODES, _RESULT]
        self._number_codes.restype = ctypes.c_int64

    def sort_rows(self, *keys: Int64s) -> Int64s:
        """Sort rows by several keys, as `nsys_pp.arrays.order.sort_rows`."""
        count = _count(*keys)
        columns = [_contiguous(key) for key in keys]
        addresses = (ctypes.c_void_p * len(columns))(*(column.ctypes.data for column in columns))
        order, scratch, bounds = (np.empty(length, dtype=np.int64) for length in (count, count, count + 1))
        _check(self._sort_rows(count, len(columns), addresses, order, scratch, bounds))
        return order

    def number_codes(
        self, codes: npt.NDArray[np.uint32], *, null: int
    ) -> tuple[Int64s, npt.NDArray[np.uint32]] | None:
        """Number codes 1, 2, ... in order of appearance.

        Args:
            codes: Codes of strings.
            null: Code of null, larger than all others; its number is 0.

        Returns:
            First row of each number from 1 on, number of each row; None if a table by code would be mostly empty.
        """
        codes = np.ascontiguousarray(codes, dtype=np.uint32)
        largest = int(codes[codes != null].max(initial=0))
        if largest > _MOST_EMPTY + 8 * len(codes):
            return None
        numbers, number_of = np.empty(len(codes), np.uint32), np.zeros(largest + 1, np.uint32)
        first = np.empty(min(len(codes), largest + 1), dtype=np.int64)
        count = self._number_codes(len(codes), codes, null, number_of, numbers, first)
        return first[:count], numbers

    def pack_flat(self, start: Int64s, end: Int64s) -> Int64s:
        """Assign slices to the first free subtrack, as `nsys_pp.write.trace.packing.pack_flat`."""
        count = _count(start, end)
        order = self.sort_rows(start, end)
        subtrack = np.empty(count, dtype=np.int64)
        _check(self._pack_flat(count, order, _contiguous(start), _contiguous(end), subtrack))
        return subtrack

    def pack_nested(self, start: Int64s, end: Int64s, above: Int64s) -> tuple[Int64s, Int64s]:
        """Assign nested slices to subtracks, as `nsys_pp.write.trace.packing.pack_nested`.

        Args:
            start: ns.
            end: ns, not before start.
            above: Row of the slice around each slice, which contains it; -1 for none. No cycles.

        Returns:
            Subtrack per slice; row of the slice around it in that subtrack, or -1.

        Raises:
            IndexError: A row is not there.
        """
        count = _count(start, end, above)
        if count and (above.min() < -1 or above.max() >= count):
            raise IndexError("a slice is in a row that is not there")
        order = self.sort_rows(start, end)
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count)
        subtrack = np.zeros(count, dtype=np.int64)
        left = np.array(above, dtype=np.int64)
        _check(self._pack_nested(count, order, rank, _contiguous(start), _contiguous(end), left, subtrack))
        return subtrack, left


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


def _count(*columns: Int64s) -> int:
    """Return the length of columns of one length.

    Raises:
        ValueError: Their lengths differ.
    """
    (count, *others) = {len(column) for column in columns}
    if others:
        raise ValueError("columns of different lengths")
    return count


def _check(result: int) -> None:
    if result:
        raise MemoryError("not enough memory for the compiled functions")
