"""Encoded blocks: where they wait until the trace takes them, and the part files that keep them.

A part is a zip with `part.json`, the frames, and the blocks.
Frames (`nsys_pp.arrays.packed_frames`) are compressed one by one, so that each can be read alone; blocks are
compressed already. The zip holds no timestamp: the same report and options make the same bytes. Format:
https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import deflate
import msgspec
from msgspec import Struct

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
)
from nsys_pp.leftovers import make_temporary_folder
from nsys_pp.output.files import is_file_output, replace_file, translate_errors
from nsys_pp.output.perfetto.trace import Sink

_LEVEL = 7  # of libdeflate; higher ones take several times as long for one percent

_READABLE = 0o644 << 16  # file mode of the members when unpacked


def write_part(
    path: Path,
    build: Callable[[Sink], Part],
    *,
    named: Path | None = None,
) -> Part:
    """Write a part atomically; an existing file is replaced.

    Args:
        path: The file.
        build: Builds the part, and writes its blocks to the sink that it is called with.
        named: Output that errors name, as in `replace_file`.

    Returns:
        The part that `build` returned.

    Raises:
        OutputError: It cannot be written.
    """
    with replace_file(path, force=True, named=named) as target, ZipFile(target, "w", ZIP_STORED) as archive:
        with archive.open(make_member(BLOCKS_MEMBER), "w", force_zip64=True) as blocks:
            part = build(blocks)
        frames = {
            name: bytes(deflate.zlib_compress(pack_frame(conform(part.frames[name], schema), schema), _LEVEL))
            for name, schema in PART_FRAMES.items()
            if name in part.frames
        }
        record = PartRecord(
            format=FORMAT,
            made_by=part.made_by,
            source=str(part.source),
            options=part.options,
            facts=part.facts,
            encoded=part.encoded,
            frame_bytes={name: len(data) for name, data in frames.items()},
        )
        archive.writestr(make_member(FRAMES_MEMBER), b"".join(frames.values()))
        archive.writestr(make_member(FACTS_MEMBER), msgspec.json.encode(record), ZIP_DEFLATED)
    return part


def make_member(name: str) -> ZipInfo:
    """Return the entry of a member that is equal whenever and wherever it is written."""
    member = ZipInfo(name)  # dated 1980, the earliest date of the format
    member.external_attr, member.create_system = _READABLE, 3  # Unix, on all systems
    return member


_TRIES = 10

OpenBlocks = Callable[[], AbstractContextManager[IO[bytes]]]


class _BlockFile(Struct, frozen=True):
    """The file of a report's blocks; only errors of writing it are those of the output."""

    file: IO[bytes]
    output: Path

    def write(self, data: bytes, /) -> None:
        with translate_errors(self.output):
            self.file.write(data)


class Store(Struct, frozen=True):
    """Store of the blocks of reports: a file per report in a folder of `make_scratch`; it can be pickled.

    Attributes:
        folder: The folder.
        output: Output that errors name.
    """

    folder: Path
    output: Path

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Add the blocks of another report.

        A context of their sink, and of a function that opens them for reading, which may be called after the
        `with` block. An exception in the `with` block drops the blocks.

        Raises:
            OutputError: A block cannot be written.
        """
        with translate_errors(self.output):
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".blocks")
        file = os.fdopen(handle, "wb")
        try:
            yield _BlockFile(file, self.output), partial(_open, name)
            with translate_errors(self.output):
                file.close()
        except BaseException:
            with suppress(OSError):  # closing writes what is buffered, and may fail again
                file.close()
            with suppress(OSError):
                os.unlink(name)
            raise


@contextmanager
def make_scratch(output: Path) -> Iterator[Path]:
    """Create a temporary folder next to an output, for files of worker processes; delete it at the end.

    Raises:
        OutputError: The folder cannot be created.
    """
    with translate_errors(output):
        is_file = is_file_output(output)
        folder = os.path.dirname(os.path.realpath(output)) if is_file else tempfile.gettempdir()
        scratch = make_temporary_folder(Path(folder, output.name)).absolute()
    try:
        yield scratch
    finally:
        for _ in range(_TRIES):  # a worker may still be writing
            shutil.rmtree(scratch, ignore_errors=True)
            if not scratch.exists():
                break


def _open(name: str) -> IO[bytes]:
    return open(name, "rb")
