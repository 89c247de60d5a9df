"""Options of the library: keywords of its functions, and the checks of their values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, TypeVar

from nsys_pp.arrays.names import check_pattern
from nsys_pp.errors import OptionError, ReportError
from nsys_pp.options import OPTIONS, SHOW_KINDS, ClockMode
from nsys_pp.progress import Progress
from nsys_pp.projection.ranges import parse_ops
from nsys_pp.roster.ranks import Layout, check_rank_pattern, parse_layout

# Reports, parts, folders of them, or glob patterns; a single one needs no list.
Inputs: TypeAlias = "str | Path | Sequence[str | Path]"

# Steps of [first, last); None: no limit.
StepWindow: TypeAlias = "tuple[int | None, int | None]"

T = TypeVar("T")


class BatchOptions(TypedDict, total=False):
    """Keywords of all commands: processing of the inputs.

    Attributes:
        keep_going: Skip inputs that cannot be read, and list them in `skipped` of the result.
        processes: Number of processes; 0: as many as cores and memory allow. Without it, and without
            `memory_bytes`, `report_timeout_s` and `dask_scheduler`, inputs are processed one by one in this
            process. Processes are spawned: a script that uses them starts with `if __name__ == "__main__"`.
        memory_bytes: Memory limit of all processes together: it limits their number, and of the processes of
            reports the largest is ended where the measured memory of all exceeds it.
        report_timeout_s: Time limit of each report; then it is an error, or with `keep_going` skipped.
            Reports are processed in a process of their own.
        dask_scheduler: Address or scheduler file of a Dask cluster that processes the inputs instead, and
            writes the traces of a divided run.
        wait_for: Number of inputs to wait for, complete ones; folders and patterns are searched repeatedly.
        wait_timeout_s: Time limit of `wait_for`, 3600 by default. Then a missing input is an error, or with
            `keep_going` an entry of `skipped`.
        nsys: Program that exports `.nsys-rep` files; by default `$NSYS_PP_NSYS`, else `nsys` on PATH.
        progress: Callback that receives the current work and the finished share, 0 to 1.
    """

    keep_going: bool
    processes: int | None
    memory_bytes: int | None
    report_timeout_s: float | None
    dask_scheduler: str | Path | None
    wait_for: int | None
    wait_timeout_s: float
    nsys: str | Path | None
    progress: Progress | None


class JobOptions(BatchOptions, total=False):
    """Keywords that select ranges as jobs and steps.

    Attributes:
        preset: Naming rules: a built-in preset or a .toml file. Default: detected.
        job_patterns: Additional ranges that are jobs, each as `KIND=REGEX`.
        step_patterns: Additional ranges that are steps, each a regular expression.
    """

    preset: str | Path | None
    job_patterns: str | Sequence[str]
    step_patterns: str | Sequence[str]


class RosterOptions(BatchOptions, total=False):
    """Keywords about the ranks of a run.

    Attributes:
        layout: Parallel layout of the ranks, as in `pp=4,tp=2` or `pp=4,tp=2,order=tp-pp`.
        rank_from: Regular expression whose first group is the rank in a report's file name.
    """

    layout: Layout | str | None
    rank_from: str | None


class ClockOptions(RosterOptions, total=False):
    """Keywords about the clocks of machines.

    Attributes:
        clock: "collectives" (default): recorded UTC, refined by collectives that ranks share; "utc": as
            recorded; "none": all sessions begin at the same time.
        offsets: Clock offset to UTC in ns, by machine; overrides the alignment.
    """

    clock: ClockMode
    offsets: Mapping[str, int] | None


class StepOptions(ClockOptions, JobOptions, total=False):
    """Keywords of commands that analyse the steps of a run.

    Attributes:
        steps: Include only these steps: `(10, 12)` or "10:12" is 10 and 11; "10:" begins with 10.
        infer_jobs: Infer jobs from the gaps between the ranges of messages where no range is a job.
    """

    steps: StepWindow | str | None
    infer_jobs: bool


class RunOptions(StepOptions, total=False):
    """Keywords of commands that analyse the training of a run.

    Attributes:
        schedule: Name of the pipeline schedule. Default: detected.
    """

    schedule: str | None


def check_keywords(options: Mapping[str, Any], allowed: type) -> None:
    """Check that an option type has all keywords, and their values as `check_values` does.

    Raises:
        TypeError: A name is unknown.
        OptionError: A value is invalid.
    """
    names = allowed.__annotations__
    for name in options:
        if name not in names:
            similar = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean `{similar[0]}`?" if similar else f"expected {', '.join(sorted(names))}"
            raise TypeError(f"unexpected keyword `{name}`; {hint}")
    check_values(**options)


def check_values(**options: Any) -> None:
    """Check values against the choices and the least values of the table of options; None is no value.

    Raises:
        OptionError: A value is none of the choices, too small, or not a number.
    """
    for option in OPTIONS:
        value, least = options.get(option.name), option.limits[0]
        if value is None:
            continue
        if option.choices and not option.is_many:
            check_choice(option.name, value, option.choices)
        if least is not None and (not isinstance(value, (int, float)) or value < least):
            message = f"invalid {option.name} {value!r}; expected a number from {least} on"
            raise OptionError(option.name, message)


def parse_inputs(inputs: Inputs) -> list[str | Path]:
    """Return the inputs as a list; a single path is one input.

    Raises:
        ReportError: There is none.
    """
    if named := [inputs] if isinstance(inputs, (str, Path)) else list(inputs):
        return named
    raise ReportError("no inputs are named", "name reports, folders of them, or patterns")


def parse_run_layout(value: Layout | str | None) -> Layout | None:
    """Return a layout from its text.

    Raises:
        OptionError: The text is invalid.
    """
    return _parse("layout", parse_layout, value) if isinstance(value, str) else value


def parse_rank_from(value: str | None) -> str | None:
    """Return the pattern of ranks in file names.

    Raises:
        OptionError: It is not a regular expression, or has no group.
    """
    return None if value is None else _parse("rank_from", check_rank_pattern, value)


def parse_counted_ops(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return kinds of operations from their names, or from a text of names with commas.

    Raises:
        OptionError: A name is unknown.
    """
    return _parse("ops", parse_ops, value if isinstance(value, str) else ",".join(value))


