"""Copies of parts, and copies of less detail: frames for clocks and tables, without the blocks of a trace."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nsys_pp.compose.mpi_messages import FRAME
from nsys_pp.errors import ReportError
from nsys_pp.frames.part import Part, PartOptions
from nsys_pp.read import check_part_blocks, open_part_blocks, read_part
from nsys_pp.read.part_groups import open_part_file
from nsys_pp.read.parts import PackedFrames
from nsys_pp.write.files import replace_file
from nsys_pp.write.parts import write_part
from nsys_pp.write.perfetto.trace import Sink
from nsys_pp.write.trace.tracks import is_busy_track

_PIECE_BYTES = 1 << 20
_LEAST: Mapping[str, Any] = {"detail": "jobs", "flows": False, "show": ()}


def settle_options(asked: Mapping[str, Any], part: Path | None) -> PartOptions:
    """Return the options of reports: the requested ones, else the options of a part among the inputs.

    Args:
        asked: Fields of `PartOptions`; None where open.
        part: A part among the inputs, if there is one.

    Raises:
        ReportError: The part cannot be read.
    """
    explicit = {name: value for name, value in asked.items() if value is not None}
    usual = PartOptions() if part is None else read_part(part, (), version=version("nsys-pp")).options
    return replace(usual, **explicit)


def copy_part(
    path: Path,
    output: Path,
    asked: Mapping[str, Any],
    *,
    only_changed: bool = False,
    named: Path | None = None,
) -> Part:
    """Check a part, and copy it; with detail "jobs", without the blocks of its trace.

    Rows of jobs, steps and messages are no blocks: a copy of a part with jobs is the part that `extract --detail jobs` makes of the
    report, to the byte. A copy of a part without jobs has the load of its GPUs, and not the outermost ranges of the report.

    Args:
        path: The part.
        output: The copy.
        asked: Fields of `PartOptions` that it is to have; None where open.
        only_changed: Write no copy that would be equal.
        named: Output that errors name, as in `replace_file`.

    Returns:
        The copy.

    Raises:
        ReportError: It cannot be read, is damaged, or was made with other options.
        OutputError: The copy cannot be written.
    """
    part = read_part(path, version=version("nsys-pp"))
    check_part_blocks(path)
    explicit = {name: value for name, value in asked.items() if value is not None}
    if explicit.get("detail") == "jobs" and part.options.detail != "jobs":
        _check_options(replace(part, options=replace(part.options, **_LEAST)), path, explicit)
        packed = part.frames.packed if isinstance(part.frames, PackedFrames) else None
        build = partial(_drop_trace, part, path)
        return write_part(output, build, force=True, packed=packed, named=named)
    _check_options(part, path, explicit)
    if not only_changed:
        with (
            replace_file(output, force=True, named=named) as new,
            new.open("wb") as copy,
            open_part_file(path) as file,
        ):
            shutil.copyfileobj(file, copy, _PIECE_BYTES)
    return part


def _drop_trace(part: Part, path: Path, sink: Sink) -> Part:
    """Drop the blocks of a part; without jobs, the load of its GPUs remains, which an overview shows in their place."""
    has_jobs = part.drawn_job_count > 0
    has_rows = FRAME in part.frames  # of processes: they show messages of MPI, which are drawn of a frame
    kept = {
        subtrack.track
        for subtrack in part.encoded.subtracks
        if is_busy_track(subtrack.track) and not has_jobs
    }
    above = {track[:length] for track in kept for length in range(1, len(track))}
    if kept:
        with open_part_blocks(path) as blocks:
            for subtrack in part.encoded.subtracks:
                left = subtrack.size_bytes
                while left and (data := blocks.read(min(left, _PIECE_BYTES))):
                    left -= len(data)
                    if subtrack.track in kept:
                        sink.write(data)
    encoded = replace(
        part.encoded,
        base_ns=part.encoded.base_ns if kept else 0,
        tracks=[
            track
            for track in part.encoded.tracks
            if track.path in kept | above or (has_rows and len(track.path) == 1)
        ],
        subtracks=[subtrack for subtrack in part.encoded.subtracks if subtrack.track in kept],
        is_packed=True,
    )
    return replace(part, options=replace(part.options, **_LEAST), encoded=encoded)


def _check_options(part: Part, path: Path, explicit: Mapping[str, Any]) -> None:
    wanted = replace(part.options, **explicit)
    if wanted != part.options:
        raise ReportError(
            f"`{path}` was made with `{part.options.words()}`, and `{wanted.words()}` is asked for",
            "extract its report again; of a part, only `--detail jobs` can be made",
        )
