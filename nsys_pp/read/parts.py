"""Reader of parts (`nsys_pp.frames.part`), the inverse of `nsys_pp.write.parts`."""

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
}  # of frames with types that Parquet lacks
Record = TypeVar("Record", PartFacts, Session)

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
        values = json.loads(archive.read(FACTS_MEMBER))
        if values["format"] != FORMAT:
            raise ReportError(
                f"`{path}` was made by nsys-pp {values['made_by']} (format {values['format']});"
                f" this is nsys-pp {version}, which reads format {FORMAT}",
                _AGAIN,
            )
        members = {name for name in archive.namelist() if name.endswith(FRAME_ENDING)}
        wanted = members if frames is None else {name + FRAME_ENDING for name in frames}
        encoded = _build_encoded(values["encoded"])
        blocks = archive.getinfo(BLOCKS_MEMBER)
        if blocks.file_size != encoded.size_bytes or blocks.compress_type != ZIP_STORED:
            raise ValueError("the blocks differ from the list of encoded subtracks")
        return Part(
            source=Path(values["source"]),
            made_by=values["made_by"],
            options=_build_options(values["options"]),
            facts=_build_facts(values["facts"]),
            frames={name.removesuffix(FRAME_ENDING): _read_frame(archive, name) for name in sorted(wanted)},
            encoded=encoded,
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
        NotImplementedError,  # zipfile raises it for an unknown compression or version
        struct.error,
    ) as error:
        raise damaged_error(path) from error
    except pl.exceptions.PolarsError as error:
        raise damaged_error(path) from error


def damaged_error(path: Path) -> ReportError:
    """Return the error of a part that cannot be understood."""
    return ReportError(f"`{path}` is damaged, or not a part of nsys-pp", _AGAIN)


def _read_frame(archive: ZipFile, member: str) -> pl.DataFrame:
    frame = pl.read_parquet(BytesIO(archive.read(member)))
    schema = _SCHEMAS.get(member.removesuffix(FRAME_ENDING))
    return frame if schema is None else conform(frame, schema)


def _build_facts(values: dict[str, Any]) -> PartFacts:
    session = _build_record(Session, values["session"])
    return _build_record(PartFacts, {**values, "session": session})


def _build_record(kind: type[Record], values: dict[str, Any]) -> Record:
    """Build a record from JSON; raise ValueError if a field is missing, unknown or of another type."""
    hints = get_type_hints(kind)
    if values.keys() != hints.keys():
        raise ValueError(
            f"the fields of {kind.__name__} are {', '.join(values)}, expected {', '.join(hints)}"
        )
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    for name, hint in hints.items():
        types = [get_origin(part) or part for part in get_args(hint)]
        if type(fields[name]) not in (types if isinstance(hint, UnionType) else [get_origin(hint) or hint]):
            raise ValueError(f"`{name}` is {fields[name]!r}, expected {hint}")
    return kind(**fields)


def _build_options(values: dict[str, Any]) -> PartOptions:
    lists: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return PartOptions(**{**values, **lists})


def _build_encoded(values: dict[str, Any]) -> Encoded:
    return Encoded(
        report_id=values["report_id"],
        base_ns=values["base_ns"],
        tracks=[Track(**{**track, "path": tuple(track["path"])}) for track in values["tracks"]],
        subtracks=[
            EncodedSubtrack(**{**subtrack, "track": tuple(subtrack["track"])})
            for subtrack in values["subtracks"]
        ],
    )
