"""Names of temporary files and folders, and removal of those whose process was killed.

A name ends in a mark of its owner: machine, process, and start of this process. So the next run that writes
to the same folder can remove what a killed one left (SIGKILL, a lost node), and nothing that is still being
written. A folder that was moved aside, and was not replaced yet, is moved back.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

# Name, in a temporary folder, of the folder that holds an output until the new one is in its place.
MOVED_ASIDE = "old"
_NAME_CHARS = 50  # of the output's name, in the name of the temporary file
_MARK = re.compile(  # also of the journal that SQLite writes beside a file
    r"\..*\.nsys-pp-(?P<host>[0-9a-f]{10})-(?P<pid>\d{1,10})-(?P<start>\d+)-\w+(?:-journal)?", re.DOTALL
)
_FOREIGN_S = 86_400  # without a change for so long, a file of another machine is a leftover
_own_folders: set[Path] = set()  # where this process made files


def make_temporary_file(output: Path) -> Path:
    """Create an empty hidden file next to an output, readable by its owner alone.

    Raises:
        OSError: It cannot be created.
    """
    _enter_folder(output.parent)
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=_prefix(output.name))
    os.close(handle)
    os.chmod(name, 0o600)  # whatever the umask is
    return Path(name)


def find_usual_mode(output: Path) -> int:
    """Find the permissions of new files by one that is made and removed: to ask for the umask is to set it.

    Raises:
        OSError: It cannot be created.
    """
    path = output.parent / f"{_prefix(output.name)}{secrets.token_hex(8)}"
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        return stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
        path.unlink()


def make_temporary_folder(output: Path) -> Path:
    """Create an empty hidden folder next to an output, readable by its owner alone.

    Raises:
        OSError: It cannot be created.
    """
    _enter_folder(output.parent)
    folder = Path(tempfile.mkdtemp(dir=output.parent, prefix=_prefix(output.name)))
    folder.chmod(0o700)  # whatever the umask is
    return folder


@cache
def sweep_folder(folder: Path) -> None:
    """Remove the temporary files and folders of dead processes in a folder, once per process.

    No `OSError` is raised.

    An output that a process had moved aside, and did not replace before it was killed, is moved back, with a
    warning.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _MARK.fullmatch(entry.name)
            # in a folder that is shared, others may have put anything
            if match and entry.stat(follow_symlinks=False).st_uid == os.geteuid() and _is_left(entry, match):
                _remove(entry)


def remove_own() -> None:
    """Remove the temporary files of this process, which ends.

    An interrupt may come between a file and its cleanup.
    """
    for folder in _own_folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if f".nsys-pp-{_own_mark()}-" in entry.name and _MARK.fullmatch(entry.name):
                    _remove(entry)


def _enter_folder(folder: Path) -> None:
    sweep_folder(folder)
    if not _own_folders:
        atexit.register(remove_own)
    _own_folders.add(folder.absolute())


def _prefix(name: str) -> str:
    # longer than the name of the output, which may already have the maximum length
    return f".{name[:_NAME_CHARS]}.nsys-pp-{_own_mark()}-"


def _own_mark() -> str:
    return f"{_own_host()}-{os.getpid()}-{_read_start(os.getpid()) or 0}"


def _is_left(entry: os.DirEntry[str], match: re.Match[str]) -> bool:
    """Return whether a temporary file has no writer any more."""
    if match["host"] != _own_host():
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > _FOREIGN_S
    pid, start = int(match["pid"]), int(match["start"])
    if not _is_alive(pid):
        return True
    now_started = _read_start(pid)
    return bool(start and now_started and start != now_started)


def _remove(entry: os.DirEntry[str]) -> None:
    with suppress(OSError):  # of another user, or removed by another process
        if entry.is_dir(follow_symlinks=False):
            _move_back(Path(entry.path))
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _move_back(temporary: Path) -> None:
    """Move outputs back that are absent in their folder.

    There is no system call that replaces one folder by another.
    """
    aside = temporary / MOVED_ASIDE
    # a link is none of ours, and leads elsewhere
    for output in [*aside.iterdir()] if aside.is_dir() and not aside.is_symlink() else []:
        place = temporary.parent / output.name
        if not os.path.lexists(place):
            os.rename(output, place)
            warnings.warn(
                f"`{place}` is the earlier one: the run that began to replace it was killed", stacklevel=2
            )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no number of a process
        return True
    return True


def _read_start(pid: int) -> int | None:
    """Read the start of a process, in ticks since the machine started.

    None where the system does not show it.
    """
    with suppress(OSError, ValueError, IndexError):
        # the name of the program, in parentheses, may contain anything
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return None


@cache
def _own_host() -> str:
    """Return a mark of the machine since it started, and of the container.

    Process numbers are unique in it.
    """
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with suppress(OSError):
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:10]
