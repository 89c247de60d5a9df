"""One way through many inputs: executors, skipped inputs, progress, waiting."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from nsys_pp.compose.options import BatchOptions, Inputs, check_least, parse_inputs
from nsys_pp.compose.progress import Share, report_progress
from nsys_pp.compose.unforeseen import is_about_outputs, unforeseen_error
from nsys_pp.compose.waiting import wait_for_reports
from nsys_pp.errors import NsysPPError, OptionError, ReportError, UnforeseenError
from nsys_pp.executors.choose import choose_executor
from nsys_pp.executors.executor import Executor, Outcome, RemoteTraceback
from nsys_pp.executors.serial import SerialExecutor
from nsys_pp.read import find_reports
from nsys_pp.stages import follow_stages

T = TypeVar("T")
Skipped: TypeAlias = list[tuple[Path, NsysPPError]]
"""Skipped inputs, each with its error."""


class Batch:
    """Inputs of a command, and the functions that process all of them.

    Nothing is read or waited for before `paths` is used.

    Args:
        inputs: Reports, folders of them, or glob patterns.
        options: Keywords. With `keep_going`, inputs that fail or match no file are skipped, but neither the only one nor all.
        with_parts: Include parts.
        without: A file that is passed over in folders.

    Raises:
        OptionError: A value is invalid.
    """

    def __init__(
        self, inputs: Inputs, options: BatchOptions, *, with_parts: bool = True, without: Path | None = None
    ) -> None:
        self.inputs = parse_inputs(inputs)
        self.nsys = None if (nsys := options.get("nsys")) is None else str(nsys)
        self.progress = options.get("progress")
        self._options = options
        self._with_parts = with_parts
        self._without = without
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
            without=self._without,
            keep_going=self._options.get("keep_going", False),
            progress=self.progress,
        )
        self._missing = arrivals.missing
        return arrivals.paths

    def _find_paths(self) -> list[Path]:
        if not self._options.get("keep_going", False):
            return find_reports(self.inputs, with_parts=self._with_parts, without=self._without)
        absent: dict[str, ReportError] = {}
        paths = find_reports(self.inputs, with_parts=self._with_parts, absent=absent, without=self._without)
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
    def is_remote(self) -> bool:
        """Whether `map` runs on other machines, which see the same files."""
        return self._executor.is_remote

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

    def map_outputs(
        self, doing: str, work: Callable[[Path, Any], T], own: Mapping[Path, Any]
    ) -> dict[Path, T]:
        """Call a function with each of several outputs on other machines (`is_remote`); no failure is skipped.

        Args:
            doing: Phase of the work for the progress, as in "writing".
            work: The function; the time limit of reports does not hold for it.
            own: Outputs by the paths that users know, each with the second argument of the function; they need not exist.

        Returns:
            Results by output, in order.

        Raises:
            NsysPPError: The first output with an error, or the executor cannot run.
        """
        executor = choose_executor(
            self.paths,
            processes=None,
            memory_bytes=self._options.get("memory_bytes"),
            timeout_s=None,
            scheduler=self._options.get("dask_scheduler"),
        )
        values = self._follow(doing, [*own], work, executor, own, _raise_error)
        return dict(zip(own, values, strict=True))

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
