"""Errors of files that cannot be read as parts: empty, cut, damaged, or of another kind."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import IO

from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.frames.part import BLOCKS_MEMBER, SUFFIX
from nsys_pp.read.frame_archives import DAMAGES
from nsys_pp.read.unreadable import check_regular

EXTRACT_AGAIN = "extract it again from its report"
_COPY_AGAIN = f"copy it again, or {EXTRACT_AGAIN}"
_END, _END_BYTES = b"PK\x05\x06", 22  # APPNOTE.TXT 4.3.16: the end of a zip
_SQLITE = b"SQLite format 3\0"
_HEADER = struct.Struct("<4s5H3I2H")  # APPNOTE.TXT 4.3.7: the header of a member, then its name
_SIGNATURE = b"PK\x03\x04"


def is_part(path: Path) -> bool:
    """Return whether a file has the suffix of parts, in any case, as copies by way of other systems may have."""
    return path.suffix.lower() == SUFFIX


def is_like_part(path: Path) -> bool:
    """Return whether a file begins like a part, even if the rest is damaged."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            return _read_first_name(file) == BLOCKS_MEMBER.encode()
    except (OSError, NsysPPError, *DAMAGES):
        return False


def _read_first_name(file: IO[bytes]) -> bytes:
    """Return the name of the first member of a zip; empty where it does not begin with one."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_SIGNATURE):
        return b""
    return file.read(_HEADER.unpack(header)[9])


def damaged_error(path: Path) -> ReportError:
    """Return the error of a part that cannot be understood, by the first bytes and the end of its file."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            header = file.read(len(_SQLITE))
            file.seek(max(file.seek(0, io.SEEK_END) - _END_BYTES, 0))
            has_end = file.read(len(_END)) == _END  # parts are written without a comment after it
    except (OSError, NsysPPError, *DAMAGES):
        return _unclear_error(path)
    if not header:
        return ReportError(f"`{path}` is empty", f"its extraction or its copy did not finish: {_COPY_AGAIN}")
    if header == _SQLITE:
        return ReportError(
            f"`{path}` is not a part of nsys-pp: it is a SQLite database",
            "rename it to end in `.sqlite` if it is a report, and extract it with `nsys-pp extract`",
        )
    if has_end:
        return _unclear_error(path)
    if is_like_part(path):
        return ReportError(
            f"`{path}` is damaged: it has no end, as a file that was not written or copied whole", _COPY_AGAIN
        )
    return ReportError(f"`{path}` is not a part of nsys-pp", EXTRACT_AGAIN)


def _unclear_error(path: Path) -> ReportError:
    return ReportError(f"`{path}` is damaged, or not a part of nsys-pp", EXTRACT_AGAIN)
