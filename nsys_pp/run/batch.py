"""The last resort of a report: an error without words of its own becomes a sentence that names the report."""

from __future__ import annotations

import errno
import os
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field

from nsys_pp.arrays.natural_sort import natural_key
from nsys_pp.errors import (
    REPORT_IT,
    NsysPPError,
    OptionError,
    OutputError,
    ReportError,
    UnforeseenError,
    describe_unforeseen,
)
from nsys_pp.executors.executor import (
    Executor,
    Outcome,
    RemoteTraceback,
    SerialExecutor,
    as_exception,
    choose_executor,
)
from nsys_pp.read import find_reports
from nsys_pp.read.readers import Stamp, find_lack, has_end, read_stamp
from nsys_pp.run.options import (
    BatchOptions,
    Inputs,
    Progress,
    Share,
    check_least,
    parse_inputs,
    report_progress,
)
from nsys_pp.stages import follow_stages

# of files that are written, whichever report is being read
_OF_OUTPUTS = {errno.ENOSPC, errno.EDQUOT, errno.EPIPE, errno.EROFS}


def is_about_outputs(error: Exception) -> bool:
    """Return whether an error is about the output of all reports, so that no report can be blamed or skipped."""
    return isinstance(error, OutputError) or (isinstance(error, OSError) and error.errno in _OF_OUTPUTS)


def unforeseen_error(path: Path, error: Exception, *, details: str = "") -> NsysPPError:
    """Return the error of a report whose processing raised an error that is none of nsys-pp.

    Args:
        path: The report.
        error: The error.
        details: Its traceback; of `error` itself if empty.
    """
    if isinstance(error, MemoryError):
        return NsysPPError(
            f"`{path}` cannot be processed: there is not enough memory",
            "raise the memory limit of the job, use `--processes 1`, or draw less with `--detail`",
        )
    return UnforeseenError(
        f"`{path}` cannot be processed: unforeseen {describe_unforeseen(error)}",
        REPORT_IT,
        details or "".join(traceback.format_exception(error)),
    )


T = TypeVar("T")
_MOST_ODD = 8  # each costs the work on all inputs about twice


def leave_out_odd(
    inputs: Sequence[T], work: Callable[[Sequence[T]], object], skip: Callable[[T, Exception], None]
) -> list[T]:
    """Leave out the inputs on which some work fails unforeseen, each alone.

    Args:
        inputs: The inputs.
        work: The work, on any of the inputs; its warnings are emitted once, for the inputs that are left.
        skip: Receives each input that is left out, and its error; may raise an error instead.

    Returns:
        The other inputs.

    Raises:
        Exception: Raised by the work, where no input alone is the cause; foreseen errors (`NsysPPError`) always.
    """
    left = list(inputs)
    for _ in range(_MOST_ODD):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error = _try(work, left)
        if error is None or len(left) < 2:
            break
        odd = _find_odd(left, work)
        if odd is None:
            raise error
        skip(*odd)
        left = [one for one in left if one is not odd[0]]
    for record in caught:
        warnings.warn(record.message, stacklevel=5)
    if error is not None:
        raise error
    return left


def _find_odd(inputs: Sequence[T], work: Callable[[Sequence[T]], object]) -> tuple[T, Exception] | None:
    """Find an input that fails alone, in halves; None if both halves of some inputs succeed."""
    suspects, error = inputs, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(suspects) > 1:
            middle = len(suspects) // 2
            for half in (suspects[:middle], suspects[middle:]):
                error = _try(work, half, is_trial=True)
                if error is not None:
                    suspects = half
                    break
            else:
                return None
    return None if error is None else (suspects[0], error)


def _try(
    work: Callable[[Sequence[T]], object], inputs: Sequence[T], *, is_trial: bool = False
) -> Exception | None:
    """Return the unforeseen error of some work; None if it succeeds, or is refused in a trial."""
    try:
        work(inputs)
    except NsysPPError:
        if not is_trial:
            raise
    except BaseException as raised:
        error = as_exception(raised)
        if is_about_outputs(error) or isinstance(error, MemoryError):
            raise
        return error
    return None


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

    def repeat(self, inputs: Sequence[str | Path], *, with_parts: bool) -> None:
        self.absent, self.complete, self.incomplete = {}, [], {}
        now = time.monotonic()
        for path in find_reports(inputs, with_parts=with_parts, absent=self.absent):
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
    keep_going: bool = False,
    progress: Progress | None = None,
) -> Arrivals:
    """Search inputs repeatedly until they match the expected number of files, all complete.

    Args:
        inputs: Reports, parts, folders of them, or patterns; they need not exist yet.
        count: Expected number of files; all that match must be complete, also if there are more.
        timeout_s: Time limit.
        with_parts: Include parts.
        keep_going: After the time limit, return the complete files and the missing ones.
        progress: Receives the number of complete files.

    Raises:
        ReportError: The time limit is over; with `keep_going`, no file is complete.
    """
    began, search = time.monotonic(), _Search()
    while True:
        search.repeat(inputs, with_parts=with_parts)
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


