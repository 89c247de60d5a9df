"""Group parts: many parts in one file, a zip whose members are files of parts, stored without another compression.

A part in a group is named by a path below the group: `node07.nspart/rank0.nspart`. All functions that read parts accept
such a path, so a part is skipped, named in errors and checked alone, wherever it is. Only the list of members and the bytes of the
requested part are read.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.part import BLOCKS_MEMBER, SUFFIX
from nsys_pp.read.frame_archives import DAMAGES
from nsys_pp.read.unreadable import check_regular

# APPNOTE.TXT 4.3.7: the header of a member, then its name and its extra field
_HEADER = struct.Struct("<4s5H3I2H")
_SIGNATURE = b"PK\x03\x04"
_IS_ENCRYPTED = 1
_KEPT_LISTS = 16  # of members; inputs are in order of their groups


def is_part(path: Path) -> bool:
    """Return whether a file has the suffix of parts, in any case, as copies by way of other systems may have."""
    return path.suffix.lower() == SUFFIX


def find_group(path: Path) -> Path | None:
    """Return the file that a path is below, as a part in a group is; None where it is below folders alone."""
    return next((above for above in path.parents if is_part(above) and above.is_file()), None)


def list_group(path: Path) -> list[Path] | None:
    """List the parts of a group part, in its order; or those below a path in a group.

    Returns:
        Their paths; None where the path is no group, nor in one, or the list of members is damaged.
    """
    group = path if path.is_file() else find_group(path)
    try:
        if group is None or not _begins_with_part(group):
            return None
        paths = [group / name for name in _list_members(group)]
    except (OSError, NsysPPError, *DAMAGES):
        return None
    return paths if group == path else [one for one in paths if path in (one, *one.parents)]


def is_like_part(path: Path) -> bool:
    """Return whether a file begins like a part or a group of parts, even if the rest is damaged."""
    try:
        with open_stored(path) as file:
            name = _read_first_name(file)
    except (OSError, NsysPPError, *DAMAGES):
        return False
    return name == BLOCKS_MEMBER.encode() or name.endswith(SUFFIX.encode())


@contextmanager
def open_part_file(path: Path) -> Iterator[IO[bytes]]:
    """Open the file of a part: a file of its own, or its bytes in a group.

    Raises:
        OSError: It does not exist, or cannot be read.
        ValueError, KeyError or another of `DAMAGES`: The group is damaged, or has no such part.
        ReportError: It is a pipe or a device.
    """
    with open_stored(path) as file:
        # the end of a cut group is the end of one of its parts, which would be read in place of all
        if _read_first_name(file).endswith(SUFFIX.encode()):
            raise ValueError("a group, not a part")
        file.seek(0)
        yield file


@contextmanager
def open_stored(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, or the bytes of a part in a group; errors as in `open_part_file`."""
    group = find_group(path)
    stored = path if group is None else group
    check_regular(stored)
    with stored.open("rb") as file:
        if group is None:
            yield file
            return
        member = _list_members(group)[str(PurePosixPath(path.relative_to(group)))]
        start = _find_contents(file, member)
        with io.BufferedReader(_Slice(file, start, member.file_size)) as part:
            yield part


def find_stored(path: Path) -> Path:
    """Return the file that holds an input: the group of a part in a group, else the path itself."""
    return (find_group(path) or path) if is_part(path) else path


def _begins_with_part(path: Path) -> bool:
    check_regular(path)
    with path.open("rb") as file:
        return _read_first_name(file).endswith(SUFFIX.encode())


def _read_first_name(file: IO[bytes]) -> bytes:
    """Return the name of the first member of a zip; empty where it does not begin with one."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_SIGNATURE):
        return b""
    return file.read(_HEADER.unpack(header)[9])


def _list_members(group: Path) -> Mapping[str, ZipInfo]:
    state = group.stat()
    return _list_members_of(group, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=_KEPT_LISTS)
def _list_members_of(group: Path, state: tuple[int, ...]) -> Mapping[str, ZipInfo]:
    """List the parts of a group by name, in order; `state` differs where the file was replaced.

    Raises:
        ValueError: A member is no part, or has a name that is no path below the group, or another one's.
    """
    members: dict[str, ZipInfo] = {}
    with ZipFile(group) as archive:
        if archive.infolist() and archive.infolist()[0].header_offset:
            raise ValueError("the list is not that of the whole file")
        for member in archive.infolist():
            if member.compress_type != ZIP_STORED or member.flag_bits & _IS_ENCRYPTED:
                raise ValueError("a part is compressed once more, or encrypted")
            if member.file_size != member.compress_size:
                raise ValueError("a part has two sizes")
            if not _is_name(member.filename) or member.filename in members:
                raise ValueError("invalid name of a part")
            members[member.filename] = member
    return members


def _is_name(name: str) -> bool:
    """Return whether a name is a path of a part below its group, written in one way."""
    path = PurePosixPath(name)
    is_below = not path.is_absolute() and ".." not in path.parts
    return is_below and str(path) == name and path.suffix == SUFFIX


def _find_contents(file: IO[bytes], member: ZipInfo) -> int:
    """Return the offset of the first byte of a member.

    Raises:
        ValueError: There is no member, or the file ends inside of it.
    """
    file.seek(member.header_offset)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_SIGNATURE):
        raise ValueError("the list of members is damaged")
    *_, name_bytes, extra_bytes = _HEADER.unpack(header)
    start: int = member.header_offset + _HEADER.size + name_bytes + extra_bytes
    if start + member.file_size > file.seek(0, io.SEEK_END):
        raise ValueError("the file ends inside of a part")
    return start


class _Slice(io.RawIOBase):
    """A part of an open file, as a file."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at < 0:
            raise ValueError("a position before the beginning")
        self._at = at
        return at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        self._file.seek(self._start + self._at)
        data = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
