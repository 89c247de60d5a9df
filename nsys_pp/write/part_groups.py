"""Writer of group parts (`nsys_pp.read.part_groups`): the files of many parts, copied into one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO
from zipfile import ZIP_STORED, ZipFile

from nsys_pp.write.files import replace_file
from nsys_pp.write.parts import make_member

_PIECE_BYTES = 1 << 20

OpenPart = Callable[[], AbstractContextManager[IO[bytes]]]


def write_group(
    path: Path, parts: Iterable[tuple[str, OpenPart]], *, force: bool, changed_ns: int | None = None
) -> None:
    """Write a group part atomically; one part is open at a time, and copied in pieces.

    Args:
        path: The file.
        parts: Name of each part in the group, and a function that opens its file.
        force: Replace an existing file.
        changed_ns: Time of the last change that the file will show. Default: now.

    Raises:
        OutputError: The file exists and `force` is not set, or it cannot be written.
    """
    with replace_file(path, force=force) as target:
        with ZipFile(target, "w", ZIP_STORED) as archive:
            for name, open_part in parts:
                with open_part() as part, archive.open(make_member(name), "w", force_zip64=True) as copy:
                    shutil.copyfileobj(part, copy, _PIECE_BYTES)
        if changed_ns is not None:
            os.utime(target, ns=(changed_ns, changed_ns))
