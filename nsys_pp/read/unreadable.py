"""Errors of files that cannot be read: the system does not allow it, or they are pipes or devices."""

from __future__ import annotations

import stat
from pathlib import Path

from nsys_pp.errors import ReportError


def unreadable_error(path: str | Path, error: OSError) -> ReportError:
    """Return the error of a file or folder that cannot be read."""
    if isinstance(error, PermissionError):
        return ReportError(
            f"`{path}` may not be read: permission denied", "ask its owner, or copy it where you may read it"
        )
    return ReportError(
        f"`{path}` cannot be read: {error.strerror or error}", "check its name and its disk, or copy it again"
    )


def check_regular(path: Path) -> None:
    """Check that a path is no pipe, socket or device: to open one may wait for ever. Absent files pass.

    Raises:
        ReportError: It is one.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise ReportError(f"`{path}` is {kind}, not a file", "write its contents to a file first")
