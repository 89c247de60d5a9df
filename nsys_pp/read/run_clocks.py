"""Reader of files with the clocks and rows of a run (`nsys_pp.frames.run_clocks`)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import msgspec

from nsys_pp.errors import ReportError
from nsys_pp.frames.part import FORMAT as PART_FORMAT
from nsys_pp.frames.run_clocks import CLOCKS_MEMBER, FORMAT, MachineClocks, RunClocks
from nsys_pp.read.frame_archives import DAMAGES
from nsys_pp.read.unreadable import check_regular, unreadable_error

_MOST_FACTS_BYTES = 1 << 28  # some kB for each report
_MOST_BLOCKS_BYTES = 1 << 32  # of the rows of a machine
_AGAIN = "write it again with `nsys-pp align -o`"


def read_run_clocks(path: Path, *, version: str) -> RunClocks:
    """Read the facts of a run.

    Raises:
        ReportError: The file is unreadable, is damaged, or was made by another version.
    """
    with _open(path) as archive:
        values = msgspec.json.decode(_read_facts(archive, CLOCKS_MEMBER))
        made_by, formats = values["made_by"], (values["format"], values["part_format"])
        if (made_by, *formats) != (version, FORMAT, PART_FORMAT):
            raise ReportError(
                f"`{path}` was made by nsys-pp {made_by} (format {formats[0]} of parts {formats[1]}); this is nsys-pp {version}"
                f" (format {FORMAT} of parts {PART_FORMAT})",
                f"{_AGAIN}, and extract and merge with one version",
            )
        return msgspec.convert(values, RunClocks)


def read_machine_clocks(path: Path, facts: RunClocks, number: int) -> tuple[MachineClocks, list[bytes]]:
    """Read the clocks and rows of a machine, and the blocks of each of its `training`.

    Args:
        path: The file.
        facts: Its facts.
        number: Of the machine among `facts.machines`.

    Raises:
        ReportError: The file is unreadable or damaged.
    """
    with _open(path) as archive:
        machine = msgspec.json.decode(_read_facts(archive, f"{number}.json"), type=MachineClocks)
        own = facts.machines[number]
        if (machine.machine, [one.report_id for one in machine.reports]) != (own.machine, own.report_ids):
            raise ValueError("the list of machines differs")
        sizes = [rows.encoded.size_bytes for rows in machine.training]
        info = archive.getinfo(f"{number}.blocks")
        if sum(sizes) != info.file_size or min(sizes, default=0) < 0 or info.file_size > _MOST_BLOCKS_BYTES:
            raise ValueError("the blocks differ from their list")
        data = BytesIO(archive.read(info))
        return machine, [data.read(size) for size in sizes]


def damaged_clocks_error(path: Path) -> ReportError:
    """Return the error of a file that cannot be understood."""
    return ReportError(f"`{path}` is damaged, or has no clocks of a run", _AGAIN)


def _read_facts(archive: ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _MOST_FACTS_BYTES:
        raise ValueError("the facts are too long")
    return archive.read(name)


@contextmanager
def _open(path: Path) -> Iterator[ZipFile]:
    """Open the file; convert all errors of reading into a `ReportError`."""
    check_regular(path)
    try:
        with ZipFile(path) as archive:
            yield archive
    except OSError as error:
        if error.filename is None and error.errno in (None, errno.EINVAL):
            raise damaged_clocks_error(path) from error
        raise unreadable_error(path, error) from None
    except (*DAMAGES, IndexError, OverflowError, MemoryError) as error:
        raise damaged_clocks_error(path) from error
