"""Inputs of a command: waiting for them, reading them in an executor, and skipping those that fail.

Parts are read, and reports are surveyed with their jobs, for tables. Labels and options are those of all.
"""

from __future__ import annotations

import errno
import os
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import (
    REPORT_IT,
    NsysPPError,
    OptionError,
    OutputError,
    ReportError,
    UnforeseenError,
    describe_path,
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
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.roster import Identity
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.output.perfetto.trace import check_blocks
from nsys_pp.output.trace.drawing import sequence_id
from nsys_pp.progress import Progress, Share, follow_stages, report_progress
from nsys_pp.read import find_reports, is_part, open_part_blocks, read_part
from nsys_pp.read.parts import damaged_error
from nsys_pp.read.readers import Stamp, find_lack, find_reader, read_stamp
from nsys_pp.roster.identity import find_repeated
from nsys_pp.roster.roster import build_roster, find_strangers
from nsys_pp.run.options import BatchOptions, Inputs, parse_inputs
from nsys_pp.run.report import FRAME, IDENTITY_FRAMES, Input, build_input, survey_report

# of files that are written, whichever report is being read
_OF_OUTPUTS = {errno.ENOSPC, errno.EDQUOT, errno.EPIPE, errno.EROFS}
_MOST_ODD = 8  # each costs the work on all inputs about twice
_POLL_S = 1.0
_SETTLED_S = 4.0  # without an end mark, a file is complete when it has not changed for so long
_MOST_NAMED = 8
_HINT = "wait longer with `--wait-timeout`"
T = TypeVar("T")
Skipped: TypeAlias = list[tuple[Path, NsysPPError]]  # inputs, each with its error


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(ShortRepr):
    """What each command returns.

    Attributes:
        skipped: Skipped inputs, each with its error.
        row_counts: `RUN_ROW_COUNTS`: rows of all reports, used, and left out by reason.
    """

    skipped: Skipped
    row_counts: pl.DataFrame = field(repr=False)


class Batch:
    """Inputs of a command, and the functions that process all of them.

    Nothing is read or waited for before `paths` is used.

    Args:
        inputs: Reports, folders of them, or glob patterns.
        options: Keywords. With `keep_going`, inputs that fail or match no file are skipped, but neither the
            only one nor all.
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
        if options.get("dask_scheduler") is not None and options.get("processes") is not None:
            raise OptionError("processes", "`dask_scheduler` excludes `processes`; omit one of them")

    @cached_property
    def paths(self) -> list[Path]:
        """Paths of all inputs; waits for them where that is asked for.

        Raises:
            ReportError: An input matches no file, or did not come in time.
        """
        keep_going = self._options.get("keep_going", False)
        count = self._options.get("wait_for")
        if count is not None:
            paths, self._missing = wait_for_reports(
                self.inputs,
                count=count,
                timeout_s=self._options.get("wait_timeout_s", 3600.0),
                with_parts=self._with_parts,
                keep_going=keep_going,
                progress=self.progress,
            )
            return paths
        absent: dict[str, ReportError] = {}
        paths = find_reports(self.inputs, with_parts=self._with_parts, absent=absent if keep_going else None)
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

    def skip(self, path: Path, error: Exception, *, details: str = "") -> None:
        """Skip an input.

        Args:
            path: The input.
            error: Its error; one without words of its own becomes a sentence that names the input.
            details: Traceback of the error; of `error` itself if empty.

        Raises:
            NsysPPError: `error`, unless `keep_going` allows to skip the input.
        """
        foreseen = error if isinstance(error, NsysPPError) else unforeseen_error(path, error, details=details)
        if not self.keeps_going:
            if len(self.paths) > 1 and isinstance(foreseen, ReportError):
                hint = "`--keep-going` skips such reports"
                foreseen.hint = f"{foreseen.hint}; {hint}" if foreseen.hint else hint
            raise foreseen
        self._failed[path] = foreseen

    def map(
        self,
        doing: str,
        paths: Sequence[Path],
        work: Callable[..., T],
        own: Mapping[Path, Any] | None = None,
        *,
        locally: bool = False,
    ) -> dict[Path, T]:
        """Call a function with each path in the executor.

        `work`, its arguments and its results must be picklable.

        Calls finish in any order; results and warnings are in order of `paths`, and of several errors
        that of the first path is raised.

        Args:
            doing: Phase of the work for the progress, as in "reading".
            paths: Some of the inputs; skipped ones are left out.
            work: The function.
            own: Second argument of each path; None: there is none.
            locally: Call it in this process, one by one: it takes no time.

        Returns:
            Results by path, in order.

        Raises:
            NsysPPError: An input fails that must not be skipped, all have failed, or the executor cannot run.
        """
        todo = [path for path in paths if path not in self._failed]
        outcomes: dict[int, Outcome] = {}
        first = 0  # without an outcome

        def follow(activity: str, share: float) -> None:
            counted = Share.of(
                len(outcomes), len(todo), doing=doing, value=(len(outcomes) + share) / len(todo)
            )
            report_progress(self.progress, f"{doing} {todo[first].name}: {activity}", counted)

        executor = SerialExecutor() if locally else self._executor
        results = executor.map(work, todo, own)
        try:
            while first < len(todo):
                share = Share.of(len(outcomes), len(todo), doing=doing)
                report_progress(self.progress, f"{doing} {todo[first].name}", share)
                with follow_stages(follow):  # of work in this process
                    outcome = next(results)
                outcomes[outcome.index] = outcome
                while first in outcomes:
                    self._settle(todo[first], outcomes[first])
                    first += 1
        finally:
            results.close()
        if len(self._failed) == len(self.paths):
            raise next(iter(self._failed[path] for path in self.paths))
        return {path: outcomes[index].value for index, path in enumerate(todo) if path not in self._failed}

    def _settle(self, path: Path, outcome: Outcome) -> None:
        """Emit the warnings of an outcome, and skip an input that failed.

        Raise its error unless that is allowed.
        """
        for warning in outcome.warnings:
            warnings.warn(warning, stacklevel=5)
        error = outcome.error
        if error is None:
            return
        if outcome.traceback and not isinstance(error, NsysPPError):
            error.__cause__ = RemoteTraceback(outcome.traceback)
        if _is_about_outputs(error):
            raise error
        self.skip(path, error, details=outcome.traceback)


def _is_about_outputs(error: Exception) -> bool:
    """Return whether an error is about the output of all reports: no report can be blamed or skipped."""
    return isinstance(error, OutputError) or (isinstance(error, OSError) and error.errno in _OF_OUTPUTS)


def unforeseen_error(path: Path, error: Exception, *, details: str = "") -> NsysPPError:
    """Return the error of a report whose processing raised an error that is none of nsys-pp.

    Arguments as in `Batch.skip`.
    """
    if isinstance(error, MemoryError):
        foreseen = NsysPPError(
            f"`{path}` cannot be processed: there is not enough memory",
            "raise the memory limit of the job, use `--processes 1`, or draw less with"
            " `nsys-pp merge --detail jobs`",
        )
    else:
        foreseen = UnforeseenError(
            f"`{path}` cannot be processed: unforeseen {describe_unforeseen(error)}",
            REPORT_IT,
            details or "".join(traceback.format_exception(error)),
        )
    foreseen.__cause__ = error
    return foreseen


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
        Exception: Raised by the work, where no input alone is the cause; foreseen errors (`NsysPPError`)
            always.
    """
    left = list(inputs)
    for _ in range(_MOST_ODD):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error = _try(work, left)
        if error is None or len(left) < 2:
            break
        suspects, found = left, error
        while len(suspects) > 1:
            middle = len(suspects) // 2
            tried = (
                (half, _try(work, half, is_trial=True)) for half in (suspects[:middle], suspects[middle:])
            )
            odd = next(((half, raised) for half, raised in tried if raised is not None), None)
            if odd is None:  # both halves succeed
                raise error
            suspects, found = odd
        skip(suspects[0], found)
        left = [one for one in left if one is not suspects[0]]
    for record in caught:
        warnings.warn(record.message, stacklevel=5)
    if error is not None:
        raise error
    return left


def _try(
    work: Callable[[Sequence[T]], object], inputs: Sequence[T], *, is_trial: bool = False
) -> Exception | None:
    """Return the unforeseen error of some work.

    None if it succeeds, or is refused in a trial, whose warnings do not count.
    """
    try:
        with warnings.catch_warnings():
            if is_trial:
                warnings.simplefilter("ignore")
            work(inputs)
    except NsysPPError:
        if not is_trial:
            raise
    except BaseException as raised:
        error = as_exception(raised)
        if _is_about_outputs(error) or isinstance(error, MemoryError):
            raise
        return error
    return None


def wait_for_reports(
    inputs: Sequence[str | Path],
    *,
    count: int,
    timeout_s: float = 3600.0,
    with_parts: bool = True,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Path], Skipped]:
    """Search inputs repeatedly until they match the expected number of files, all complete.

    Args:
        inputs: Reports, parts, folders of them, or patterns; they need not exist yet.
        count: Expected number of files; all that match must be complete, also if there are more.
        timeout_s: Time limit.
        with_parts: Include parts.
        keep_going: After the time limit, return the complete files and the missing ones.
        progress: Receives the number of complete files.

    Returns:
        Complete inputs; and incomplete ones and those that never came, each with its error.

    Raises:
        ReportError: The time limit is over; with `keep_going`, no file is complete.
    """
    began = time.monotonic()
    since: dict[tuple[Path, Stamp], float] = {}  # when a file was first seen in a state
    while True:
        absent: dict[str, ReportError] = {}  # inputs that match no file
        complete, incomplete = [], {}
        now = time.monotonic()
        for path in find_reports(inputs, with_parts=with_parts, absent=absent):
            unchanged_s = now - since.setdefault((path, read_stamp(path)), now)
            lack = find_lack(path)
            if lack is None and not find_reader(path).has_end and unchanged_s < _SETTLED_S:
                lack = ReportError(f"`{path}` is still growing", _HINT)
            if lack is None:
                complete.append(path)
            else:
                incomplete[path] = lack
        if not incomplete and not absent and len(complete) >= count:
            return complete, []
        left_s = timeout_s - (time.monotonic() - began)
        if left_s <= 0:
            break
        arrived = min(len(complete), count)
        what = f"{count - arrived} more reports" if arrived < count else "the rest"
        report_progress(progress, f"waiting for {what}", Share.of(arrived, count, doing="waiting"))
        time.sleep(min(_POLL_S, left_s))
    waited = f"after {format_wait(timeout_s)}"
    summary = f"{waited}, {len(complete)} of {count} reports are there and whole"
    if not keep_going or not complete:
        lacks = [error.message for error in (*absent.values(), *incomplete.values())]
        lacks.sort(key=natural_key)
        more = [f"and {len(lacks) - _MOST_NAMED} more"] * (len(lacks) > _MOST_NAMED)
        details = "; ".join([*lacks[:_MOST_NAMED], *more])
        raise ReportError(
            f"{summary}: {details}" if lacks else summary,
            f"{_HINT}, or go on with what is whole with `--keep-going`",
        )
    missing: list[tuple[Path, NsysPPError]] = [
        *((Path(name), ReportError(f"{error.message} {waited}", _HINT)) for name, error in absent.items()),
        *incomplete.items(),
    ]
    if len(complete) + len(incomplete) < count and not absent:  # these do not explain the number of files
        names = [str(name if len(inputs) == 1 else Path(name).absolute()) for name in inputs]
        missing.append((Path(os.path.commonpath(names)), ReportError(summary, _HINT)))
    return complete, missing


