"""Export of a `.nsys-rep` to SQLite by the user's nsys, kept in a cache that cleans itself."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from nsys_pp.errors import NsysNotFoundError, ReportError, missing_error
from nsys_pp.leftovers import make_temporary_folder
from nsys_pp.read.files import check_database, check_regular, unreadable_error

VARIABLE = "NSYS_PP_CACHE"
_MOST_BYTES = 50_000_000_000
_KEPT_S = 86_400.0  # one command may use all exports of a day
_EXPORT = re.compile(r".+-[0-9a-f]{16}-[0-9a-f]+-[0-9a-f]+(?:-[0-9a-f]{8})?\.sqlite", re.DOTALL)


def find_cache() -> Path:
    """Find the folder of the cache: `$NSYS_PP_CACHE`, else `nsys-pp` among the user's caches."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()  # nsys runs in it
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "nsys-pp"


def make_cache() -> Path:
    """Make the folder of the cache, which its owner alone can read.

    A folder that `$NSYS_PP_CACHE` names and that exists keeps its permissions: a team may share it.

    Raises:
        OSError: It cannot be made.
    """
    folder = find_cache()
    is_ours = not os.environ.get(VARIABLE) or not folder.exists()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if is_ours and folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)  # an older version made it readable for all
    return folder


def _clean_cache(folder: Path) -> None:
    """Remove the exports that were used longest ago, until the others have at most `_MOST_BYTES`.

    None of the last day.
    """
    used = []
    for export in list_exports(folder):
        with suppress(OSError):
            status = export.stat()
            used.append((status.st_atime, status.st_size, export))
    size = sum(one for _, one, _ in used)
    for time_s, one, export in sorted(used):
        if size <= _MOST_BYTES or time_s > time.time() - _KEPT_S:
            break
        with suppress(OSError):
            export.unlink()
        size -= one


def _mark_used(export: Path) -> None:
    """Note the time of a use as that of the last access, which not every file system does itself."""
    with suppress(OSError):  # of another user
        os.utime(export, ns=(time.time_ns(), export.stat().st_mtime_ns))


def list_exports(folder: Path) -> list[Path]:
    """List the exports in a cache; empty without a cache."""
    try:
        return sorted(path for path in folder.iterdir() if _EXPORT.fullmatch(path.name))
    except OSError:
        return []


def find_newest_export(folder: Path, state: str) -> Path | None:
    """Find the newest export of a state of a report, of all versions of nsys.

    `state` begins the names of its exports.
    """
    newest = None
    for export in list_exports(folder):
        if export.name.startswith((f"{state}-", f"{state}.")):
            with suppress(OSError):
                newest = max(newest or (0, export), (export.stat().st_mtime_ns, export))
    return None if newest is None else newest[1]


UNEXPORTED_SUFFIXES = (".nsys-rep", ".qdrep")
_NSYS_VARIABLE = "NSYS_PP_NSYS"


def is_unexported(path: Path) -> bool:
    """Return whether `path` is a report as nsys recorded it, to be exported before reading."""
    return path.suffix.lower() in UNEXPORTED_SUFFIXES and not path.is_dir()


