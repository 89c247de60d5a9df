"""Reader of parts (`nsys_pp.frames.part`), the inverse of `nsys_pp.write.parts`."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import msgspec
import polars as pl

from nsys_pp.errors import ReportError
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.part import (
    BLOCKS_MEMBER,
    FACTS_MEMBER,
    FORMAT,
    FRAME_ENDING,
    SUFFIX,
    Part,
    PartRecord,
)
from nsys_pp.frames.report import PROJECTIONS
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.read.unreadable import unreadable_error

_SCHEMAS = {
    "anchors": ANCHORS,
    "projections": PROJECTIONS,
    **REPORT_FRAMES,
    **AGGREGATE_FRAMES,
}  # of frames with types that Parquet lacks
_AGAIN = "extract it again from its report"


def is_part(path: Path) -> bool:
    """Return whether a file has the suffix of parts."""
    return path.suffix == SUFFIX


def read_part(path: Path, frames: Iterable[str] | None = None, *, version: str) -> Part:
    """Read a part, except its blocks.

    Args:
        path: File of the part.
        frames: Names of the frames to read; all if None.
        version: Version of nsys-pp, for the message about a part of another format.

    Raises:
        ReportError: The part is unreadable, is damaged, or has another format.
    """
    with _open(path) as archive:
        record = _read_record(archive, path, version)
        members = {name for name in archive.namelist() if name.endswith(FRAME_ENDING)}
        wanted = members if frames is None else {name + FRAME_ENDING for name in frames}
        blocks = archive.getinfo(BLOCKS_MEMBER)
        if blocks.file_size != record.encoded.size_bytes or blocks.compress_type != ZIP_STORED:
            raise ValueError("the blocks differ from the list of encoded subtracks")
        return Part(
            source=Path(record.source),
            made_by=record.made_by,
            options=record.options,
            facts=record.facts,
            frames={name.removesuffix(FRAME_ENDING): _read_frame(archive, name) for name in sorted(wanted)},
            encoded=record.encoded,
        )


@contextmanager
def open_part_blocks(path: Path) -> Iterator[IO[bytes]]:
    """Open the blocks of a part as a stream, which checks them when it is read to its end.

    Raises:
        ReportError: The blocks are unreadable or damaged.
    """
    with _open(path) as archive, archive.open(BLOCKS_MEMBER) as blocks:
        yield blocks


@contextmanager
def _open(path: Path) -> Iterator[ZipFile]:
    """Open a part; convert all errors of reading into a `ReportError`."""
    try:
        with ZipFile(path) as archive:
            yield archive
    except OSError as error:
        if error.filename is None and error.errno in (None, errno.EINVAL):
            raise damaged_error(path) from error
        raise unreadable_error(path, error) from None
    except (
        BadZipFile,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        msgspec.MsgspecError,
        NotImplementedError,  # zipfile raises it for an unknown compression or version
        struct.error,
    ) as error:
        raise damaged_error(path) from error
    except pl.exceptions.PolarsError as error:
        raise damaged_error(path) from error


def damaged_error(path: Path) -> ReportError:
    """Return the error of a part that cannot be understood."""
    return ReportError(f"`{path}` is damaged, or not a part of nsys-pp", _AGAIN)


def _read_record(archive: ZipFile, path: Path, version: str) -> PartRecord:
    """Read the facts of a part; arguments and errors as in `read_part`."""
    values = msgspec.json.decode(archive.read(FACTS_MEMBER))
    if values["format"] != FORMAT:
        raise ReportError(
            f"`{path}` was made by nsys-pp {values['made_by']} (format {values['format']});"
            f" this is nsys-pp {version}, which reads format {FORMAT}",
            _AGAIN,
        )
    record = msgspec.convert(values, PartRecord)
    if msgspec.json.decode(msgspec.json.encode(record)) != values:
        raise ValueError("a field is missing")  # its default is no fact
    return record


def _read_frame(archive: ZipFile, member: str) -> pl.DataFrame:
    frame = pl.read_parquet(BytesIO(archive.read(member)))
    schema = _SCHEMAS.get(member.removesuffix(FRAME_ENDING))
    return frame if schema is None else conform(frame, schema)