Skipped: TypeAlias = list[tuple[Path, NsysPPError]]
"""Skipped inputs, each with its error."""


class Batch:
    """Inputs of a command, and the functions that process all of them.

    Nothing is read or waited for before `paths` is used.

    Args:
        inputs: Reports, folders of them, or glob patterns.
        options: Keywords. With `keep_going`, inputs that fail or match no file are skipped, but neither the only one nor all.
        with_parts: Include parts.

    Raises:
        OptionError: A value is invalid.
    """

    def __init__(self, inputs: Inputs, options: BatchOptions, *, with_parts: bool = True) -> None:
        self.inputs = parse_inputs(inputs)
        self.nsys = None if (nsys := options.get("nsys")) is None else str(nsys)
        self.progress = options.get("progress")
        self._options = options
        self._with_parts = with_parts
        self._failed: dict[Path, NsysPPError] = {}
        self._missing: Skipped = []
        check_least("processes", options.get("processes"), 0)
        check_least("memory_bytes", options.get("memory_bytes"), 1)
        check_least("report_timeout_s", options.get("report_timeout_s"), 0)
        check_least("wait_for", options.get("wait_for"), 1)
        check_least("wait_timeout_s", options.get("wait_timeout_s"), 0)
        if options.get("dask_scheduler") is not None and options.get("processes") is not None:
            raise OptionError("processes", "`dask_scheduler` excludes `processes`; omit one of them")

    @cached_property
    def paths(self) -> list[Path]:
        """Paths of all inputs; waits for them where that is asked for.

        Raises:
            ReportError: An input matches no file, or did not come in time.
        """
        count = self._options.get("wait_for")
        if count is None:
            return self._find_paths()
        arrivals = wait_for_reports(
            self.inputs,
            count=count,
            timeout_s=self._options.get("wait_timeout_s", 3600.0),
            with_parts=self._with_parts,
            keep_going=self._options.get("keep_going", False),
            progress=self.progress,
        )
        self._missing = arrivals.missing
        return arrivals.paths

    def _find_paths(self) -> list[Path]:
        if not self._options.get("keep_going", False):
            return find_reports(self.inputs, with_parts=self._with_parts)
        absent: dict[str, ReportError] = {}
        paths = find_reports(self.inputs, with_parts=self._with_parts, absent=absent)
        if not paths:
            raise next(iter(absent.values()))
        self._missing = [(Path(named), error) for named, error in absent.items()]
        return paths

    @cached_property
    def _executor(self) -> Executor:
        return choose_executor(
            self.paths,
            processes=self._options.get("processes"),
            memory_bytes=self._options.get("memory_bytes"),
            timeout_s=self._options.get("report_timeout_s"),
            scheduler=self._options.get("dask_scheduler"),
        )

    @property
    def is_local(self) -> bool:
        """Whether `map` runs in this process, where functions can share state."""
        return self._executor.is_local

    @property
    def keeps_going(self) -> bool:
        """Whether an input that fails is skipped: not the only one."""
        return self._options.get("keep_going", False) and len(self.paths) > 1

    @property
    def skipped(self) -> Skipped:
        """Skipped inputs in order, each with its error; missing ones first."""
        return [*self._missing, *((path, self._failed[path]) for path in self.paths if path in self._failed)]

    def skip(self, path: Path, error: NsysPPError) -> None:
        """Skip an input.

        Raises:
            NsysPPError: `error`, unless `keep_going` allows to skip the input.
        """
        if not self.keeps_going:
            if len(self.paths) > 1 and not isinstance(error, UnforeseenError):
                hint = "`--keep-going` skips such reports"
                error.hint = f"{error.hint}; {hint}" if error.hint else hint
            raise error
        self._failed[path] = error

    def map_locally(self, doing: str, paths: Sequence[Path], work: Callable[[Path], T]) -> dict[Path, T]:
        """Call a function with each path, one by one in this process; for work that takes no time.

        Args:
            doing: Phase of the work for the progress, as in "reading".
            paths: Some of the inputs; skipped ones are left out.
            work: The function.

        Returns:
            Results by path, in order.

        Raises:
            NsysPPError: An input fails that must not be skipped, or all have failed.
        """
        return self._run(doing, paths, work, SerialExecutor())

    def map(
        self,
        doing: str,
        paths: Sequence[Path],
        work: Callable[..., T],
        own: Mapping[Path, Any] | None = None,
    ) -> dict[Path, T]:
        """Call a function with each path in the executor; `work`, its arguments and its results must be picklable.

        Calls finish in any order; results and warnings are in order of `paths`, and of several errors
        that of the first path is raised.

        Args:
            doing: Phase of the work for the progress, as in "reading".
            paths: Some of the inputs; skipped ones are left out.
            work: The function.
            own: Second argument of each path; None: there is none.

        Returns:
            Results by path, in order.

        Raises:
            NsysPPError: As above, or the executor cannot run.
        """
        return self._run(doing, paths, work, self._executor, own)

    def _run(
        self,
        doing: str,
        paths: Sequence[Path],
        work: Callable[..., T],
        executor: Executor,
        own: Mapping[Path, Any] | None = None,
    ) -> dict[Path, T]:
        todo = [path for path in paths if path not in self._failed]
        values = self._follow(doing, todo, work, executor, own, self._skip_failed)
        if len(self._failed) == len(self.paths):
            raise next(iter(self._failed[path] for path in self.paths))
        results = zip(todo, values, strict=True)
        return {path: value for path, value in results if path not in self._failed}

    def _follow(
        self,
        doing: str,
        todo: Sequence[Path],
        work: Callable[..., T],
        executor: Executor,
        own: Mapping[Path, Any] | None,
        settle_error: Callable[[Path, Outcome], None],
    ) -> list[T]:
        """Return the result of each path; errors and progress are reported in order."""
        outcomes: dict[int, Outcome] = {}
        first = 0  # without an outcome

        def follow(work: str, share: float) -> None:
            value = (len(outcomes) + share) / len(todo)
            counted = Share.of(len(outcomes), len(todo), doing=doing, value=value)
            report_progress(self.progress, f"{doing} {todo[first].name}: {work}", counted)

        results = executor.map(work, todo, own)
        try:
            while first < len(todo):
                share = Share.of(len(outcomes), len(todo), doing=doing)
                report_progress(self.progress, f"{doing} {todo[first].name}", share)
                with follow_stages(follow):  # of work in this process
                    outcome = next(results)
                outcomes[outcome.index] = outcome
                while first in outcomes:
                    for warning in outcomes[first].warnings:
                        warnings.warn(warning, stacklevel=5)
                    if outcomes[first].error is not None:
                        settle_error(todo[first], outcomes[first])
                    first += 1
        finally:
            results.close()
        return [outcomes[index].value for index in range(len(todo))]

    def _skip_failed(self, path: Path, outcome: Outcome) -> None:
        """Skip an input that failed; raise its error unless that is allowed."""
        error = _trace_error(outcome)
        if is_about_outputs(error):
            raise error
        if isinstance(error, NsysPPError):
            self.skip(path, error)
            return
        unforeseen = unforeseen_error(path, error, details=outcome.traceback)
        unforeseen.__cause__ = error
        self.skip(path, unforeseen)


def _raise_error(_: Path, outcome: Outcome) -> None:
    raise _trace_error(outcome)


def _trace_error(outcome: Outcome) -> Exception:
    """Return the error of an outcome, with its traceback in another process as its cause."""
    error = outcome.error
    assert error is not None
    if outcome.traceback and not isinstance(error, NsysPPError):
        error.__cause__ = RemoteTraceback(outcome.traceback)
    return error


def list_existing_inputs(inputs: Inputs, *, with_parts: bool = True) -> list[Path]:
    """List the paths that inputs match now; inputs that match none are ignored.

    Raises:
        ReportError: A path is named twice.
    """
    return find_reports(parse_inputs(inputs), with_parts=with_parts, absent={})
