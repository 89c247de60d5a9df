"""From a recorded `.nsys-rep` to a SQLite export, by the nsys of the user, kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from nsys_pp.errors import NsysNotFoundError, ReportError

UNEXPORTED_SUFFIXES = (".nsys-rep", ".qdrep")
_NSYS_VARIABLE = "NSYS_PP_NSYS"
_CACHE_VARIABLE = "NSYS_PP_CACHE"


def is_unexported(path: Path) -> bool:
    """Whether `path` names a report as nsys recorded it, which must be exported to be read."""
    return path.suffix in UNEXPORTED_SUFFIXES and not path.is_dir()


def export_report(report: Path, *, nsys: str | Path | None = None) -> Path:
    """Export a report into the cache, unless that was done since it last changed.

    Two processes that export the same report at once each write a file of their own; the last one
    to finish leaves its file in place, and both are whole.

    Raises:
        ReportError: There is no such report, nsys cannot export it, or the cache cannot be written.
        NsysNotFoundError: There is no nsys.
    """
    state = _read_state(report)
    folder = _cache_folder()
    # a name to recognise it by, and the whole path, since many reports share a name
    key = hashlib.sha256(os.fsencode(report.resolve())).hexdigest()[:16]
    target = folder / f"{report.stem}-{key}.sqlite"
    stamp = target.with_suffix(".json")
    if _is_current(target, stamp, state):
        return target
    program = find_nsys(nsys, report)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as work:
            made = _run_export(program, report, Path(work) / "report.sqlite")
            stamp.unlink(missing_ok=True)  # no stamp, no reuse, should we die in between
            made.replace(target)
            fresh = Path(work) / "stamp.json"
            fresh.write_text(json.dumps(state))
            fresh.replace(stamp)
    except OSError as error:
        raise ReportError(
            f"`{report}` cannot be exported into `{folder}`: {error.strerror}",
            f"set `${_CACHE_VARIABLE}` to a folder that can be written",
        ) from None
    return target


def find_nsys(nsys: str | Path | None, report: Path) -> str:
    """Find the nsys to export with: the given one, `$NSYS_PP_NSYS`, or the one on PATH.

    Raises:
        NsysNotFoundError: There is none; or the named one is none.
    """
    named = str(nsys) if nsys is not None else os.environ.get(_NSYS_VARIABLE, "")
    found = shutil.which(named or "nsys")
    if found is not None:
        return found
    if named:
        raise NsysNotFoundError(
            f"`{named}` is no program that can be run, and `{report}` must be exported first",
            f"give the path of nsys by `--nsys` or `${_NSYS_VARIABLE}`",
        )
    raise NsysNotFoundError(
        f"`{report}` must be exported first, and no nsys was found",
        f"give its path by `--nsys` or `${_NSYS_VARIABLE}`,"
        " or run `nsys export --type sqlite` where Nsight Systems is installed",
    )


def _read_state(report: Path) -> dict[str, int]:
    try:
        status = report.stat()
        with report.open("rb") as file:
            is_empty = not file.read(1)
    except FileNotFoundError:
        raise ReportError(f"`{report}` does not exist", "check the name and the folder") from None
    except OSError as error:
        raise ReportError(f"`{report}` cannot be read: {error.strerror}") from None
    if is_empty:
        raise ReportError(f"`{report}` is empty", "the recording did not finish: profile again")
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _cache_folder() -> Path:
    if named := os.environ.get(_CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nsys-pp"


def _is_current(target: Path, stamp: Path, state: dict[str, int]) -> bool:
    try:
        return bool(target.is_file() and json.loads(stamp.read_text()) == state)
    except (OSError, ValueError):
        return False


def _run_export(program: str, report: Path, output: Path) -> Path:
    command = [program, "export", "--type", "sqlite", "--output", str(output), "--force-overwrite", "true"]
    # nsys dies where its own working directory is gone, so it gets one that is there
    done = subprocess.run(
        [*command, str(report.resolve())],
        cwd=output.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0 and output.is_file():
        return output
    raise ReportError(
        f"`{report}` cannot be exported: nsys says: {_first_useful_line(done.stderr, done.stdout, done.returncode)}",
        "a report of a newer nsys than yours needs that nsys: give it by `--nsys`",
    )


def _first_useful_line(stderr: str, stdout: str, returncode: int) -> str:
    lines = [line.strip() for text in (stderr, stdout) for line in text.splitlines() if line.strip()]
    # progress bars and headings say nothing
    telling = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    return next(iter([*telling, *lines]), f"nothing, and it ended with status {returncode}")
