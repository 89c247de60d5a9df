"""Arrays as arguments of compiled functions, checked as by `numpy.ctypeslib.ndpointer`, whose check takes twice as long as a call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

MOST_ROWS = 1 << 31
"""Compiled functions number rows by 32 bits."""
_find_byte: Callable[[NDArray[Any]], ctypes.c_char] = ctypes.c_char.from_buffer  # type: ignore[assignment]
_find_address = ctypes.addressof


def find_address(values: NDArray[Any]) -> int:
    """Find the address of an array's first byte: `values.ctypes.data`, which takes three times as long.

    The caller keeps the array while it uses the address, and checks that its form is the expected one.
    """
    if values.flags.writeable:  # ctypes has no buffer of others
        try:
            return _find_address(_find_byte(values))
        except (TypeError, ValueError):  # nor of empty ones, or with gaps
            pass
    return values.ctypes.data


class ArrayArgument:
    """Type of an argument of ctypes: a contiguous array of one dimension, passed as its address.

    Args:
        dtype: Of the array.
        is_written: The function writes to it.
    """

    def __init__(self, dtype: DTypeLike, *, is_written: bool = False) -> None:
        self._dtype, self._is_written = np.dtype(dtype), is_written

    def from_param(self, values: NDArray[Any]) -> ctypes.c_void_p:
        """Return the address of an array.

        Raises:
            TypeError: It is of another type or form.
        """
        flags = values.flags
        is_fit = values.dtype == self._dtype and values.ndim == 1 and flags.c_contiguous
        if not is_fit or (self._is_written and not flags.writeable):
            raise TypeError(f"expected a contiguous array of {self._dtype}")
        return ctypes.c_void_p(find_address(values))


def declare(function: Any, *arguments: object) -> Callable[..., int]:
    """Declare the types of the arguments of a compiled function, which returns a number."""
    function.argtypes, function.restype = arguments, ctypes.c_int64
    declared: Callable[..., int] = function
    return declared