def format_wait(seconds: float) -> str:
    """Format a timeout in its largest whole unit.

    >>> format_wait(5400), format_wait(600), format_wait(3600), format_wait(1.5)
    ('90m', '10m', '1h', '1.5s')
    """
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def list_existing_inputs(inputs: Inputs, *, with_parts: bool = True) -> list[Path]:
    """List the paths that inputs match now; inputs that match none are ignored.

    Raises:
        ReportError: A path is named twice.
    """
    return find_reports(parse_inputs(inputs), with_parts=with_parts, absent={})


def label_reports(paths: Sequence[Path]) -> list[str]:
    """Label reports by file name without suffix, and by as many folders as distinguish them.

    Bytes of names that are no UTF-8 are escaped.

    >>> label_reports([Path("a/rank0.sqlite"), Path("b/rank0.sqlite"), Path("b/rank1.sqlite")])
    ['a/rank0', 'b/rank0', 'rank1']
    """
    parts = [(*path.parent.parts, path.stem) for path in paths]
    labels = [part[-1] for part in parts]
    for length in range(2, max(map(len, parts), default=0) + 1):
        shared = {label for label, count in Counter(labels).items() if count > 1}
        labels = [
            "/".join(part[-length:]) if label in shared else label
            for label, part in zip(labels, parts, strict=True)
        ]
    return [describe_path(label) for label in labels]


