"""The program `nsys-pp`: the command line, and a quick end of its process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn

from nsys_pp.cli import main


def run() -> NoReturn:
    """Run the command line, and end the process.

    At a usual end, Python unloads a thousand modules and frees all objects, some 30 ms of a processor.
    """
    try:
        main(prog_name="nsys-pp")
    except SystemExit as end:
        if isinstance(end.code, int) and _can_end_now():
            os._exit(end.code)
        raise
    raise AssertionError("click ends a program by `SystemExit`")


def _can_end_now() -> bool:
    """Clean up.

    Return whether nothing is left to do: no thread, no profiler or debugger, and no output that cannot be
    written.
    """
    is_watched = sys.getprofile() is not None or sys.gettrace() is not None
    if is_watched or any(not thread.daemon for thread in _list_other_threads()):
        return False
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # Python reports it
        return False
    atexit._run_exitfuncs()
    return True


def _list_other_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
