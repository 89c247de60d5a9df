"""Compression of the planes of bytes (`nsys_pp.arrays.byte_planes`) of parts, and of frames between processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import msgspec
from msgspec.structs import replace
from zlib_ng import zlib_ng

from nsys_pp.arrays.packed_frames import pack_frame
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part import (
    BLOCKS_MEMBER,
    FACTS_MEMBER,
    FORMAT,
    FRAMES_MEMBER,
    PART_FRAMES,
    Part,
    PartRecord,
    list_subtracks,
)
from nsys_pp.output.files import replace_file
from nsys_pp.output.perfetto.trace import Sink

_LEVEL = 6  # higher ones take five times as long for one percent
_MEMORY_LEVEL = (
    6  # below the default of 8: a table of codes for each 4,096 symbols fits planes better, by two percent
)
_QUICK_LEVEL = 2
_QUICKEST_LEVEL = 1
_WINDOW_BITS = 15


def deflate(data: bytes) -> bytes:
    """Compress bytes; the same bytes have the same result."""
    deflater = zlib_ng.compressobj(_LEVEL, zlib_ng.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
    return b"".join([deflater.compress(data), deflater.flush()])


def deflate_quickly(data: bytes) -> bytes:
    """Compress bytes that are read once."""
    return zlib_ng.compress(data, _QUICKEST_LEVEL)


def inflate(data: bytes) -> bytes:
    """Decompress bytes of `deflate_quickly`."""
    return zlib_ng.decompress(data)


def measure_deflated(data: bytes) -> int:
    """Return the approximate size of bytes after compression, quickly."""
    return len(zlib_ng.compress(data, _QUICK_LEVEL))


_SUBTRACKS = "subtracks"
_READABLE = 0o644 << 16  # file mode of the members when unpacked


def write_part(
    path: Path,
    build: Callable[[Sink], Part],
    *,
    force: bool,
    packed: Mapping[str, bytes] | None = None,
    named: Path | None = None,
) -> Part:
    """Write a part atomically.

    Args:
        path: The file.
        build: Builds the part, and writes its blocks to the sink that it is called with.
        force: Replace an existing file.
        packed: Frames that are packed already, as another part has them.
        named: Output that errors name, as in `replace_file`.

    Returns:
        The part that `build` returned.

    Raises:
        OutputError: The file exists and `force` is not set, or it cannot be written.
    """
    with replace_file(path, force=force, named=named) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        with archive.open(make_member(BLOCKS_MEMBER), "w", force_zip64=True) as blocks:
            part = build(blocks)
        kept = {name: data for name, data in (packed or {}).items() if name != _SUBTRACKS}
        names = [name for name in PART_FRAMES if name in part.frames or name in (_SUBTRACKS, *kept)]
        frames = {name: kept.get(name) or _pack_frame(name, part) for name in names}
        archive.writestr(make_member(FRAMES_MEMBER), b"".join(frames.values()))
        archive.writestr(make_member(FACTS_MEMBER), _write_facts(part, frames), ZIP_DEFLATED)
    return part


def make_member(name: str) -> ZipInfo:
    """Return the entry of a member that is equal whenever and wherever it is written."""
    member = ZipInfo(name)  # dated 1980, the earliest date of the format
    member.external_attr, member.create_system = _READABLE, 3  # Unix, on all systems
    return member


def _pack_frame(name: str, part: Part) -> bytes:
    frame = list_subtracks(part.encoded.subtracks) if name == _SUBTRACKS else part.frames[name]
    packed = pack_frame(conform(frame, PART_FRAMES[name]), PART_FRAMES[name], measure=measure_deflated)
    return deflate(packed)


def _write_facts(part: Part, frames: Mapping[str, bytes]) -> bytes:
    record = PartRecord(
        format=FORMAT,
        made_by=part.made_by,
        source=str(part.source),
        options=part.options,
        facts=part.facts,
        encoded=replace(part.encoded, subtracks=[]),
        frame_bytes={name: len(data) for name, data in frames.items()},
    )
    return msgspec.json.encode(record)
