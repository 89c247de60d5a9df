"""The compiled libraries: each `x.c` is beside the one module that uses it, and `libx.so` beside that.

They are built when nsys-pp is installed (`hatch_build.py`) and required. A library is loaded once, and the
sizes of the structures that cross are compared: a library of other sources is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

from nsys_pp.errors import NsysPPError

_AGAIN = (
    "install nsys-pp again: `pip install --force-reinstall nsys-pp`; in a checkout:"
    " `pip install --no-deps -e .`"
)


def load_library(source: Path, sizes: Mapping[str, int]) -> ctypes.CDLL:
    """Load the library of a source.

    Args:
        source: The file in C.
        sizes: Bytes of each structure, by the function that returns what C has.

    Raises:
        NsysPPError: It is missing, or was built of other sources.
    """
    path = source.with_name(f"lib{source.stem}.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NsysPPError(f"the compiled library `{path}` cannot be loaded: {error}", _AGAIN) from None
    for name, size in sizes.items():
        find_size = getattr(library, name, None)
        if find_size is None or find_size() != size:
            raise NsysPPError(f"the compiled library `{path}` is of another version", _AGAIN)
    return library
