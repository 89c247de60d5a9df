"""Atomic writing of files: an output appears complete or not at all."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from nsys_pp.errors import ENDINGS, OutputError, explain_os_error
from nsys_pp.leftovers import (
    MOVED_ASIDE,
    find_usual_mode,
    make_temporary_file,
    make_temporary_folder,
    sweep_folder,
)

# An output that is no file: the standard output of the process.
STANDARD_OUTPUT = Path("-")

_UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # of file systems that cannot do it


def check_output(path: Path, *, force: bool, inputs: Iterable[Path] = (), makes_folder: bool = False) -> None:
    """Refuse an existing output before any work is done.

    Raises:
        OutputError: The output exists and `force` is not set; or it is a folder, or one of the inputs; or its
            folder is missing, unless it will be made (`makes_folder`).
    """
    # a part in a group has a path below its group, and a table of an exported folder is a part of the report
    inputs = [*inputs]
    files = {file for one in inputs for file in (one, *one.parents)}
    with translate_errors(path):
        is_input = path.is_file() and any(_is_same(path, file) for file in files)
        if is_input or any(one.is_dir() and _is_same(path.parent, one) for one in inputs):
            raise OutputError(
                f"cannot write `{path}`: it is one of the reports to read", "name another file with `-o`"
            )
        if path.is_dir():
            raise OutputError(f"cannot write `{path}`: it is a folder", "name a file with `-o`")
        if not makes_folder:
            _check_parent(path)
        if not force and path.is_file():
            raise OutputError(f"`{path}` exists", "add `--force` to replace it")


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        number = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
        reason, hint = explain_os_error(OSError(number, ""))
        raise OutputError(f"cannot write `{path}`: {reason}", hint)


def _is_same(one: Path, other: Path) -> bool:
    return os.path.exists(one) and os.path.exists(other) and one.samefile(other)


def is_file_output(path: Path) -> bool:
    """Return whether an output is a file, or will be one: no device, pipe or `STANDARD_OUTPUT`."""
    return path != STANDARD_OUTPUT and (path.is_file() or not path.exists())


def check_file_output(path: Path, noun: str) -> None:
    """Refuse an output that is no file, for what is not written from its beginning to its end.

    Raises:
        OutputError: It is a folder, a device, or a pipe.
    """
    if not is_file_output(path):
        raise OutputError(f"cannot write `{path}`: {noun} is a file", "name a file with `-o`")


@contextmanager
def replace_file(
    path: Path, *, force: bool, copied_from: Path | None = None, named: Path | None = None
) -> Iterator[Path]:
    """Create a temporary file next to `path`; rename it to `path` when the block succeeds.

    An exception or interrupt in the block leaves `path` unchanged and deletes the temporary file. If `path`
    is a symbolic link, its target is replaced. Devices and pipes (`/dev/null`, `/dev/stdout`) are written
    directly.

    Args:
        path: The output.
        force: Replace an existing file.
        copied_from: Original of a copy, with at most the permissions of the original.
        named: Output that errors name, where `path` is a temporary file of it. Default: `path`.

    Yields:
        The path to write to.

    Raises:
        OutputError: The output exists and `force` is not set, or the system refuses to write.
    """
    check_output(path, force=force)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        # polars handles Ctrl-C so that it would not end the wait for the reader of a pipe
        if hasattr(signal, "siginterrupt"):  # not on Windows
            signal.siginterrupt(signal.SIGINT, True)
        with translate_errors(path):
            yield path
        return
    with translate_errors(named or path):
        real = Path(os.path.realpath(path))
        new = make_temporary_file(real)
        try:
            yield new
            mode = find_usual_mode(real)
            os.chmod(new, mode if copied_from is None else (mode & copied_from.stat().st_mode) | 0o600)
            sync_file(new)
            os.replace(new, real)
        finally:
            with suppress(FileNotFoundError):
                new.unlink()


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let Ctrl-C and the like wait, as until several files are in place: else some are new and others old."""
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda caught, _: held.append(caught)) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in held[:1]:
            signal.raise_signal(caught)