def export_report(report: Path, *, nsys: str | Path | None = None) -> Path:
    """Export a report into the cache, unless the cache has an export of its current state by the same nsys.

    Another version of nsys exports again: its tables may differ. Without nsys, the newest export of the
    current state is used. Processes that export the same report at the same time each write their own file.
    The file of the first one to finish is kept and never replaced.

    Raises:
        ReportError: The report does not exist, nsys cannot export it, or the cache cannot be written.
        NsysNotFoundError: nsys was not found.
    """
    folder = find_cache()
    # a readable name, the whole path, since many reports share a name, and the state of the report
    start = f"{report.stem[:40]}-{hashlib.sha256(os.fsencode(report.resolve())).hexdigest()[:16]}-"
    state = f"{start}{_read_state(report)}"
    try:
        program = find_nsys(nsys, report)
    except NsysNotFoundError:
        if (newest := find_newest_export(folder, state)) is None:
            raise
        _mark_used(newest)
        return newest
    target = folder / f"{state}-{_identify_program(program)}.sqlite"
    if target.is_file():
        with suppress(ReportError):
            check_database(target)
            _mark_used(target)
            return target
        target.unlink(missing_ok=True)  # a copy, or a full disk, has cut it
    try:
        make_cache()
        work = make_temporary_folder(target)
        try:
            export = _run_export(program, report, work / "report.sqlite")
            # restricted to the permissions of its report: both have the environment of the profiled program
            os.chmod(export, (export.stat().st_mode & report.stat().st_mode & 0o666) | 0o600)
            _move_export(export, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        for other in folder.iterdir():  # exports of earlier states of the report
            if other.name.startswith(start) and not other.name.startswith(f"{state}-"):
                other.unlink(missing_ok=True)
        _clean_cache(folder)
    except OSError as error:
        raise ReportError(
            f"`{report}` cannot be exported into `{folder}`: {error.strerror}",
            f"set `${VARIABLE}` to a folder that can be written",
        ) from None
    return target


def _move_export(export: Path, target: Path) -> None:
    """Move the finished export to its name, unless another process was faster and may be reading."""
    try:
        os.link(export, target)
    except FileExistsError:
        return
    except OSError:  # not every file system has links
        export.replace(target)


def find_nsys(nsys: str | Path | None, report: Path) -> str:
    """Find the nsys that exports: `nsys`, `$NSYS_PP_NSYS`, or nsys on PATH.

    Raises:
        NsysNotFoundError: It is missing, or not a program.
    """
    named = str(nsys) if nsys is not None else os.environ.get(_NSYS_VARIABLE, "")
    found = shutil.which(named or "nsys")
    if found is not None:
        return os.path.abspath(found)  # it runs in another folder
    if named:
        raise _not_a_program(named, report)
    hint = (
        f"specify its path with `--nsys` or `${_NSYS_VARIABLE}`,"
        " or run `nsys export --type sqlite` where Nsight Systems is installed"
    )
    if (older := report.with_suffix(".sqlite")).is_file():
        hint += f"; or pass `{older}` itself: it is in the same folder, but older"
    raise NsysNotFoundError(f"`{report}` must be exported first, and no nsys was found", hint)


def _not_a_program(program: str, report: Path, why: str = "") -> NsysNotFoundError:
    return NsysNotFoundError(
        f"`{program}` is not a program that can be run{why}, and `{report}` must be exported first",
        f"specify nsys with `--nsys` or `${_NSYS_VARIABLE}`",
    )


def _identify_program(program: str) -> str:
    """Return the identity of an installed program, without running it.

    Another version has another path, size or time.
    """
    path = Path(program).resolve()
    status = path.stat()
    return hashlib.sha256(os.fsencode(f"{path}\0{status.st_size}\0{status.st_mtime_ns}")).hexdigest()[:8]


def _read_state(report: Path) -> str:
    check_regular(report)
    try:
        status = report.stat()
        with report.open("rb") as file:
            is_empty = not file.read(1)
    except FileNotFoundError:
        raise missing_error(report) from None
    except OSError as error:
        raise unreadable_error(report, error) from None
    if is_empty:
        raise ReportError(f"`{report}` is empty", "the recording did not finish: profile again")
    return f"{status.st_size:x}-{status.st_mtime_ns:x}"


def _run_export(program: str, report: Path, output: Path) -> Path:
    command = [program, "export", "--type", "sqlite", "--output", str(output), "--force-overwrite", "true"]
    try:
        # nsys fails if its working directory was removed, so it runs in one that exists
        done = subprocess.Popen(
            [*command, str(report.resolve())],
            cwd=output.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise _not_a_program(program, report, f": {error.strerror}") from None
    with done:
        try:
            told = "\n".join(reversed(done.communicate()))
        except BaseException:  # programs below nsys would go on
            with suppress(OSError):
                os.killpg(done.pid, signal.SIGKILL)
            raise
    if done.returncode == 0:
        with suppress(ReportError):
            check_database(output)
            return output
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    # other lines are progress bars and headings
    errors = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    line = next(
        iter([*errors, *(lines if done.returncode else [])]),
        f"nothing, and it ended with status {done.returncode}, without a whole export",
    )
    raise ReportError(
        f"`{report}` cannot be exported: nsys reports: {line}",
        "a report of a newer nsys than yours needs that nsys: specify it with `--nsys`",
    )
