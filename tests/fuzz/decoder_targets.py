"""Targets whose inputs are the bytes that one decoder reads: frames and blocks of a part, whole parts.

Each takes under a millisecond, so that a million inputs of them take minutes.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import polars as pl

from nsys_pp.arrays.packed_frames import unpack_frame
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.part import BLOCKS_MEMBER, FACTS_MEMBER, FRAMES_MEMBER, PART_FRAMES
from nsys_pp.output.perfetto.packed_blocks import HEAD_BYTES, check_block, read_head, unpack_block
from nsys_pp.read import check_part_blocks, read_part
from tests.fuzz import seeds
from tests.fuzz.choices import Choices
from tests.fuzz.values import change_bytes


@cache
def _read_frame_seeds(number: int) -> tuple[tuple[str, bytes], ...]:
    """Return the frames of a part with rows, unpacked, by name."""
    with ZipFile(BytesIO(seeds.read_part(number))) as archive:
        sizes = json.loads(archive.read(FACTS_MEMBER))["frame_bytes"]
        data, at, frames = archive.read(FRAMES_MEMBER), 0, []
    for name, size in sizes.items():
        frames.append((name, zlib.decompress(data[at : at + size])))
        at += size
    return tuple(frames)


def write_changed_frame(choices: Choices, folder: Path) -> None:
    """Write a frame of a part with changed bytes."""
    name, data = choices.pick(_read_frame_seeds(choices.below(seeds.COUNT)))
    (folder / name).write_bytes(change_bytes(data, choices, block=16, most=6))


def unpack_frames(source: Path, output: Path) -> None:
    """Unpack a frame: it has its schema, or is refused."""
    (path,) = source.iterdir()
    try:
        frame = unpack_frame(path.read_bytes(), PART_FRAMES[path.name])
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError, pl.exceptions.PolarsError):
        raise NsysPPError("refused") from None  # as `nsys_pp.read.parts` does
    if frame.schema != PART_FRAMES[path.name]:
        raise AssertionError(f"{frame.schema}")


@cache
def _read_block_seeds(number: int) -> tuple[bytes, ...]:
    """Return packed blocks, without their heads."""
    with ZipFile(BytesIO(seeds.read_part(number))) as archive:
        data = archive.read(BLOCKS_MEMBER)
    blocks, at = [], 0
    while at < len(data):
        length, _ = read_head(data[at : at + HEAD_BYTES])
        blocks.append(data[at + HEAD_BYTES : at + HEAD_BYTES + length])
        at += HEAD_BYTES + length
    return tuple(blocks)


def write_changed_block(choices: Choices, folder: Path) -> None:
    """Write a packed block with changed contents, packed again in half of the cases."""
    data = choices.pick(_read_block_seeds(choices.below(seeds.COUNT)))
    if data[0] == 1 and choices.below(4):
        inner = zlib.decompress(data[1:]) if data[1] == 0x78 else zlib.decompress(data[1:], -15)
        data = b"\1" + zlib.compress(change_bytes(inner, choices, block=16, most=4), 1)
    else:
        data = change_bytes(data, choices, block=16, most=4)
    (folder / "block").write_bytes(data)


def unpack_blocks(source: Path, output: Path) -> None:
    """Unpack a block as a merge does."""
    data = (source / "block").read_bytes()
    try:
        unpack_block(check_block(data, zlib.crc32(data)))
    except ValueError:
        raise NsysPPError("refused") from None


def read_whole_part(source: Path, output: Path) -> None:
    """Read a part: its facts, each of its frames, and its blocks by their checksum."""
    path = source / "rank0.nspart"
    part = read_part(path, version="0")
    for name in part.frames:
        if part.frames[name].schema != PART_FRAMES[name]:
            raise AssertionError(name)
    check_part_blocks(path)
