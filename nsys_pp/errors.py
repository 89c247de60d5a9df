"""Errors that a user can fix: one sentence and a hint each.

Raise at the point of knowledge, catch once (`nsys_pp.cli`). Messages are literals in
backticks, without a full stop; the hint names the next step.
"""

from __future__ import annotations

REPORT_IT = "this is a defect of nsys-pp: please report it with the traceback that `--debug` shows"
_MOST_CHARACTERS = 200  # of the text of an unforeseen error


class NsysPPError(Exception):
    """Base of every error that the user can fix.

    Args:
        message: One sentence that names the file and the problem.
        hint: Next step for the user, or None.
    """

    details = ""  # traceback of an unforeseen error, for `--debug`

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ReportError(NsysPPError):
    """A report that cannot be opened or understood: no such file, not SQLite, truncated, locked."""


class MissingDataError(ReportError):
    """A report without the tables that a command needs; the hint names the option that records them."""


class NsysNotFoundError(NsysPPError):
    """A `.nsys-rep` that no `nsys` is there to export."""


class OutputError(NsysPPError):
    """An output that cannot be written: it exists, no permission, disk full."""


class ClockError(NsysPPError):
    """Clock options that the reports contradict: an unknown machine, an impossible offset."""


class UnforeseenError(NsysPPError):
    """An unexpected error while one report is processed: a defect of nsys-pp or of a library.

    Args:
        message: One sentence that names the report and the error.
        hint: Next step for the user.
        details: Traceback of the error, for `--debug`.
    """

    def __init__(self, message: str, hint: str | None = None, details: str = "") -> None:
        super().__init__(message, hint)
        self.details = details


class OptionError(NsysPPError, ValueError):
    """An option with an invalid value.

    Args:
        option: Keyword of the library, as in `steps`.
        message: One sentence: the value, and the expected form.
        hint: Next step for the user, or None.
    """

    def __init__(self, option: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.option = option

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str, str | None]]:
        """Return the arguments, so that the error can be sent between processes."""
        return OptionError, (self.option, self.message, self.hint)


def describe_unforeseen(error: BaseException) -> str:
    """Describe an unforeseen error by its type and the first line of its text."""
    line = next(iter(str(error).strip().splitlines()), "")
    text = line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
