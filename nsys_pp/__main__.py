"""`nsys-pp`, and `python -m nsys_pp`."""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any


class _Pipe(FileIO):
    """A stream that goes on, to nowhere, when nobody reads it any more: results and statuses stay."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def main() -> None:
    """Run the program; Ctrl-C while its modules are loaded ends it without a traceback."""
    while os.open(os.devnull, os.O_RDWR) < 2:  # a file would get the number of a closed stream, and its text
        pass
    sys.stdin = sys.stdin or os.fdopen(0)
    for number, name in enumerate(("stdout", "stderr"), start=1):
        file = BufferedWriter(_Pipe(number, "w", closefd=False))
        encoding = getattr(getattr(sys, name), "encoding", None)  # it may lack characters
        setattr(sys, name, TextIOWrapper(file, encoding, "backslashreplace", line_buffering=number == 2))
    try:
        from nsys_pp.cli import main as run

        run(prog_name="nsys-pp")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
