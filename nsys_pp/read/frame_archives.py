"""Frames in an archive, compressed one by one: in parts and in baselines. Contents are unpacked within limits."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import msgspec
import polars as pl
from zlib_ng import zlib_ng

from nsys_pp.frames.part import FRAMES_MEMBER

DAMAGES = (
    BadZipFile,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
    NotImplementedError,  # zipfile raises it for an unknown compression or version
    struct.error,
    zlib.error,
    msgspec.MsgspecError,
    pl.exceptions.PolarsError,
)
"""Errors that reading a damaged archive raises."""


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
    data, at, frames = archive.read(FRAMES_MEMBER), 0, {}
    for name, size in sizes_bytes.items():
        frames[name] = data[at : at + size]
        at += size
    return frames


def unpack_bytes(packed: bytes, *, most_bytes: int) -> bytes:
    """Decompress a frame, up to a limit of its size.

    Raises:
        ValueError: It is damaged, cut, or larger.
    """
    inflater = zlib_ng.decompressobj()  # takes half as long as Python's
    try:
        data: bytes = inflater.decompress(packed, most_bytes)
    except zlib_ng.error as error:  # type: ignore[misc]
        raise ValueError("a frame cannot be decompressed") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a frame is cut, or too large")
    return data
