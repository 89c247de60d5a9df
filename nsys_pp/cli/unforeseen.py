"""Errors that neither nsys-pp nor click has words for."""

from __future__ import annotations

import errno
import traceback

import click

from nsys_pp.cli.interrupts import is_interrupt
from nsys_pp.errors import REPORT_IT, NsysPPError, UnforeseenError, describe_unforeseen

_CONTROL = (KeyboardInterrupt, SystemExit, GeneratorExit)


def is_unforeseen(error: BaseException) -> bool:
    """Return whether an error is a defect: neither a sentence for the user, nor an interrupt, nor a closed pipe."""
    if isinstance(error, (NsysPPError, click.ClickException, click.exceptions.Exit, click.Abort, *_CONTROL)):
        return False
    is_closed_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
    return not is_closed_pipe and not is_interrupt(error)


def explain_unforeseen(error: BaseException) -> tuple[str, str]:
    """Return the message and the hint of an unforeseen error."""
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory",
            "raise the memory limit of the job, or process fewer reports at once",
        )
    return f"unforeseen {describe_unforeseen(error)}", REPORT_IT


def trace_unforeseen(error: BaseException) -> str:
    """Return the traceback of an unforeseen error; empty for any other."""
    if isinstance(error, UnforeseenError):
        return error.details
    return "".join(traceback.format_exception(error)) if is_unforeseen(error) else ""
