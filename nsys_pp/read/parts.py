"""Reader of parts (`nsys_pp.frames.part`), the inverse of `nsys_pp.output.blocks`.

What is damaged is refused.
"""

from __future__ import annotations

import errno
import io
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import msgspec
import polars as pl

from nsys_pp.arrays.packed_frames import unpack_frames
from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.frames.part import (
    BLOCKS_MEMBER,
    FACTS_MEMBER,
    FORMAT,
    FRAMES_MEMBER,
    PART_FRAMES,
    ROW_RULES,
    SUFFIX,
    Part,
    PartRecord,
)
from nsys_pp.read.files import check_regular, unreadable_error

# Errors that reading a damaged part raises.
DAMAGES = (
    BadZipFile,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
    RecursionError,
    NotImplementedError,  # zipfile raises it for an unknown compression or version
    struct.error,
    zlib.error,
    msgspec.MsgspecError,
    pl.exceptions.PolarsError,
)


def read_packed_frames(archive: ZipFile, sizes_bytes: Mapping[str, int]) -> dict[str, bytes]:
    """Read the compressed frames of an archive by name.

    Args:
        archive: With the member `FRAMES_MEMBER`.
        sizes_bytes: Compressed size of each frame, in their order.

    Raises:
        ValueError: The frames are not those of the list.
    """
    member = archive.getinfo(FRAMES_MEMBER)
    if member.compress_type != ZIP_STORED:  # its frames are compressed, each with a limit
        raise ValueError("the frames are compressed twice")
    if sum(sizes_bytes.values()) != member.file_size or min(sizes_bytes.values(), default=0) < 0:
        raise ValueError("the frames differ from their list")
    data, ends = archive.read(FRAMES_MEMBER), accumulate(sizes_bytes.values())
    return {name: data[end - size : end] for (name, size), end in zip(sizes_bytes.items(), ends, strict=True)}


def unpack_bytes(packed: bytes, *, most_bytes: int) -> bytes:
    """Decompress a frame, up to a limit of its size.

    Raises:
        zlib.error: It is damaged.
        ValueError: It is cut, or larger.
    """
    inflater = zlib.decompressobj()
    data: bytes = inflater.decompress(packed, most_bytes)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a frame is cut, or too large")
    return data


EXTRACT_AGAIN = "extract it again from its report"
_COPY_AGAIN = f"copy it again, or {EXTRACT_AGAIN}"
_END, _END_BYTES = b"PK\x05\x06", 22  # APPNOTE.TXT 4.3.16: the end of a zip
_SQLITE = b"SQLite format 3\0"
_HEADER = struct.Struct("<4s5H3I2H")  # APPNOTE.TXT 4.3.7: the header of a member, then its name
_SIGNATURE = b"PK\x03\x04"


def is_part(path: Path) -> bool:
    """Return whether a file has the suffix of parts, in any case.

    As copies by way of other systems may have.
    """
    return path.suffix.lower() == SUFFIX


def is_like_part(path: Path) -> bool:
    """Return whether a file begins like a part, even if the rest is damaged."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
            size = _HEADER.unpack(header)[9] if header.startswith(_SIGNATURE) else 0  # of the first name
            return file.read(size) == BLOCKS_MEMBER.encode()
    except (OSError, NsysPPError, *DAMAGES):
        return False


def damaged_error(path: Path) -> ReportError:
    """Return the error of a part that cannot be understood, by the first bytes and the end of its file."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            header = file.read(len(_SQLITE))
            file.seek(max(file.seek(0, io.SEEK_END) - _END_BYTES, 0))
            has_end = file.read(len(_END)) == _END  # parts are written without a comment after it
    except (OSError, NsysPPError, *DAMAGES):
        header, has_end = b"unreadable", True
    if not header:
        return ReportError(f"`{path}` is empty", f"its extraction or its copy did not finish: {_COPY_AGAIN}")
    if header == _SQLITE:
        return ReportError(
            f"`{path}` is not a part of nsys-pp: it is a SQLite database",
            "rename it to end in `.sqlite` if it is a report, and extract it with `nsys-pp extract`",
        )
    if has_end:
        return ReportError(f"`{path}` is damaged, or not a part of nsys-pp", EXTRACT_AGAIN)
    if is_like_part(path):
        return ReportError(
            f"`{path}` is damaged: it has no end, as a file that was not written or copied whole", _COPY_AGAIN
        )
    return ReportError(f"`{path}` is not a part of nsys-pp", EXTRACT_AGAIN)


_MOST_FACTS_BYTES = 1 << 26  # some kB are usual
# Unpacked bytes of a frame, for each packed byte of all frames: 3 times as many as all frames of real parts.
_LEAST_FRAME_BYTES, _MOST_RATIO, _MOST_FRAME_BYTES = 1 << 25, 60, 1 << 30
_PIECE_BYTES = 1 << 20