def skip_repeated(identities: Sequence[Identity], paths: Sequence[Path], batch: Batch) -> list[int]:
    """Return the index of the first input of each recording; others are skipped where `keep_going` allows it.

    Args:
        identities: Identity of each input.
        paths: Path of each input, as named by the user.
        batch: The batch of these inputs.

    Raises:
        ReportError: Two inputs are the same recording.
    """
    repeated = find_repeated(identities)
    for again, first in repeated.items():
        text = f"`{paths[first]}` and `{paths[again]}` are the same recording"
        batch.skip(paths[again], ReportError(text, "name each report once"))
    return [index for index in range(len(paths)) if index not in repeated]


def read_part_input(
    path: Path, *, with_aggregates: bool = False, checks_frames: bool = False, checks_blocks: bool = False
) -> Input:
    """Read a part without its trace; `open_blocks` opens the trace.

    Args:
        path: The part.
        with_aggregates: Also read the frames of a summary.
        checks_frames: Also unpack each of its frames.
        checks_blocks: Also read all of its trace, and check that it can be written.

    Raises:
        ReportError: It cannot be read, or another version made it.
    """
    aggregates = AGGREGATE_FRAMES if with_aggregates else ()
    names = [*IDENTITY_FRAMES, "anchors", "row_counts", *REPORT_FRAMES, *aggregates]
    part = read_part(path, names, version=version("nsys-pp"), optional=[FRAME])
    part.frames["row_counts"]  # is read last, after outputs are written
    if checks_frames:
        for name in part.frames:
            part.frames[name]  # raises an error where it is damaged
    if checks_blocks:
        with open_part_blocks(path) as blocks:
            check_blocks(part.encoded, blocks)
            blocks.read(1)  # the end of the stream, where its checksum is compared
    try:
        return build_input(path, part, partial(open_part_blocks, path))
    except (KeyError, TypeError):
        raise damaged_error(path) from None


