"""Writing of a divided run: the overview as the output, and a folder of traces with an index next to it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from nsys_pp.compose.batch import Batch
from nsys_pp.compose.trace_pieces import Division, Piece
from nsys_pp.compose.writing_progress import watch_writing
from nsys_pp.write.files import replace_file, replace_folder, sync_file, translate_errors
from nsys_pp.write.perfetto.trace import PlacedReport, write_perfetto
from nsys_pp.write.split_index import (
    INDEX,
    SplitFile,
    is_split_folder,
    name_files,
    name_folder,
    write_index,
)

_FINISHED = "trace"  # name of a trace in the folder where another machine writes it


def write_division(
    division: Division, output: Path, batch: Batch, *, force: bool, shared: Path | None
) -> list[SplitFile]:
    """Write the traces of a divided run; each file and the folder appear complete or not at all.

    Args:
        division: The run.
        output: The overview; the folder is `name_folder` of it.
        batch: Batch of the inputs.
        force: Replace existing ones.
        shared: Folder where other machines write the traces of the folder; all blocks are files that these see, too.
            None: this process writes them.

    Returns:
        The overview, then the traces of the folder.

    Raises:
        OutputError: The output or the folder exists, or cannot be written.
    """
    folder = name_folder(output)
    names = name_files([piece.title for piece in division.pieces])
    own = [] if shared else [piece.shown for piece in division.pieces]
    activity = f"writing {output.name if shared else folder.name}"
    shown, *contents = watch_writing(batch.progress, activity, [division.overview.shown, *own])
    # one renaming after the other: nothing that takes time is between them, since a kill there leaves a folder without its overview
    with ExitStack() as removal, replace_file(output, force=force) as target:
        overview = _describe(division.overview, output, _write_trace(shown, target))
        with replace_folder(folder, force=force, is_ours=is_split_folder, removal=removal) as new:
            targets = [new / name for name in names]
            if shared is None:
                sizes = [_write_trace(reports, at) for reports, at in zip(contents, targets, strict=True)]
            else:
                sizes = _write_elsewhere(division.pieces, targets, batch, shared, folder)
            files = [
                _describe(piece, folder / name, size)
                for piece, name, size in zip(division.pieces, names, sizes, strict=True)
            ]
            write_index(new / INDEX, overview=overview, files=files, unit=division.split)
            if target.is_file():  # no pipe
                with translate_errors(output):
                    sync_file(target)
    return [overview, *files]


def _write_trace(reports: Sequence[PlacedReport], target: Path) -> int:
    """Write a trace, and return its size in bytes."""
    with target.open("wb") as stream:
        for block in write_perfetto(reports):
            stream.write(block)
        return stream.tell()


def _write_elsewhere(
    pieces: Sequence[Piece], targets: Sequence[Path], batch: Batch, shared: Path, folder: Path
) -> list[int]:
    """Write each trace on another machine, and return their sizes in bytes.

    Args:
        pieces: The traces.
        targets: Their files.
        batch: Batch of the inputs.
        shared: Folder that all machines see.
        folder: Folder where the traces will be, for errors.
    """
    with translate_errors(folder):
        scratch = [Path(tempfile.mkdtemp(dir=shared)) for _ in targets]
    named = [folder / target.name for target in targets]
    contents = zip(scratch, (piece.shown for piece in pieces), strict=True)
    sizes = batch.map_outputs("writing", _write_finished, dict(zip(named, contents, strict=True)))
    for path, target in zip(scratch, targets, strict=True):
        shutil.move(path / _FINISHED, target)
    return [*sizes.values()]


def _write_finished(named: Path, content: tuple[Path, Sequence[PlacedReport]]) -> int:
    """Write a trace into a folder, under the name `_FINISHED` when it is complete, and return its size in bytes.

    A machine that was given up as lost may still write the same trace.

    Args:
        named: Path where the trace will be, for errors.
        content: The folder, and the content of the trace.
    """
    folder, reports = content
    with translate_errors(named):
        unfinished = Path(tempfile.mkdtemp(dir=folder)) / _FINISHED
        size = _write_trace(reports, unfinished)
        sync_file(unfinished)
        os.replace(unfinished, folder / _FINISHED)
    return size


def _describe(piece: Piece, path: Path, size_bytes: int) -> SplitFile:
    """Describe a trace that will be at a path."""
    return SplitFile(
        path=path,
        title=piece.title,
        machines=piece.machines,
        ranks=piece.ranks,
        steps=piece.steps,
        slice_count=piece.slice_count,
        event_count=piece.event_count,
        size_bytes=size_bytes,
    )
