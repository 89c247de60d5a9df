"""Batch options: processes or a Dask cluster, waiting for inputs, and skipping inputs that fail."""

from __future__ import annotations

import functools
from typing import Any, cast

import click

from nsys_pp.cli.options.values import MemorySize, ProcessCount, Timeout
from nsys_pp.cli.sections import BATCH, Command, option

keep_going_option = option(
    "--keep-going",
    section=BATCH,
    is_flag=True,
    help="Skip inputs that cannot be processed or do not exist, list them, and exit with status 3.",
)


def work_options(command: Command) -> Command:
    """Add `--processes`, `--memory`, `--timeout-per-report` and `--dask-scheduler`."""

    @functools.wraps(command)
    def limited(*args: Any, **options: Any) -> Any:
        if options["dask_scheduler"] is not None and options["processes"] is not None:
            raise click.UsageError("`--dask-scheduler` excludes `--processes`; omit one of them")
        return command(*args, **options)

    return cast(Command, _processes_option(_memory_option(_timeout_option(_dask_option(limited)))))


def wait_options(command: Command) -> Command:
    """Add `--wait-for` and `--wait-timeout`."""
    return _wait_for_option(_wait_timeout_option(command))


_processes_option = option(
    "--processes",
    section=BATCH,
    type=ProcessCount(),
    metavar="N|auto",
    help="Process up to N reports in parallel; auto (or 0): as many as cores and free memory allow.",
    default_text="1, without a process of its own",
)
_memory_option = option(
    "--memory",
    "memory_bytes",
    section=BATCH,
    type=MemorySize(),
    metavar="SIZE",
    help="Memory limit of all processes together, e.g. 8GB: limits their number, and ends the largest beyond it."
    " With --dask-scheduler: of each worker.",
)
_timeout_option = option(
    "--timeout-per-report",
    "report_timeout_s",
    section=BATCH,
    type=Timeout(),
    metavar="TIME",
    help="Time limit of each report, e.g. 10m; with --keep-going, reports beyond it are skipped.",
)
_dask_option = option(
    "--dask-scheduler",
    section=BATCH,
    metavar="ADDRESS|FILE",
    help="Process reports on a Dask cluster: the scheduler's address or its --scheduler-file. Workers need the"
    " same version of nsys-pp and the same file paths.",
)
_wait_for_option = option(
    "--wait-for",
    section=BATCH,
    type=click.IntRange(min=1),
    metavar="N",
    help="Wait until N complete reports or parts exist. Folders and quoted patterns are searched repeatedly.",
)
_wait_timeout_option = option(
    "--wait-timeout",
    "wait_timeout_s",
    section=BATCH,
    type=Timeout(),
    metavar="TIME",
    default="1h",
    help="Time limit of --wait-for, e.g. 90s, 10m, 1h. With --keep-going, continue with the complete inputs.",
)
