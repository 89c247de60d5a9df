"""`nsys-pp`, and `python -m nsys_pp`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def main() -> None:
    """Run the program; Ctrl-C while its modules are loaded ends it without a traceback."""
    while os.open(os.devnull, os.O_RDWR) < 2:  # a file would get the number of a closed stream, and its text
        pass
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of characters that its encoding lacks
    try:
        from nsys_pp.cli import main as run

        run(prog_name="nsys-pp")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
