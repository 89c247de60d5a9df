"""Pieces of a trace by time: each has one or more steps of the run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import span_steps
from nsys_pp.run.batch import Batch
from nsys_pp.run.pieces import Division, Drawn, Piece, describe_piece, list_owners
from nsys_pp.run.run import Run
from nsys_pp.run.trace import TraceBuilder, TraceContent, find_window, watch_writing
from nsys_pp.run.view import Window
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

_FILL = 0.8  # of the largest number of events: their number is estimated before they are drawn


def divide_by_steps(run: Run, builder: TraceBuilder, content: TraceContent, *, max_events: int) -> Division:
    """Draw a run as a trace for each group of successive steps.

    A group has as many steps as fit `max_events`, and at least one. A window reaches from the first start of its first
    step on any lane to that of the next group; the first and the last window include all that is before and after the
    steps. An event that overlaps two windows is in both pieces.

    Args:
        run: The run.
        builder: Builder of its trace, with `content.by_steps`.
        content: Content of the trace.
        max_events: Largest number of events of a trace.

    Raises:
        MissingDataError: The run has no steps, or there is nothing to draw.
    """
    starts = _find_starts(run)
    if starts.is_empty():
        raise MissingDataError(
            "`--split step` needs steps, and none were found",
            "add `--step-pattern`, or use `--split machine`",
        )
    whole = find_window(run, content)
    groups = group_steps(_estimate_rows(run, starts), most=_FILL * max_events)
    edges = [whole.start_ns, *(int(starts["start_ns"][group[0]]) for group in groups[1:]), whole.end_ns]
    windows = [Window(start_ns=edges[at], end_ns=edges[at + 1]) for at in range(len(groups))]
    overview, drawn = builder.draw_windows(run, windows)
    pieces = []
    for group, contents in zip(groups, drawn, strict=True):
        first, last = int(starts["first"][group[0]]), int(starts["last"][group[-1]])
        title = f"step {first}" if first == last else f"steps {first} to {last}"
        steps = run.training.steps.filter(pl.col("step").is_between(first, last))["step"]
        pieces.append(_describe(run, title, contents, steps.unique().sort().to_list()))
    return Division(
        split="step", overview=_describe(run, "overview", overview, None), pieces=pieces, omits_ranges=False
    )


def group_steps(rows: list[int], *, most: float) -> list[list[int]]:
    """Group successive steps, each group with at most a number of rows, or of one step.

    >>> group_steps([4, 4, 4, 20, 1], most=10)
    [[0, 1], [2], [3], [4]]
    """
    groups: list[list[int]] = []
    total = 0
    for step, count in enumerate(rows):
        if not groups or total + count > most:
            groups.append([])
            total = 0
        groups[-1].append(step)
        total += count
    return groups


def _find_starts(run: Run) -> pl.DataFrame:
    """List the first start of each step on any lane; steps that start together are one row.

    Returns:
        `start_ns`, and `first` and `last`, numbers of steps; in order of time.
    """
    spans = span_steps(run.training.steps).with_columns(pl.col("start_ns").cum_max())
    grouped = spans.group_by("start_ns").agg(first=pl.col("step").min(), last=pl.col("step").max())
    return grouped.sort("start_ns")


def _estimate_rows(run: Run, starts: pl.DataFrame) -> list[int]:
    """Estimate the number of events of each step; those before the first step count for it."""
    edges = starts["start_ns"].to_numpy()
    rows = np.zeros(len(edges), dtype=np.int64)
    for recorded, clock in zip(run.inputs, run.clocks.clocks, strict=True):
        density = recorded.part.frames["density"]
        step = np.searchsorted(edges, clock.to_trace(density["time_ns"].to_numpy()), side="right") - 1
        np.add.at(rows, step.clip(0), density["rows"].to_numpy())
    return [int(count) for count in rows]


def _describe(run: Run, title: str, contents: Drawn, steps: list[int] | None) -> Piece:
    owners = list_owners(run, contents.reports)
    return describe_piece(run, title, contents.shown, owners, set(owners), steps)


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
        overview = _describe_trace_files(division.overview, output, _write_trace(shown, target))
        with replace_folder(folder, force=force, is_ours=is_split_folder, removal=removal) as new:
            targets = [new / name for name in names]
            if shared is None:
                sizes = [_write_trace(reports, at) for reports, at in zip(contents, targets, strict=True)]
            else:
                sizes = _write_elsewhere(division.pieces, targets, batch, shared, folder)
            files = [
                _describe_trace_files(piece, folder / name, size)
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


def _describe_trace_files(piece: Piece, path: Path, size_bytes: int) -> SplitFile:
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
