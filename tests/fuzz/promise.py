"""The promise that all targets hold: a result or one of the project's errors, in limits, and nothing half-done."""

from __future__ import annotations

import hashlib
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from nsys_pp.errors import NsysPPError, UnforeseenError

MOST_CPU_S = 20.0  # of one input; 0.5 is usual
MOST_GROWTH_BYTES = 512 << 20  # of the memory of the process, by one input

Work = Callable[[Path, Path], object]
"""Reads the inputs in the first folder, and writes to the second one."""


class BrokenPromiseError(AssertionError):
    """An input with another outcome; `key` is equal for equal reasons."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


def hold(work: Work, source: Path, output: Path) -> bool:
    """Return whether there is a result (True), or a refusal.

    Raises:
        BrokenPromiseError: The outcome is neither, costs too much, changes the input, or leaves something half-done.
    """
    before, memory, start = digest(source), _peak_bytes(), time.process_time()
    is_result = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)  # of numpy: a number that did not fit
            work(source, output)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except NsysPPError as error:
        _check_refusal(error)
        is_result = False
    except BaseException as error:  # panics of polars derive from it
        raise BrokenPromiseError(traceback.format_exc(), _key_of(error)) from None
    spent, growth = time.process_time() - start, _peak_bytes() - memory
    name = getattr(work, "__name__", str(work))
    if spent > MOST_CPU_S:
        raise BrokenPromiseError(f"{name} took {spent:.1f} s", f"slow-{name}")
    if growth > MOST_GROWTH_BYTES:
        raise BrokenPromiseError(f"{name} took {growth >> 20} MiB more", f"memory-{name}")
    if digest(source) != before:
        raise BrokenPromiseError(f"{name} changed its input", f"changed-{name}")
    left = sorted(path.name for path in output.iterdir())
    if any(name.startswith(".") for name in left) or (left and not is_result):
        raise BrokenPromiseError(f"{name} left {left}", f"left-{name}")
    return is_result


def _check_refusal(error: NsysPPError) -> None:
    if isinstance(error, UnforeseenError):
        raise BrokenPromiseError(error.details or error.message, _key_of(error.__cause__ or error)) from None
    if "not enough memory" in error.message:
        raise BrokenPromiseError(error.message, "memory") from None
    if not error.message or error.message.endswith("."):
        raise BrokenPromiseError(f"no sentence: {error.message!r}", "sentence") from None


def _key_of(error: BaseException) -> str:
    """Name an error by its type and the innermost place in the package."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "/nsys_pp/" in frame.filename
    ] or traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).stem}-{frames[-1].name}" if frames else "unknown"
    return f"{type(error).__name__}-{where}".replace("<", "").replace(">", "")


def digest(folder: Path) -> dict[str, str]:
    """Return a digest of all files of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