@contextmanager
def make_folders(folders: Collection[Path]) -> Iterator[None]:
    """Make folders that are absent; if the block fails, those without a file are removed.

    Raises:
        OutputError: One cannot be made.
    """
    absent = {one for folder in folders for one in (folder, *folder.parents) if not one.is_dir()}
    try:
        for folder in sorted(absent):
            with translate_errors(folder):
                folder.mkdir(exist_ok=True)
        yield
    except BaseException:
        for folder in sorted(absent, reverse=True):
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def replace_folder(
    path: Path, *, force: bool, is_ours: Callable[[Path], bool], removal: ExitStack | None = None
) -> Iterator[Path]:
    """Create a temporary folder next to `path`; rename it to `path` when the block succeeds.

    An exception or interrupt in the block leaves `path` unchanged and deletes the temporary folder. After a
    kill between two renamings, `sweep_folder` moves the earlier folder back.

    Args:
        path: The folder.
        force: Replace an existing folder.
        is_ours: Checks that a folder was written by the same command; others are never replaced.
        removal: Removes the replaced folder when it closes, after other outputs are in place; until then
            Ctrl-C waits. None: removed at once.

    Yields:
        The folder to write to.

    Raises:
        OutputError: As in `check_folder`, or the system refuses to write.
    """
    check_folder(path, force=force, is_ours=is_ours)
    with translate_errors(path), ExitStack() as own:
        scratch = make_temporary_folder(path)
        (own if removal is None else removal).callback(shutil.rmtree, scratch, ignore_errors=True)
        new, old = scratch / "new", scratch / MOVED_ASIDE / path.name
        new.mkdir()
        old.parent.mkdir()
        yield new
        for file in new.rglob("*"):
            if file.is_file() and not file.is_symlink():
                sync_file(file)
        if removal is not None:
            removal.enter_context(hold_interrupts())  # until the other outputs are in place, too
        try:
            if path.exists():
                os.rename(path, old)
            os.rename(new, path)
            os.rename(old.parent, scratch / "replaced")
        except BaseException:  # an interrupt, too: the folder below is removed
            if old.exists() and not path.exists():
                os.rename(old, path)
            raise


def sync_file(path: Path) -> None:
    """Write a file to its disk, so that a crash of the machine after its renaming leaves no empty file.

    Raises:
        OSError: The disk is full or broken; network file systems report this no earlier.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise
    finally:
        os.close(handle)


def check_folder(path: Path, *, force: bool, is_ours: Callable[[Path], bool]) -> None:
    """Refuse an existing folder before it is written.

    Raises:
        OutputError: It exists, and `force` is not set or it is not `is_ours`; or the folder around it is
            missing.
    """
    _check_parent(path)
    sweep_folder(path.parent)
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_dir() or not is_ours(path):
        raise OutputError(
            f"cannot write `{path}`: it exists, and `nsys-pp` did not write it",
            "move it, or use another `-o`",
        )
    if not force:
        raise OutputError(f"`{path}` exists", "add `--force` to replace it")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Convert each `OSError` in the block to an `OutputError` about `path`.

    A broken pipe (EPIPE) is not converted.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reason, hint = explain_os_error(error)
        raise OutputError(f"cannot write `{path}`: {reason}", hint) from error


@contextmanager
def open_replaced(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """Open an output as in `replace_file`, or `STANDARD_OUTPUT`, which has all bytes when the block ends."""
    if path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with replace_file(path, force=force) as target, target.open("wb") as stream:
            yield stream


@contextmanager
def open_output(path: Path) -> Iterator[io.BufferedWriter[_RecordingFile]]:
    """Open a file that a library writes to; if a write fails, raise the original `OSError`.

    Some libraries raise an error of their own instead, without `errno`, which `translate_errors` needs.
    """
    with path.open("wb", buffering=0) as file:
        recording = _RecordingFile(file)
        try:
            with io.BufferedWriter(recording) as stream:
                yield stream
        except Exception:
            if recording.error_of_write is not None:
                raise recording.error_of_write from None
            raise


class _RecordingFile(io.RawIOBase):
    # keeps the error of a failed write
    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.error_of_write: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error_of_write = error
            raise
