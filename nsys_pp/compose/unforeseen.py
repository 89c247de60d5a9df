"""The last resort of a report: an error without words of its own becomes a sentence that names the report."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

from nsys_pp.errors import REPORT_IT, NsysPPError, OutputError, UnforeseenError, describe_unforeseen

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
