"""Writing of a divided run: the overview as the output, and a folder of traces with an index next to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys_pp.compose.progress import Progress
from nsys_pp.compose.trace_pieces import Division, Piece
from nsys_pp.compose.writing_progress import watch_writing
from nsys_pp.write.files import replace_file, replace_folder
from nsys_pp.write.perfetto.trace import PlacedReport, write_perfetto
from nsys_pp.write.split_index import (
    INDEX,
    SplitFile,
    is_split_folder,
    name_files,
    name_folder,
    write_index,
)


def write_division(
    division: Division, output: Path, *, force: bool, progress: Progress | None = None
) -> list[SplitFile]:
    """Write the traces of a divided run; each file and the folder appear complete or not at all.

    Args:
        division: The run.
        output: The overview; the folder is `name_folder` of it.
        force: Replace existing ones.
        progress: Callback of progress.

    Returns:
        The overview, then the traces of the folder.

    Raises:
        OutputError: The output or the folder exists, or cannot be written.
    """
    folder = name_folder(output)
    names = name_files([piece.title for piece in division.pieces])
    overview_reports, *contents = watch_writing(
        progress,
        f"writing {folder.name}",
        [division.overview.shown, *(piece.shown for piece in division.pieces)],
    )
    with replace_file(output, force=force) as target:
        overview = _write_piece(division.overview, overview_reports, target, output)
        with replace_folder(folder, force=force, is_ours=is_split_folder) as new:
            files = [
                _write_piece(piece, reports, new / name, folder / name)
                for piece, reports, name in zip(division.pieces, contents, names, strict=True)
            ]
            write_index(new / INDEX, overview=overview, files=files, unit=division.split)
    return [overview, *files]


def _write_piece(piece: Piece, reports: Sequence[PlacedReport], target: Path, path: Path) -> SplitFile:
    """Write a trace that will be at a path."""
    with target.open("wb") as stream:
        for block in write_perfetto(reports):
            stream.write(block)
    return SplitFile(
        path=path,
        title=piece.title,
        machines=piece.machines,
        ranks=piece.ranks,
        steps=piece.steps,
        slice_count=piece.slice_count,
        event_count=piece.event_count,
        size_bytes=target.stat().st_size,
    )
