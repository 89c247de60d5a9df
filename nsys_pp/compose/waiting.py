"""Waiting for inputs until they exist and are complete."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.compose.progress import Progress, Share, report_progress
from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.read import find_reports
from nsys_pp.read.completeness import Stamp, find_lack, has_end, read_stamp

_POLL_S = 1.0
_SETTLED_S = 4.0  # without an end mark, a file is complete when it has not changed for so long
_MOST_NAMED = 8
_HINT = "wait longer with `--wait-timeout`"


class Arrivals(Struct, frozen=True, kw_only=True):
    """Result of waiting."""

    paths: list[Path]  # complete inputs
    missing: list[tuple[Path, NsysPPError]]  # incomplete inputs, and those that never came


class _Search(Struct):
    """State of the inputs at the last search, and times of their last changes."""

    stamps: dict[Path, tuple[Stamp, float]] = field(default_factory=dict)
    absent: dict[str, ReportError] = field(default_factory=dict)  # inputs that match no file
    complete: list[Path] = field(default_factory=list)
    incomplete: dict[Path, ReportError] = field(default_factory=dict)

    def repeat(self, inputs: Sequence[str | Path], *, with_parts: bool, without: Path | None) -> None:
        self.absent, self.complete, self.incomplete = {}, [], {}
        now = time.monotonic()
        for path in find_reports(inputs, with_parts=with_parts, absent=self.absent, without=without):
            stamp = read_stamp(path)
            before, since = self.stamps.get(path, (None, now))
            self.stamps[path] = stamp, since if stamp == before else now
            lack = find_lack(path)
            if lack is None and not has_end(path) and now - self.stamps[path][1] < _SETTLED_S:
                lack = ReportError(f"`{path}` is still growing", _HINT)
            if lack is None:
                self.complete.append(path)
            else:
                self.incomplete[path] = lack


def wait_for_reports(
    inputs: Sequence[str | Path],
    *,
    count: int,
    timeout_s: float = 3600.0,
    with_parts: bool = True,
    without: Path | None = None,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> Arrivals:
    """Search inputs repeatedly until they match the expected number of files, all complete.

    Args:
        inputs: Reports, parts, folders of them, or patterns; they need not exist yet.
        count: Expected number of files; all that match must be complete, also if there are more.
        timeout_s: Time limit.
        with_parts: Include parts.
        without: A file that is passed over in folders.
        keep_going: After the time limit, return the complete files and the missing ones.
        progress: Receives the number of complete files.

    Raises:
        ReportError: The time limit is over; with `keep_going`, no file is complete.
    """
    began, search = time.monotonic(), _Search()
    while True:
        search.repeat(inputs, with_parts=with_parts, without=without)
        if not search.incomplete and not search.absent and len(search.complete) >= count:
            return Arrivals(paths=search.complete, missing=[])
        left_s = timeout_s - (time.monotonic() - began)
        if left_s <= 0:
            break
        arrived = min(len(search.complete), count)
        activity = (
            f"waiting for {count - arrived} more reports" if arrived < count else "waiting for the rest"
        )
        report_progress(progress, activity, Share.of(arrived, count, doing="waiting"))
        time.sleep(min(_POLL_S, left_s))
    if not keep_going or not search.complete:
        raise ReportError(
            _describe_lack(search, count, timeout_s),
            f"{_HINT}, or go on with what is whole with `--keep-going`",
        )
    return Arrivals(paths=search.complete, missing=_list_missing(inputs, search, count, timeout_s))


def _summarise_count(search: _Search, count: int, timeout_s: float) -> str:
    return f"after {format_wait(timeout_s)}, {len(search.complete)} of {count} reports are there and whole"


def _describe_lack(search: _Search, count: int, timeout_s: float) -> str:
    """Describe all missing inputs in one sentence."""
    lacks = [error.message for error in (*search.absent.values(), *search.incomplete.values())]
    lacks.sort(key=natural_key)
    more = [f"and {len(lacks) - _MOST_NAMED} more"] * (len(lacks) > _MOST_NAMED)
    details = ["; ".join([*lacks[:_MOST_NAMED], *more])] * bool(lacks)
    return ": ".join([_summarise_count(search, count, timeout_s), *details])


def _list_missing(
    inputs: Sequence[str | Path], search: _Search, count: int, timeout_s: float
) -> list[tuple[Path, NsysPPError]]:
    """List incomplete and absent inputs; one more entry if these do not explain the number of files."""
    missing: list[tuple[Path, NsysPPError]] = [
        (Path(name), ReportError(f"{error.message} after {format_wait(timeout_s)}", _HINT))
        for name, error in search.absent.items()
    ]
    missing += search.incomplete.items()
    if len(search.complete) + len(search.incomplete) < count and not search.absent:
        error = ReportError(_summarise_count(search, count, timeout_s), _HINT)
        missing.append((_find_common_folder(inputs), error))
    return missing


def _find_common_folder(inputs: Sequence[str | Path]) -> Path:
    if len(inputs) == 1:
        return Path(inputs[0])
    return Path(os.path.commonpath([Path(name).absolute() for name in inputs]))


def format_wait(seconds: float) -> str:
    """Format a timeout in its largest whole unit.

    >>> format_wait(5400), format_wait(600), format_wait(3600), format_wait(1.5)
    ('90m', '10m', '1h', '1.5s')
    """
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"