def read_inputs(
    batch: Batch, asked: Mapping[str, Any], *, doing: str, with_aggregates: bool = False
) -> list[Input]:
    """Read parts and survey reports with their jobs, for tables: without a trace.

    Args:
        batch: The inputs.
        asked: Options as in `settle_part_options`.
        doing: Phase of the work for the progress.
        with_aggregates: Also read or build the frames of a summary.

    Returns:
        Inputs in order, without skipped ones.

    Raises:
        ReportError: An input cannot be read, or a part was made with other options.
    """
    parts = read_parts(batch, with_aggregates=with_aggregates)
    options, parts = settle_part_options(
        batch,
        parts,
        asked,
        # tables depend on these; the others change the trace of a part alone
        relevant=("ops", "scope", "preset", "job_patterns", "step_patterns"),
    )
    survey = partial(
        survey_report, options=options, nsys=batch.nsys, with_training=True, with_aggregates=with_aggregates
    )
    reports = batch.map(doing, [path for path in batch.paths if not is_part(path)], survey)
    return order_inputs(batch, parts, reports)


def read_parts(
    batch: Batch, *, with_aggregates: bool = False, writes_blocks: bool = False
) -> dict[Path, Input]:
    """Read the parts among the inputs.

    Where damaged ones are skipped, all frames are checked now, since none can be skipped in the middle of an
    output. Traces that will be written always are: this takes a tenth of a merge of parts.

    Args:
        batch: The inputs.
        with_aggregates: Also read the frames of a summary.
        writes_blocks: Their traces will be written.

    Raises:
        ReportError: One cannot be read.
    """
    read = partial(
        read_part_input,
        with_aggregates=with_aggregates,
        checks_frames=batch.keeps_going,
        checks_blocks=writes_blocks,
    )
    return batch.map("reading", [path for path in batch.paths if is_part(path)], read, locally=True)


def order_inputs(batch: Batch, parts: Mapping[Path, Input], reports: Mapping[Path, Input]) -> list[Input]:
    """Return parts and reports in the order of the batch, without skipped ones."""
    read = {**parts, **reports}
    return [read[path] for path in batch.paths if path in read]


