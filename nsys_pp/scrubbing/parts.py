"""Scrubbed copies of parts: with pseudonyms of machines and GPUs.

A part has no environment, no command lines, and no text that no event refers to. The names of its ranges and kernels are
encoded already, so a part that has a host name in one of them is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec
import polars as pl
from msgspec.structs import replace

from nsys_pp.errors import ReportError
from nsys_pp.frames.ids import strip_uuid
from nsys_pp.frames.part import Part
from nsys_pp.frames.report import Session
from nsys_pp.read import open_part_blocks, read_part
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms
from nsys_pp.scrubbing.unused_text import replace_column
from nsys_pp.write.parts import write_part
from nsys_pp.write.perfetto.packed_blocks import iterate_plain
from nsys_pp.write.perfetto.trace import Sink

_PIECE_BYTES = 1 << 20
_UUID = "uuid"


def find_part_identities(path: Path, *, version: str) -> Identities:
    """Find the names of the machine and its GPUs in a part.

    Raises:
        ReportError: It cannot be read.
    """
    part = read_part(path, version=version)
    session = part.facts.session
    uuids = pl.concat([frame[_UUID].cast(pl.String) for frame in _frames_of_gpus(part).values()])
    hardware_id = session.hardware_id
    return Identities(
        hosts=frozenset([session.hostname] if session.hostname else []),
        machine_ids=frozenset([hardware_id] if hardware_id else []),
        uuids=frozenset(strip_uuid(uuid) for uuid in uuids.drop_nulls()),
    )


def scrub_part(
    path: Path,
    output: Path,
    pseudonyms: Pseudonyms,
    *,
    version: str,
    force: bool,
    named: Path | None = None,
) -> None:
    """Write a copy of a part with pseudonyms of its machine and its GPUs.

    Args:
        path: The part.
        output: The copy.
        pseudonyms: Replacement of names.
        version: Version of nsys-pp.
        force: Replace an existing file.
        named: Output that errors name, as in `replace_file`.

    Raises:
        ReportError: It cannot be read, or names of its ranges, kernels or tracks have a name that is to be replaced.
        OutputError: The output exists, or cannot be written.
    """
    part = read_part(path, version=version)
    _refuse_inner_names(part, path, pseudonyms)
    facts = replace(part.facts, session=_rename_session(part.facts.session, pseudonyms))
    frames = {name: part.frames[name] for name in part.frames}
    for name, frame in _frames_of_gpus(part).items():
        frames[name] = frame.with_columns(replace_column(frame[_UUID], pseudonyms))
    renamed = replace(part, facts=facts, frames=frames, source=Path(pseudonyms.replace(str(part.source))))

    def build(sink: Sink) -> Part:
        with open_part_blocks(path) as blocks:
            while piece := blocks.read(_PIECE_BYTES):
                sink.write(piece)
        return renamed

    write_part(output, build, force=force, named=named)


def _frames_of_gpus(part: Part) -> Mapping[str, pl.DataFrame]:
    """Return the frames with uuids of GPUs."""
    return {name: frame for name in part.frames if _UUID in (frame := part.frames[name]).columns}


def _rename_session(session: Session, pseudonyms: Pseudonyms) -> Session:
    """Replace names in all texts of a session."""
    values = msgspec.structs.asdict(session)
    changed = {name: pseudonyms.replace(value) for name, value in values.items() if isinstance(value, str)}
    launcher = {name: pseudonyms.replace(value) for name, value in session.launcher.items()}
    return replace(session, **{**changed, "launcher": launcher})


def _refuse_inner_names(part: Part, path: Path, pseudonyms: Pseudonyms) -> None:
    """Refuse a part with a name that is to be replaced where it cannot be."""
    for text in _list_inner_texts(part):
        if pseudonyms.replace(text) != text:
            raise _refusal(path)
    with open_part_blocks(path) as blocks:
        for data in _read_plain(blocks):
            # names begin and end at bytes that are no letters, as in texts
            text = data.decode("latin-1")
            if pseudonyms.replace_words(text) != text:
                raise _refusal(path)


def _read_plain(blocks: IO[bytes]) -> Iterator[bytes]:
    try:
        yield from iterate_plain(blocks)
    except EOFError as error:
        raise ValueError("the blocks end early") from error


def _list_inner_texts(part: Part) -> Iterator[str]:
    for track in part.encoded.tracks:
        yield from (*track.path, track.name, track.description)
    for name in part.frames:
        frame = part.frames[name]
        for column, dtype in frame.schema.items():
            if column != _UUID and dtype in (pl.String, pl.Categorical):
                yield from frame[column].drop_nulls().unique().cast(pl.String)


def _refusal(path: Path) -> ReportError:
    return ReportError(
        f"`{path}` has the name of a machine in names of its ranges, kernels or processes, which a part holds encoded",
        "scrub its report, and extract the copy",
    )
