"""Options that say where work runs, and what is waited for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nsys_pp import commands as api
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.waiting import Wait, Waited, wait_for_reports
from nsys_pp.compose.work import BASE_BYTES, BYTES_PER_BYTE, WorkOptions

Command = TypeVar("Command", bound=Callable[..., Any])

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {f"{unit}ib": size for unit, size in _SIZES.items() if unit}
_SIZES |= {f"{unit}b": 1000**power for power, unit in enumerate("kmgt", start=1)}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Jobs(click.ParamType[int]):
    """A number of processes, or `auto`, which is 0."""

    name = "n|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn the text into a number."""
        if isinstance(value, int):
            return value
        if value.strip() == "auto":
            return 0
        if not re.fullmatch(r"\d{1,4}", value.strip()):
            self.fail(f"{value!r} is no number of processes: write `4`, or `auto`", param, ctx)
        return int(value)


class Memory(click.ParamType[int]):
    """A size of memory: `8GB`, `512MiB`, `16G`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn the text into bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.strip().lower())
        if match is None or match[2] not in _SIZES or not float(match[1]):
            self.fail(f"{value!r} is no size of memory: write `8GB` or `512MiB`", param, ctx)
        return int(float(match[1]) * _SIZES[match[2]])


class Seconds(click.ParamType[float]):
    """A time to wait: `90s`, `10m`, `1h`; seconds without a unit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip())
        if match is None:
            self.fail(f"{value!r} is no time to wait: write `90s`, `10m` or `1h`", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


def work_options(command: Command) -> Command:
    """Add `--jobs`, `--memory` and `--dask-scheduler`; `take_work` takes them."""
    command = click.option(
        "--dask-scheduler",
        "scheduler",
        metavar="ADDRESS|FILE",
        help="Work on the Dask cluster of this scheduler (its address, or the file of `--scheduler-file`) instead."
        " Its workers need the same nsys-pp, and see reports and outputs under the same paths.",
    )(command)
    command = click.option(
        "--memory",
        "memory_bytes",
        type=Memory(),
        help="What these processes may need together, as in `8GB`: takes no more of them than it is enough for, at"
        f" {BASE_BYTES / 1e9:g} GB each and {BYTES_PER_BYTE} times the size of the largest report as SQLite.",
    )(command)
    return click.option(
        "--jobs",
        type=Jobs(),
        help="Work on so many reports at once, each in a process of its own; `auto` or 0: as many as cores and free"
        " memory allow. By default one by one.",
    )(command)


def take_work(options: dict[str, Any]) -> WorkOptions:
    """Take what `work_options` added out of other options."""
    work = WorkOptions(
        jobs=options.pop("jobs"), memory_bytes=options.pop("memory_bytes"), scheduler=options.pop("scheduler")
    )
    if work.scheduler is not None and (work.jobs is not None or work.memory_bytes is not None):
        raise click.UsageError("`--dask-scheduler` has its own workers: leave out `--jobs` and `--memory`")
    return work


def wait_options(command: Command) -> Command:
    """Add `--wait-for` and `--wait-timeout`; `wait_for_inputs` takes them."""
    command = click.option(
        "--wait-timeout",
        type=Seconds(),
        default="1h",
        show_default=True,
        help="How long to wait for them: `90s`, `10m`, `1h`. Then it is an error, or with `--keep-going` the work goes"
        " on with what is whole.",
    )(command)
    return click.option(
        "--wait-for",
        type=click.IntRange(min=1),
        metavar="N",
        help="Begin when so many reports or parts are there and none is half-copied; folders and quoted patterns are"
        " looked at again and again.",
    )(command)


def wait_for_inputs(
    reports: Sequence[str],
    options: dict[str, Any],
    progress: Progress | None,
    *,
    output: Path | None = None,
) -> tuple[Sequence[Any], list[Any]]:
    """Wait, if that is wanted, and take what `wait_options` added out of other options.

    Args:
        reports: As they were named.
        options: With "keep_going", and "force" where there is an output.
        progress: Told what is going on.
        output: What will be written, so that nobody waits in vain.

    Returns:
        The reports to read, and those that are skipped since they are not whole.
    """
    count, timeout_s = options.pop("wait_for"), options.pop("wait_timeout")
    if count is None:
        return reports, []
    if output is not None:
        api.check_output(output, force=options["force"])
    waited: Waited = wait_for_reports(
        reports,
        Wait(count=count, timeout_s=timeout_s),
        keep_going=options["keep_going"],
        progress=progress,
    )
    return waited.paths, waited.skipped