def settle_part_options(
    batch: Batch,
    parts: Mapping[Path, Input],
    asked: Mapping[str, Any],
    *,
    relevant: Collection[str] = PartOptions.__struct_fields__,
) -> tuple[PartOptions, dict[Path, Input]]:
    """Settle the options of a run: the requested ones, else the options of its parts.

    Args:
        batch: The inputs; where it keeps going, the most common options count, and other parts are skipped.
        parts: Parts among the inputs, by path.
        asked: Fields of `PartOptions`; None where the user leaves the field open.
        relevant: Fields in which parts may not differ.

    Returns:
        The options, and the parts that have them.

    Raises:
        ReportError: A part was made with other options than asked for, or than another part.
    """
    own = [part.part.options for part in parts.values()]
    usual = next(iter(own), PartOptions())
    if batch.keeps_going:
        usual = max(own, key=own.count, default=usual)
    options = replace(usual, **{name: value for name, value in asked.items() if value is not None})
    kept = {}
    for path, part in parts.items():
        actual = part.part.options
        if all(getattr(actual, name) == getattr(options, name) for name in relevant):
            kept[path] = part
            continue
        if actual == usual:
            expected = f"`{options.words()}` is asked for"
        else:
            first = next(one.path for one in parts.values() if one.part.options == usual)
            expected = f"`{first}` with `{usual.words()}`"
        error = ReportError(
            f"`{part.path}` was made with `{actual.words()}`, and {expected}",
            "extract it again with the same options, or merge its report",
        )
        batch.skip(path, error)
    if not kept and len(parts) == len(batch.paths):
        raise error
    return options, kept


def drop_repeated(inputs: Sequence[Input], batch: Batch) -> list[Input]:
    """Return the first input of each recording; others are skipped where `keep_going` allows it.

    Raises:
        ReportError: Two inputs are the same recording; or, by chance and once in some
            thousand millions, two cannot be in one trace.
    """
    identities = [recorded.identity for recorded in inputs]
    kept = [
        inputs[index] for index in skip_repeated(identities, [recorded.path for recorded in inputs], batch)
    ]
    by_sequence: dict[int, Input] = {}
    for recorded in kept:
        other = by_sequence.setdefault(sequence_id(recorded.identity.fingerprint), recorded)
        if other is not recorded:
            raise ReportError(
                f"`{other.path}` and `{recorded.path}` cannot stand in one trace: by chance,"
                " the numbers that tell reports apart are the same for both",
                "merge them into two traces",
            )
    return kept


def drop_strangers(
    inputs: Sequence[Input], batch: Batch, *, rank_from: str | None, offsets_ns: Mapping[str, int]
) -> list[Input]:
    """Return the inputs that can be of one run; others are skipped where `keep_going` allows it.

    Raises:
        ReportError: An input cannot be of one run with the others.
    """
    identities = [recorded.identity for recorded in inputs]
    roster = build_roster(identities, rank_from=rank_from)
    strangers = find_strangers(identities, roster, offsets_ns=offsets_ns)
    for at, error in strangers.items():
        batch.skip(inputs[at].path, error)
    return [recorded for at, recorded in enumerate(inputs) if at not in strangers]


ATTRIBUTE = "rows."  # prefix of the metadata of a trace about the rows of a report
_DRAWN = ("nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions", "ranges", "gpu_ops")


def collect_row_counts(counts: Mapping[Path, pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the `ROW_COUNTS` of one or more reports to `RUN_ROW_COUNTS`."""
    return pl.concat(frame.with_columns(report=pl.lit(describe_path(path))) for path, frame in counts.items())


def describe_rows(counts: pl.DataFrame) -> dict[str, str]:
    """Describe the drawn rows of each report in a line, by its path.

    "nvtx 166 = 100 used + 66 without a start; kernels ...".

    A part is made of more tables than a trace, and has the same line.

    Args:
        counts: `RUN_ROW_COUNTS`.
    """
    tables = group_pairs(
        ((report, table if stage == "report" else f"{table} ({stage})"), (reason or "used", count))
        for stage, table, _, reason, count, report in counts.filter(pl.col("table").is_in(_DRAWN)).rows()
    )
    lines = group_pairs(
        (
            report,
            f"{name} {sum(count for _, count in rows)} = "
            + " + ".join(f"{count} {word}" for word, count in rows),
        )
        for (report, name), rows in tables.items()
    )
    return {report: "; ".join(of_report) for report, of_report in lines.items()}