def parse_show(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return kinds of data to show on request, in a fixed order, from names or a text of names with commas.

    Raises:
        OptionError: A name is unknown.

    >>> parse_show("states,os"), parse_show(["all"]) == tuple(SHOW_KINDS)
    (('os', 'states'), True)
    """
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else list(value)
    kinds = {name.strip() for name in names} - {""}
    for kind in sorted(kinds - SHOW_KINDS.keys() - {"all"}):
        raise OptionError("show", f"unknown kind `{kind}`; expected all or {', '.join(SHOW_KINDS)}")
    return tuple(kind for kind in SHOW_KINDS if kind in kinds or "all" in kinds)


def parse_offsets(value: Mapping[str, int] | None) -> dict[str, int]:
    """Return the clock offsets in ns by machine.

    Raises:
        OptionError: An offset is not a whole number.
    """
    offsets = dict(value or {})
    for machine, offset in offsets.items():
        if not isinstance(offset, int):
            raise OptionError(
                "offsets", f"invalid offset {offset!r} of `{machine}`; expected whole nanoseconds"
            )
    return offsets


def parse_steps(value: StepWindow | str | None) -> StepWindow | None:
    """Return the window of steps from its text.

    Raises:
        OptionError: The text is invalid, or the window is empty.

    >>> parse_steps("10:12"), parse_steps(":3"), parse_steps((10, None))
    ((10, 12), (None, 3), (10, None))
    """
    if value is None:
        return None
    if isinstance(value, str):
        # 30 digits: the integers of frames have 128 bits
        match = re.fullmatch(r"\s*(\d{0,30})\s*:\s*(\d{0,30})\s*", value)
        if match is None and re.fullmatch(r"\d{1,30}", value.strip()):
            step = int(value.strip())
            raise OptionError(
                "steps", f"invalid steps {value!r}; for that step alone, use `{step}:{step + 1}`"
            )
        if match is None or match[1] == match[2] == "":
            raise OptionError("steps", f"invalid steps {value!r}; expected e.g. `10:12`, `10:` or `:12`")
        first, last = (int(number) if number else None for number in match.groups())
    else:
        try:
            first, last = value
        except (TypeError, ValueError):
            raise OptionError("steps", f"invalid steps {value!r}; expected e.g. (10, 12)") from None
    if last is not None and last <= (first or 0):
        raise OptionError("steps", f"empty steps {value!r}; the first step is included, the last one is not")
    return first, last


def format_window(window: StepWindow | None) -> str:
    """Format steps as in `10:14`; "" for all.

    >>> format_window((10, None)), format_window(None)
    ('10:', '')
    """
    if window is None:
        return ""
    first, last = ("" if limit is None else str(limit) for limit in window)
    return f"{first}:{last}"


def parse_patterns(option: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions for names of ranges; a single one needs no list.

    Args:
        option: Keyword.
        value: The expressions.

    Raises:
        OptionError: polars cannot search for one of them.
    """
    patterns = (value,) if isinstance(value, str) else tuple(value)
    for pattern in patterns:
        _parse(option, check_pattern, pattern)
    return patterns


def check_choice(option: str, value: str, choices: Collection[str]) -> None:
    """Check that a value is one of the choices.

    Raises:
        OptionError: It is none of them.
    """
    if value not in choices:
        raise OptionError(option, f"invalid {option} {value!r}; expected {', '.join(choices)}")


def _parse(option: str, parse: Callable[[str], T], value: str) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise OptionError(option, str(error)) from None


def parse_job_options(options: JobOptions) -> dict[str, Any]:
    """Return the fields of `PartOptions` that select jobs and steps; None for each that is left open.

    Raises:
        OptionError: A pattern is invalid.
    """
    preset = options.get("preset")
    return {
        "preset": None if preset is None else str(preset),
        "job_patterns": parse_patterns("job_patterns", options.get("job_patterns", ())) or None,
        "step_patterns": parse_patterns("step_patterns", options.get("step_patterns", ())) or None,
    }


def parse_part_options(
    options: JobOptions,
    *,
    detail: str | None,
    ops: str | Sequence[str] | None,
    scope: str | None,
    flows: bool | None,
    show: str | Sequence[str] | None,
) -> dict[str, Any]:
    """Return the fields of `PartOptions`; None for each that is left open.

    Raises:
        OptionError: An operation, a kind of data or a pattern is invalid.
    """
    return {
        "detail": detail,
        "ops": None if ops is None else parse_counted_ops(ops),
        "scope": scope,
        "flows": flows,
        "show": parse_show(show),
        **parse_job_options(options),
    }
