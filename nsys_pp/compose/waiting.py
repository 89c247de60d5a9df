"""Waits until reports are there, and whole."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.compose.batch import Skipped
from nsys_pp.compose.progress import Progress, Share, tell
from nsys_pp.errors import ReportError
from nsys_pp.read import find_reports
from nsys_pp.read.whole import Stamp, find_lack, take_stamp, tells_its_end

_LOOK_S = 1.0
_SETTLED_S = 4.0  # what tells its end in no other way has come when it did not change for so long
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What is waited for."""

    count: int  # reports
    timeout_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """What came."""

    paths: list[Path]
    skipped: Skipped  # what is there and not whole


@dataclass(slots=True)
class _Look:
    """What was seen, and since when it has not changed."""

    stamps: dict[Path, tuple[Stamp, float]] = field(default_factory=dict)
    absent: list[ReportError] = field(default_factory=list)  # of inputs that name nothing
    whole: list[Path] = field(default_factory=list)
    lacking: dict[Path, ReportError] = field(default_factory=dict)

    def take(self, inputs: Sequence[str | Path], *, with_parts: bool) -> None:
        self.absent, self.whole, self.lacking = [], [], {}
        now = time.monotonic()
        for path in find_reports(inputs, with_parts=with_parts, absent=self.absent):
            stamp = take_stamp(path)
            before, since = self.stamps.get(path, (None, now))
            self.stamps[path] = stamp, since if stamp == before else now
            lack = find_lack(path)
            if lack is None and not tells_its_end(path) and now - self.stamps[path][1] < _SETTLED_S:
                lack = ReportError(f"`{path}` is still growing", "wait longer with `--wait-timeout`")
            if lack is None:
                self.whole.append(path)
            else:
                self.lacking[path] = lack


def wait_for_reports(
    inputs: Sequence[str | Path],
    wait: Wait,
    *,
    with_parts: bool = True,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> Waited:
    """Look at inputs again and again, until they name so many reports and each of them is whole.

    Args:
        inputs: Reports, parts, directories of them, or patterns; they need not be there yet.
        wait: For what, and how long.
        with_parts: Parts count.
        keep_going: When time is over, go on with what is whole; warns of what is missing.
        progress: Told what is going on.

    Raises:
        ReportError: Time is over; with `keep_going`, nothing is whole.
    """
    began, look = time.monotonic(), _Look()
    while True:
        look.take(inputs, with_parts=with_parts)
        if not look.lacking and not look.absent and len(look.whole) >= wait.count:
            return Waited(paths=look.whole, skipped=[])
        left_s = wait.timeout_s - (time.monotonic() - began)
        if left_s <= 0:
            break
        came = min(len(look.whole), wait.count)
        what = (
            f"waiting for {wait.count - came} more reports" if came < wait.count else "waiting for the rest"
        )
        tell(progress, what, Share.of(came, wait.count, doing="waiting"))
        time.sleep(min(_LOOK_S, left_s))
    lack = _describe_lack(look, wait)
    if not keep_going or not look.whole:
        raise ReportError(
            lack, "wait longer with `--wait-timeout`, or go on with what is whole with `--keep-going`"
        )
    if len(look.whole) < wait.count or look.absent:
        warnings.warn(lack, stacklevel=2)
    return Waited(paths=look.whole, skipped=list(look.lacking.items()))


def _describe_lack(look: _Look, wait: Wait) -> str:
    """Say in one sentence what did not come."""
    found = (
        f"after {format_wait(wait.timeout_s)}, {len(look.whole)} of {wait.count} reports are there and whole"
    )
    lacks = [error.message for error in (*look.absent, *look.lacking.values())]
    lacks.sort(key=natural_key)
    more = [f"and {len(lacks) - _MOST_NAMED} more"] * (len(lacks) > _MOST_NAMED)
    return ": ".join([found, *["; ".join([*lacks[:_MOST_NAMED], *more])] * bool(lacks)])


def format_wait(seconds: float) -> str:
    """Write a time to wait as it is given.

    >>> format_wait(5400), format_wait(600), format_wait(3600), format_wait(1.5)
    ('90m', '10m', '1h', '1.5s')
    """
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"
