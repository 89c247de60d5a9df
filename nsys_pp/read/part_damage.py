"""Errors of files that cannot be read as parts: empty, cut, damaged, or of another kind."""

from __future__ import annotations

import io
from pathlib import Path

from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.read.frame_archives import DAMAGES
from nsys_pp.read.part_groups import is_like_part, open_stored

EXTRACT_AGAIN = "extract it again from its report"
_COPY_AGAIN = f"copy it again, or {EXTRACT_AGAIN}"
_END, _END_BYTES = b"PK\x05\x06", 22  # APPNOTE.TXT 4.3.16: the end of a zip
_SQLITE = b"SQLite format 3\0"


def damaged_error(path: Path) -> ReportError:
    """Return the error of a part that cannot be understood, by the first bytes and the end of its file."""
    try:
        with open_stored(path) as file:
            header = file.read(len(_SQLITE))
            file.seek(max(file.seek(0, io.SEEK_END) - _END_BYTES, 0))
            has_end = file.read(len(_END)) == _END  # parts and groups are written without a comment after it
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