def read_part(
    path: Path, frames: Iterable[str] | None = None, *, version: str, optional: Iterable[str] = ()
) -> Part:
    """Read a part, except its blocks.

    Args:
        path: File of the part.
        frames: Names of the frames to read; all if None.
        version: Version of nsys-pp, for the message about a part of another format.
        optional: Names of frames to read in addition, where the part has them.

    Raises:
        ReportError: The part is unreadable, is damaged, or has another format.
    """
    with _open(path) as archive:
        record = _read_record(archive, path, version)
        packed = read_packed_frames(archive, record.frame_bytes)
        wanted = packed.keys() if frames is None else set(frames)
        blocks = archive.getinfo(BLOCKS_MEMBER)
        if blocks.file_size != record.encoded.size_bytes or blocks.compress_type != ZIP_STORED:
            raise ValueError("the blocks differ from the list of encoded subtracks")
        if not wanted <= packed.keys():
            raise KeyError("a frame is missing")
        return Part(
            source=Path(record.source),
            made_by=record.made_by,
            options=record.options,
            facts=record.facts,
            frames=PackedFrames(
                {name: packed[name] for name in PART_FRAMES if name in packed.keys() & {*wanted, *optional}},
                path,
                most_bytes=min(
                    _LEAST_FRAME_BYTES + _MOST_RATIO * sum(map(len, packed.values())), _MOST_FRAME_BYTES
                ),
            ),
            encoded=record.encoded,
        )


class PackedFrames(Mapping[str, pl.DataFrame]):
    """Frames of a part, each unpacked when it is used and not kept: a run of many parts needs them once.

    Attributes:
        packed: Compressed frames by name.
        path: The part, for errors.
        most_bytes: Limit of an unpacked frame.
    """

    def __init__(self, packed: Mapping[str, bytes], path: Path, *, most_bytes: int) -> None:
        self.packed, self.path, self.most_bytes = packed, path, most_bytes

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Unpack a frame.

        Raises:
            KeyError: It was not read.
            ReportError: The part is damaged.
        """
        _ = self.packed[name]
        try:
            return _unpack([self], name)[0]
        except DAMAGES as error:
            raise damaged_error(self.path) from error

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self.packed)

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.packed)


def concat_frames(parts: Sequence[Mapping[str, pl.DataFrame]], name: str) -> tuple[pl.DataFrame, list[int]]:
    """Concatenate a frame of several parts.

    Args:
        parts: Frames of each part, read from files or not; at least one.
        name: Name of the frame.

    Returns:
        The frame, and the number of rows of each part.

    Raises:
        KeyError: A part has no such frame.
        ReportError: A part is damaged.
    """
    packed = [part for part in parts if isinstance(part, PackedFrames)]
    if len(packed) == len(parts):
        try:
            return _unpack(packed, name)
        except DAMAGES:
            pass  # one by one, the part is named
    frames = [part[name] for part in parts]
    return pl.concat(frames), [len(frame) for frame in frames]


def _unpack(parts: Sequence[PackedFrames], name: str) -> tuple[pl.DataFrame, list[int]]:
    unpacked = (unpack_bytes(part.packed[name], most_bytes=part.most_bytes) for part in parts)
    frame, sizes = unpack_frames(unpacked, PART_FRAMES[name])
    if name in ROW_RULES and not frame.select(ROW_RULES[name].fill_null(value=False).all()).item():
        raise ValueError("a row breaks a rule of its frame")
    return frame, sizes


@contextmanager
def open_part_blocks(path: Path) -> Iterator[IO[bytes]]:
    """Open the blocks of a part as a stream, which checks them when it is read to its end.

    Raises:
        ReportError: The blocks are unreadable or damaged.
    """
    with _open(path) as archive, archive.open(BLOCKS_MEMBER) as blocks:
        yield blocks


def check_part_blocks(path: Path) -> None:
    """Read all blocks of a part, without unpacking them, and compare them with their checksum.

    Raises:
        ReportError: The blocks are unreadable or damaged.
    """
    with open_part_blocks(path) as blocks:
        while blocks.read(_PIECE_BYTES):
            pass


@contextmanager
def _open(path: Path) -> Iterator[ZipFile]:
    """Open a part; convert all errors of reading into a `ReportError`."""
    try:
        check_regular(path)
        with ZipFile(path) as archive:
            yield archive
    except OSError as error:
        if error.filename is None and error.errno in (None, errno.EINVAL):
            raise damaged_error(path) from error
        raise unreadable_error(path, error) from None
    except DAMAGES as error:
        raise damaged_error(path) from error


def _read_record(archive: ZipFile, path: Path, version: str) -> PartRecord:
    """Read the facts of a part; arguments and errors as in `read_part`."""
    if archive.getinfo(FACTS_MEMBER).file_size > _MOST_FACTS_BYTES:
        raise ValueError("the facts are too long")
    values = msgspec.json.decode(archive.read(FACTS_MEMBER))
    if values["format"] != FORMAT:
        raise ReportError(
            f"`{path}` was made by nsys-pp {values['made_by']!s:.20} (format {values['format']!s:.20});"
            f" this is nsys-pp {version}, which reads format {FORMAT}",
            EXTRACT_AGAIN,
        )
    record = msgspec.convert(values, PartRecord)
    if msgspec.json.decode(msgspec.json.encode(record)) != values:
        raise ValueError("a field is missing")  # its default is no fact
    return record
