"""Paths as text: names of files are bytes on Linux, and texts of tables and traces are Unicode."""

from __future__ import annotations

import os
from pathlib import Path


def describe_path(path: Path | str) -> str:
    r"""Return a path as text; bytes that are no UTF-8 are escaped.

    >>> describe_path(Path("run/rank0.sqlite")), describe_path(Path("caf\udce9.sqlite"))
    ('run/rank0.sqlite', 'caf\\xe9.sqlite')
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")
