"""The cache of exported reports: its folder, its permissions, and the removal of old exports."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from nsys_pp.errors import NsysPPError, ReportError

VARIABLE = "NSYS_PP_CACHE"
_DAYS_VARIABLE = "NSYS_PP_CACHE_DAYS"
_DAYS = 30.0
_EXPORT = re.compile(r".+-[0-9a-f]{16}-[0-9a-f]+-[0-9a-f]+(?:-[0-9a-f]{8})?\.sqlite", re.DOTALL)


def find_cache() -> Path:
    """Find the folder of the cache: `$NSYS_PP_CACHE`, else `nsys-pp` among the user's caches."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nsys-pp"


def make_cache() -> Path:
    """Make the folder of the cache, which its owner alone can read.

    A folder that `$NSYS_PP_CACHE` names and that exists keeps its permissions: a team may share it.

    Raises:
        OSError: It cannot be made.
    """
    folder = find_cache()
    is_ours = not os.environ.get(VARIABLE) or not folder.exists()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if is_ours and folder.stat().st_uid == _own_user():
        folder.chmod(0o700)  # an older version made it readable for all
    return folder


def protect_export(export: Path, report: Path) -> None:
    """Restrict an export to the permissions of its report: both contain the environment of the profiled program."""
    os.chmod(export, (export.stat().st_mode & report.stat().st_mode & 0o666) | 0o600)


@cache
def drop_old_exports(folder: Path, used: Path | None = None) -> None:
    """Remove exports older than `$NSYS_PP_CACHE_DAYS` (30) but the one in use, once per process.

    Raises:
        NsysPPError: The variable is no number of days.
    """
    oldest = time.time() - _read_days() * 86_400
    for export in list_exports(folder):
        with suppress(OSError):
            if export != used and export.stat().st_mtime < oldest:
                export.unlink()


def clear_cache() -> tuple[Path, int, int]:
    """Remove all exports from the cache.

    Returns:
        The folder, the number of removed exports, and their bytes.

    Raises:
        ReportError: One cannot be removed.
    """
    folder, size, count = find_cache(), 0, 0
    for export in list_exports(folder):
        try:
            size += export.stat().st_size
            export.unlink()
        except FileNotFoundError:  # by another process
            continue
        except OSError as error:
            raise ReportError(f"`{export}` cannot be removed: {error.strerror}", "ask its owner") from None
        count += 1
    return folder, count, size


def list_exports(folder: Path) -> list[Path]:
    """List the exports in a cache; empty without a cache."""
    try:
        return sorted(path for path in folder.iterdir() if _EXPORT.fullmatch(path.name))
    except OSError:
        return []


def find_newest_export(folder: Path, state: str) -> Path | None:
    """Find the newest export of a state of a report, of all versions of nsys; `state` begins the names of its exports."""
    newest = None
    for export in list_exports(folder):
        if export.name.startswith((f"{state}-", f"{state}.")):
            with suppress(OSError):
                newest = max(newest or (0, export), (export.stat().st_mtime_ns, export))
    return None if newest is None else newest[1]


def _read_days() -> float:
    text = os.environ.get(_DAYS_VARIABLE, "")
    try:
        days = float(text) if text else _DAYS
    except ValueError:
        days = -1.0
    if not days >= 0:
        raise NsysPPError(
            f"invalid `${_DAYS_VARIABLE}={text}`; expected a number of days",
            "unset it: the default is 30 days",
        )
    return days


def _own_user() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1
