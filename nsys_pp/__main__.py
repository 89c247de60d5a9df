"""`nsys-pp`, and `python -m nsys_pp`."""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any


class _Stream(FileIO):
    """A standard stream that goes on, to nowhere, when it cannot be written: results and statuses stay.

    The first failure is an error, but not of a log, nor that nobody reads any more.
    """

    is_lost = False

    def write(self, data: Any, /) -> int:
        try:
            return len(data) if self.is_lost else super().write(data)
        except OSError as error:
            self.is_lost = True
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                from nsys_pp.errors import OutputError, explain_os_error

                reason, hint = explain_os_error(error)
                raise OutputError(f"cannot write to standard output: {reason}", hint) from None
            return len(data)


def main() -> None:
    """Run the program; Ctrl-C while its modules are loaded ends it without a traceback."""
    while os.open(os.devnull, os.O_RDWR) < 2:  # a file would get the number of a closed stream, and its text
        pass
    sys.stdin = sys.stdin or os.fdopen(0)
    for number, name in enumerate(("stdout", "stderr"), start=1):
        file = BufferedWriter(_Stream(number, "w", closefd=False))
        encoding = getattr(getattr(sys, name), "encoding", None)  # it may lack characters
        setattr(sys, name, TextIOWrapper(file, encoding, "backslashreplace", line_buffering=number == 2))
    try:
        from nsys_pp.cli import main as run

        run(prog_name="nsys-pp")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
