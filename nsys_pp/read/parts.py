"""Parts, read back; what they are is in `nsys_pp.frames.part`, how they are written in `nsys_pp.write.parts`."""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import UnionType
from typing import IO, Any, TypeVar, get_args, get_origin, get_type_hints
from zipfile import ZIP_STORED, BadZipFile, ZipFile

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
    Encoded,
    EncodedSubtrack,
    Part,
    PartFacts,
    PartOptions,
    Track,
)
from nsys_pp.frames.report import PROJECTIONS, Session
from nsys_pp.frames.training import REPORT_FRAMES
from nsys_pp.read.unreadable import unreadable_error

_SCHEMAS = {
    "anchors": ANCHORS,
    "projections": PROJECTIONS,
    **REPORT_FRAMES,
    **AGGREGATE_FRAMES,
}  # of frames whose file does not tell it all
Record = TypeVar("Record", PartFacts, Session)

_AGAIN = "extract it again from its report"


def is_part(path: Path) -> bool:
    """Say whether a file is called a part."""
    return path.suffix == SUFFIX


def read_part(path: Path, frames: Iterable[str] | None = None, *, version: str) -> Part:
    """Read a part, all but its blocks.

    Args:
        path: The file.
        frames: Names of the frames to read; all if None.
        version: Ours, for the message where the part's format is not ours.

    Raises:
        ReportError: It cannot be read, is damaged, or has a format that is not ours.
    """
    with _open(path) as archive:
        told = json.loads(archive.read(FACTS_MEMBER))
        if told["format"] != FORMAT:
            raise ReportError(
                f"`{path}` was made by nsys-pp {told['made_by']} (format {told['format']});"
                f" this is nsys-pp {version}, which reads format {FORMAT}",
                _AGAIN,
            )
        members = {name for name in archive.namelist() if name.endswith(FRAME_ENDING)}
        wanted = members if frames is None else {name + FRAME_ENDING for name in frames}
        encoded = _build_encoded(told["encoded"])
        blocks = archive.getinfo(BLOCKS_MEMBER)
        if blocks.file_size != encoded.size_bytes or blocks.compress_type != ZIP_STORED:
            raise ValueError("its blocks are not those that it lists")
        return Part(
            source=Path(told["source"]),
            made_by=told["made_by"],
            options=_build_options(told["options"]),
            facts=_build_facts(told["facts"]),
            frames={name.removesuffix(FRAME_ENDING): _read_frame(archive, name) for name in sorted(wanted)},
            encoded=encoded,
        )


@contextmanager
def open_part_blocks(path: Path) -> Iterator[IO[bytes]]:
    """Open the blocks of a part, to be read in pieces; read to their end, they are checked.

    Raises:
        ReportError: They cannot be read, or are damaged.
    """
    with _open(path) as archive, archive.open(BLOCKS_MEMBER) as blocks:
        yield blocks


@contextmanager
def _open(path: Path) -> Iterator[ZipFile]:
    """Open a part and turn whatever is wrong with it into one sentence."""
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
        NotImplementedError,  # zipfile's word for a compression or version that it does not know
        struct.error,
    ) as error:
        raise damaged_error(path) from error
    except pl.exceptions.PolarsError as error:
        raise damaged_error(path) from error


def damaged_error(path: Path) -> ReportError:
    """Say that a part cannot be understood."""
    return ReportError(f"`{path}` is damaged, or no part of nsys-pp", _AGAIN)


def _read_frame(archive: ZipFile, member: str) -> pl.DataFrame:
    frame = pl.read_parquet(BytesIO(archive.read(member)))
    schema = _SCHEMAS.get(member.removesuffix(FRAME_ENDING))
    return frame if schema is None else conform(frame, schema)


def _build_facts(told: dict[str, Any]) -> PartFacts:
    session = _build_record(Session, told["session"])
    return _build_record(PartFacts, {**told, "session": session})


def _build_record(kind: type[Record], told: dict[str, Any]) -> Record:
    """Build a record from JSON; raise ValueError unless it has all fields, each of its type."""
    hints = get_type_hints(kind)
    if told.keys() != hints.keys():
        raise ValueError(f"the fields of {kind.__name__} are {', '.join(told)}, expected {', '.join(hints)}")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
    }
    for name, hint in hints.items():
        types = [get_origin(part) or part for part in get_args(hint)]
        if type(values[name]) not in (types if isinstance(hint, UnionType) else [get_origin(hint) or hint]):
            raise ValueError(f"`{name}` is {values[name]!r}, expected {hint}")
    return kind(**values)


def _build_options(told: dict[str, Any]) -> PartOptions:
    lists: dict[str, Any] = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    return PartOptions(**{**told, **lists})


def _build_encoded(told: dict[str, Any]) -> Encoded:
    return Encoded(
        report_id=told["report_id"],
        base_ns=told["base_ns"],
        tracks=[Track(**{**track, "path": tuple(track["path"])}) for track in told["tracks"]],
        subtracks=[
            EncodedSubtrack(**{**subtrack, "track": tuple(subtrack["track"])})
            for subtrack in told["subtracks"]
        ],
    )
