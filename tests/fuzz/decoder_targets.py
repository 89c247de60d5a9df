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
from nsys_pp.frames.part import (
    BLOCKS_MEMBER,
    FACTS_MEMBER,
    FRAMES_MEMBER,
    PART_FRAMES,
    Encoded,
    EncodedSubtrack,
)
from nsys_pp.output.perfetto.trace import check_blocks
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


def write_changed_blocks(choices: Choices, folder: Path) -> None:
    """Write the blocks of a part with changed bytes, mostly of their heads."""
    with ZipFile(BytesIO(seeds.read_part(choices.below(seeds.COUNT)))) as archive:
        data = archive.read(BLOCKS_MEMBER)
    kept = 64 if choices.below(4) else len(data)
    (folder / "blocks").write_bytes(change_bytes(data[:kept], choices, block=16, most=4) + data[kept:])


def check_blocks_of_a_track(source: Path, output: Path) -> None:
    """Check blocks as `check` does, those of one track."""
    data = (source / "blocks").read_bytes()
    track = EncodedSubtrack(
        track=("GPU 0",), ordinal=0, kind="slices", rows=1, first_ns=0, last_ns=1, size_bytes=len(data)
    )
    try:
        check_blocks(Encoded(report_id=1, base_ns=0, tracks=[], subtracks=[track]), BytesIO(data))
    except (ValueError, EOFError):
        raise NsysPPError("refused") from None


def read_whole_part(source: Path, output: Path) -> None:
    """Read a part: its facts, each of its frames, and its blocks by their checksum."""
    path = source / "rank0.nspart"
    part = read_part(path, version="0")
    for name in part.frames:
        if part.frames[name].schema != PART_FRAMES[name]:
            raise AssertionError(name)
    check_part_blocks(path)
