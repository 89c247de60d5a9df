"""Error of a file that the system does not let us read."""

from __future__ import annotations

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
