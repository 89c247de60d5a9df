"""Work for workers in other processes: functions that these can import."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import polars as pl

from nsys_pp.errors import ReportError
from nsys_pp.run.inputs import Batch

ETERNITY_S = 1200  # of a job that must be ended from outside


def read(path: Path) -> str:
    return path.read_text()


def read_own(path: Path, own: str) -> str:
    return f"{path.read_text()}, {own}"


def read_slowly(path: Path) -> str:
    """Odd ones take longer, so that even ones overtake them."""
    time.sleep(0.3 * (int(path.stem) % 2))
    return path.read_text()


def fail(path: Path) -> str:
    time.sleep(0.3 * (int(path.stem) % 2))
    raise ReportError(f"`{path.name}` is broken", f"mend {path.stem}")


def warn(path: Path) -> None:
    time.sleep(0.2 * (int(path.stem) % 2))
    warnings.warn(f"beware of {path.stem}", stacklevel=2)


def crash(path: Path) -> None:
    raise ZeroDivisionError(path.stem)


def raise_on_one(path: Path, error: BaseException) -> str:
    if path.stem == "2":
        raise error
    return path.read_text()


def crash_on_one(path: Path) -> str:
    return raise_on_one(path, IndexError("list index out of range"))


def panic_on_one(path: Path) -> str:
    """Fail as polars does where it meets a value it does not expect."""
    return raise_on_one(path, pl.exceptions.PanicException("called `Result::unwrap()` on an `Err` value"))


def need_too_much_on_one(path: Path) -> str:
    return raise_on_one(path, MemoryError())


def give_what_cannot_be_sent(path: Path) -> object:
    return lambda: path


def tell_threads(path: Path) -> tuple[int, str]:
    return pl.thread_pool_size(), os.environ.get("POLARS_MAX_THREADS", "")


def be_killed_once(path: Path, *, victim: str = "2") -> str:
    """Be killed by the system while working on one of them for the first time."""
    mark = path.with_suffix(".killed")
    if path.stem == victim and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text()


def be_killed(path: Path) -> str:
    """Be killed always on the second; count how often."""
    with path.with_suffix(".tries").open("a") as file:
        file.write("x")
    if path.stem == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text()


def wait_for_ever(path: Path) -> None:
    path.with_suffix(".pid").write_text(str(os.getpid()))
    time.sleep(ETERNITY_S)


def wait_for_ever_after_the_first(path: Path) -> None:
    if path.stem != "0":
        wait_for_ever(path)


def fill_memory(path: Path, *, victim: str = "2", size: int) -> int:
    """Fill memory on one of them, until it is ended from outside; return the bytes on others."""
    with path.with_suffix(".tries").open("a") as file:
        file.write("x")
    if path.stem != victim:
        return len(bytearray(b"x") * 1000)
    blocks = []
    while True:
        blocks.append(bytearray(b"x") * size)
        time.sleep(0.05)


def hold_memory_together(path: Path, *, size: int) -> int:
    """Hold memory for a while: one of them fits the limit, several do not."""
    held = bytearray(b"x") * size
    time.sleep(2)
    return len(held)


def start_a_program_that_waits(path: Path) -> None:
    child = subprocess.Popen(["sleep", str(ETERNITY_S)])
    path.with_suffix(".pid").write_text(str(child.pid))
    child.wait()


def wait_on_one(path: Path) -> str:
    if path.stem == "2":
        time.sleep(ETERNITY_S)
    return path.read_text()


def skip_the_third(batch: Batch, items: list[Path], work: Callable[[Path], str]) -> str:
    """Hold that a batch skips the third item and no other; return why."""
    assert len(batch.map("", items, work)) == 5
    ((path, error),) = batch.skipped
    assert path == items[2]
    return error.message
