"""Writer of part files: a zip with `part.json`, the frames, and the encoded blocks.

Frames (`nsys_pp.arrays.packed_frames`) are compressed one by one, so that each can be read alone; blocks are
compressed already. The zip holds no timestamp: the same report and options make the same bytes. Format:
https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import deflate
import msgspec
from msgspec.structs import replace

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

_LEVEL = 7  # of libdeflate; higher ones take several times as long for one percent
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
    packed = pack_frame(conform(frame, PART_FRAMES[name]), PART_FRAMES[name], measure=_measure)
    return bytes(deflate.zlib_compress(packed, _LEVEL))


def _measure(planes: bytes) -> int:
    """Return the approximate size of bytes after compression, quickly."""
    return len(deflate.zlib_compress(planes, 1))


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
