"""Paged memory: large arrays of numpy in files without a name, for reports whose working arrays would not fit memory.

numpy allocates by a handler that can be replaced (NEP 49, since 1.22). Ours, in `core.c`, maps a file for each large array, so that
the pages which no function is working on can be dropped from this process: they stay in the system's cache, which writes them
to the disk where memory is short. All functions over arrays then need memory for what they touch within a moment, and not for their
whole arrays. Written once and read once, a mapped page takes as long as one in memory, or less.

Without the compiled functions, on other systems than Linux, and where the disk is full, arrays are in memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nsys_pp.arrays.core import load_core

_SET_HANDLER = 304  # index of PyDataMem_SetHandler in numpy's table of C functions, which is only appended to
_NAME = b"mem_handler"  # of a capsule with a handler


class PagedMemory:
    """Paged memory of this process; one at a time is open.

    Args:
        folder: For the files, on a disk with space for them.
        least_bytes: Of an array in a file, at least 1.
    """

    def __init__(self, folder: Path, least_bytes: int) -> None:
        self._library: ctypes.CDLL | None = None
        self._handler: Any = None
        library = _load_library()
        if library is None or _find_setter() is None:
            return
        if not library.core_open_paged(os.fsencode(folder), least_bytes):
            self._library, self._handler = library, _build_handler(library.core_paged_handler())

    @property
    def is_open(self) -> bool:
        """Whether there is paged memory on this machine."""
        return self._library is not None

    def use(self) -> Callable[[], None]:
        """Have this thread allocate its arrays in paged memory; the returned function ends that."""
        setter = _find_setter()
        if self._handler is None or setter is None:
            return lambda: None
        before = setter(self._handler)

        def end() -> None:
            setter(before)

        return end

    def has(self, values: np.ndarray[Any, Any]) -> bool:
        """Return whether an array begins a file."""
        return self._library is not None and bool(self._library.core_is_paged(values.ctypes.data))

    def close(self) -> None:
        """End it: new arrays are in memory, and existing ones stay valid."""
        if self._library is not None:
            self._library.core_open_paged(b"", 0)


def drop_paged_arrays() -> None:
    """Drop the pages of all arrays in files from memory, also after paged memory is closed."""
    if (library := _load_library()) is not None:
        library.core_drop_pages()


@cache
def _load_library() -> ctypes.CDLL | None:
    """Load the compiled functions of paged memory; None without them."""
    core = load_core()
    if core is None:
        return None
    library = core.library
    library.core_open_paged.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    library.core_is_paged.argtypes = [ctypes.c_void_p]
    library.core_paged_handler.restype = ctypes.c_void_p
    for function in (library.core_open_paged, library.core_is_paged, library.core_drop_pages):
        function.restype = ctypes.c_int64
    return library


def _build_handler(address: int) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule: object = new(address, _NAME, None)
    return capsule


@cache
def _find_setter() -> Callable[[object], object] | None:
    """Find numpy's function that replaces the handler of the current thread, and returns the one before."""
    core = getattr(np, "_core", None) or np.core
    table = getattr(core.multiarray, "_ARRAY_API", None)
    if table is None:
        return None
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    functions = ctypes.cast(read(table, None), ctypes.POINTER(ctypes.c_void_p))
    address = functions[_SET_HANDLER]
    if not address:
        return None
    setter: Callable[[object], object] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    return setter
