"""Memory of large arrays: returned to the system when it is freed.

The C library of Linux keeps freed memory for later requests, in pieces that larger arrays do not fit into. Where stages
allocate and free hundreds of megabytes each, that doubles the peak.
"""

from __future__ import annotations

import ctypes
from functools import cache

_LARGE_BYTES = 32 << 20  # below, the calls to the system take longer than the work on the array
_PAD_BYTES = 1 << 20  # requested beyond what is needed
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # of glibc's malloc.h


def map_large_arrays() -> None:
    """Have the C library request large arrays from the system one by one; to be called before there are any.

    It keeps memory of smaller ones until `return_freed`: by default it returns what is free at the end of a thread's
    memory at once, and a loop over blocks then requests the same pages again and again. All threads share this memory:
    by default, what one of them frees is for itself alone. Nothing happens without glibc.
    """
    if (library := _load()) is not None:
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TOP_PAD, _PAD_BYTES)
        library.mallopt(_ARENA_MAX, 1)


def return_freed() -> None:
    """Return freed memory to the system, a few milliseconds for a gigabyte; nothing happens without glibc."""
    if (library := _load()) is not None:
        library.malloc_trim(0)


@cache
def _load() -> ctypes.CDLL | None:
    """Load the C library; None if it is not glibc."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
