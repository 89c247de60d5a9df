"""A run as several traces, where one is larger than a viewer opens.

Pieces by machine, rank or steps, and an overview.

All pieces have the clock, the root and the names of the one trace, and each is a complete trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import span_steps
from nsys_pp.options import Split
from nsys_pp.output.files import replace_file, replace_folder, sync_file, translate_errors
from nsys_pp.output.perfetto.trace import PlacedReport, write_perfetto
from nsys_pp.output.split_index import (
    INDEX,
    SplitFile,
    is_split_folder,
    name_files,
    name_folder,
    write_index,
)
from nsys_pp.output.trace.run_tracks import RUN
from nsys_pp.output.trace.tracks import is_busy_track, is_range_track
from nsys_pp.run.batch import Batch
from nsys_pp.run.layout import Drawn, count_events, list_run_gpus
from nsys_pp.run.run import Run
from nsys_pp.run.trace import TraceBuilder, TraceContent, watch_writing
from nsys_pp.run.view import Window

_FILL = 0.8  # of the largest number of events: their number is estimated before they are drawn

RowKey = tuple[str, str]
"""Machine and name of an outermost row of a trace."""


class RowOwner(Struct, frozen=True, kw_only=True):
    """Owner of an outermost row of a report."""

    gpu: RowKey  # row of the GPU that its process used first; the row itself without one
    ranks: tuple[int, ...]  # in order; () where unknown


class Piece(Struct, frozen=True, kw_only=True):
    """One trace of a divided run.

    Attributes:
        title: Machine, rank or steps.
        shown: Its contents; at least one event.
        machines: In order of the trace.
        ranks: In order; empty where unknown.
        steps: Numbers of the steps, in order.
        event_count: Slices, marks and samples of counters.
        slice_count: Slices among these.
    """

    title: str
    shown: Sequence[PlacedReport]
    machines: tuple[str, ...]
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    event_count: int
    slice_count: int


class Division(Struct, frozen=True, kw_only=True):
    """A run as several traces."""

    split: Split  # "machine", "rank" or "step"
    overview: Piece
    pieces: Sequence[Piece]
    omits_ranges: bool  # the overview has the load of GPUs in place of ranges, which are too many


def divide_trace(run: Run, drawn: Drawn, split: Split, *, max_events: int) -> Division | None:
    """Divide a trace by machine or rank.

    Args:
        run: The run.
        drawn: All of its trace.
        split: "machine" or "rank"; "auto" divides a trace with more than `max_events` by machine, or by rank
            if a machine alone has more; "none".
        max_events: Largest number of events of a trace.

    Returns:
        The division; None where one trace is to be written: "none", and "auto" where it is small enough or
        all is of one rank.
    """
    if split == "none" or (split == "auto" and count_events(drawn.shown) <= max_events):
        return None
    by: Split = "rank" if split == "rank" else "machine"
    pieces = _build_pieces(run, drawn, by)
    if split == "auto" and any(piece.event_count > max_events for piece in pieces):
        by, pieces = "rank", _build_pieces(run, drawn, "rank")
    if split == "auto" and len(pieces) < 2:
        return None
    overview, omits_ranges = _build_overview(run, drawn, max_events=max_events)
    return Division(split=by, overview=overview, pieces=pieces, omits_ranges=omits_ranges)


def divide_by_steps(run: Run, builder: TraceBuilder, content: TraceContent, *, max_events: int) -> Division:
    """Draw a run as a trace for each group of successive steps.

    A group has as many steps as fit `max_events`, and at least one. A window reaches from the first start of
    its first step on any lane to that of the next group; the first and the last window include all that is
    before and after the steps. An event that overlaps two windows is in both pieces.

    Args:
        run: The run.
        builder: Builder of its trace, with `content.by_steps`.
        content: Content of the trace.
        max_events: Largest number of events of a trace.

    Raises:
        MissingDataError: The run has no steps, or there is nothing to draw.
    """
    spans = span_steps(run.training.steps).with_columns(
        pl.col("start_ns").cum_max()
    )  # steps may start together
    starts = spans.group_by("start_ns").agg(first=pl.col("step").min(), last=pl.col("step").max())
    starts = starts.sort("start_ns")
    if starts.is_empty():
        raise MissingDataError(
            "`--split step` needs steps, and none were found",
            "add `--step-pattern`, or use `--split machine`",
        )
    edges = starts["start_ns"].to_numpy()
    rows = np.zeros(len(edges), dtype=np.int64)
    for recorded, clock in zip(run.inputs, run.clocks.clocks, strict=True):
        density = recorded.part.frames["density"]
        step = np.searchsorted(edges, clock.to_trace(density["time_ns"].to_numpy()), side="right") - 1
        np.add.at(rows, step.clip(0), density["rows"].to_numpy())  # those before the first step count for it
    groups = group_steps(rows.tolist(), most=_FILL * max_events)
    whole = content.find_window(run)
    limits = [whole.start_ns, *(int(edges[group[0]]) for group in groups[1:]), whole.end_ns]
    windows = [Window(start_ns=limits[at], end_ns=limits[at + 1]) for at in range(len(groups))]
    overview, drawn = builder.draw_windows(run, windows)
    pieces = []
    for group, contents in zip(groups, drawn, strict=True):
        first, last = int(starts["first"][group[0]]), int(starts["last"][group[-1]])
        title = f"step {first}" if first == last else f"steps {first} to {last}"
        steps = run.training.steps.filter(pl.col("step").is_between(first, last))["step"]
        pieces.append(_describe_all(run, title, contents, steps.unique().sort().to_list()))
    described = _describe_all(run, "overview", overview)
    return Division(split="step", overview=described, pieces=pieces, omits_ranges=False)


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


def write_division(division: Division, output: Path, batch: Batch, *, force: bool) -> list[SplitFile]:
    """Write the traces of a divided run; each file and the folder appear complete or not at all.

    Args:
        division: The run.
        output: The overview; the folder of the other traces is `name_folder` of it.
        batch: Batch of the inputs, for progress.
        force: Replace existing ones.

    Returns:
        The traces of the folder.

    Raises:
        OutputError: The output or the folder exists, or cannot be written.
    """
    folder = name_folder(output)
    names = name_files([piece.title for piece in division.pieces])
    all_reports = [report for piece in (division.overview, *division.pieces) for report in piece.shown]
    watched = watch_writing(batch.progress, f"writing {folder.name}", all_reports)

    def write(piece: Piece, target: Path, path: Path) -> SplitFile:
        """Write the next trace, which will be at a path."""
        with target.open("wb") as stream:
            for block in write_perfetto([next(watched) for _ in piece.shown]):
                stream.write(block)
            size = stream.tell()
        return SplitFile(
            path=path,
            title=piece.title,
            machines=piece.machines,
            ranks=piece.ranks,
            steps=piece.steps,
            slice_count=piece.slice_count,
            event_count=piece.event_count,
            size_bytes=size,
        )

    # one renaming after the other: nothing that takes time is between them, since a kill there leaves a
    # folder without its overview
    with ExitStack() as removal, replace_file(output, force=force) as target:
        overview = write(division.overview, target, output)
        with replace_folder(folder, force=force, is_ours=is_split_folder, removal=removal) as new:
            files = [
                write(piece, new / name, folder / name)
                for piece, name in zip(division.pieces, names, strict=True)
            ]
            write_index(new / INDEX, overview=overview, files=files, unit=division.split)
            if target.is_file():  # no pipe
                with translate_errors(output):
                    sync_file(target)
    return files


def _build_overview(run: Run, drawn: Drawn, *, max_events: int) -> tuple[Piece, bool]:
    """Build the overview: steps, jobs and messages of all ranks; of reports without jobs also their ranges.

    With more than `max_events`, the load of GPUs replaces these ranges.

    Returns:
        The overview, and whether it lacks ranges.
    """
    has_jobs = {recorded.path for recorded in run.inputs if recorded.part.drawn_job_count}
    for is_kept in (is_range_track, is_busy_track):
        shown: list[PlacedReport] = []
        for path, report in drawn.encoded.items():
            tracks = {subtrack.track for subtrack in report.encoded.subtracks}
            kept = {track for track in tracks if is_kept(track)} or set(filter(is_busy_track, tracks))
            omitted = frozenset(tracks if path in has_jobs else tracks - kept)
            shown.append(replace(report, omitted=omitted))
        shown += [report for report in drawn.training if isinstance(report, PlacedReport)]
        if count_events(shown) <= max_events:
            break
    return _describe_all(run, "overview", replace(drawn, reports={}, training=shown), of=drawn), (
        is_kept is is_busy_track
    )


def _describe_all(
    run: Run, title: str, contents: Drawn, steps: Sequence[int] | None = None, of: Drawn | None = None
) -> Piece:
    """Describe a trace with the rows of all reports of a drawing; `steps` as in `_describe_piece`."""
    owners = _list_owners(run, of or contents)
    shown = [report for report in contents.shown if isinstance(report, PlacedReport)]
    return _describe_piece(run, title, shown, owners, set(owners), steps)


def _describe_piece(
    run: Run,
    title: str,
    shown: Sequence[PlacedReport],
    owners: Mapping[RowKey, RowOwner],
    keys: set[RowKey],
    steps: Sequence[int] | None = None,
) -> Piece:
    """Describe a trace.

    Args:
        run: The run.
        title: Machine, rank or steps.
        shown: Its contents.
        owners: Of all rows.
        keys: Its rows.
        steps: Numbers of its steps. Default: those of its ranks.
    """
    machines = {machine for machine, _ in keys}
    ranks = {rank for key in keys for rank in owners[key].ranks}
    if steps is None:
        lanes = run.training.lanes.filter(pl.col("machine").is_in(list(machines)))
        if ranks:
            lanes = lanes.filter(pl.col("rank").is_in(list(ranks)))
        of_lanes = run.training.steps.filter(pl.col("lane").is_in(lanes["lane"].implode()))
        steps = of_lanes["step"].unique().sort().to_list()
    subtracks = [subtrack for report in shown for subtrack in report.drawn_subtracks()]
    return Piece(
        title=title,
        shown=shown,
        machines=tuple(machine for machine in _list_machines(run) if machine in machines),
        ranks=tuple(sorted(ranks)),
        steps=tuple(steps),
        event_count=sum(subtrack.rows for subtrack in subtracks),
        slice_count=sum(subtrack.rows for subtrack in subtracks if subtrack.kind == "slices"),
    )


def _list_owners(run: Run, drawn: Drawn) -> dict[RowKey, RowOwner]:
    """List the owners of the rows of reports; a row of the CPU has the ranks of its process."""
    owners: dict[RowKey, RowOwner] = {}
    gpus_of = list_run_gpus([recorded.identity for recorded in run.inputs], run.staged_roster)
    keys = ["process_key", "device_id"]
    for index, recorded in enumerate(run.inputs):
        report = drawn.reports.get(recorded.path)
        if report is None:
            continue
        machine, rows = report.placement.machine, report.placement.rows
        ranks: dict[str, list[int]] = {gpu["local"]: gpu["rank"] for gpu in gpus_of.get(index, [])}
        local = recorded.identity.devices.select(*keys, local="gpu")
        pids = run.roster.filter(report=index).join(local, on=keys, maintain_order="left")
        first = pids.group_by("pid", maintain_order=True).agg(pl.col("local").first())
        gpu_of_pid = {str(pid): gpu for pid, gpu in first.iter_rows()}
        for name, row in rows.items():
            gpu = name if name in ranks else gpu_of_pid.get(name.rsplit(" ", 1)[-1], "")
            of_row = set(ranks.get(gpu, ()))
            key, gpu_key = (machine, row.name), (machine, rows[gpu].name if gpu in rows else row.name)
            if key in owners:  # a row of several reports
                of_row |= set(owners[key].ranks)
                gpu_key = owners[key].gpu
            owners[key] = RowOwner(gpu=gpu_key, ranks=tuple(sorted(of_row)))
    return owners


def _list_machines(run: Run) -> list[str]:
    """List the machines of a run, in order of its trace."""
    return run.roster.sort("machine_order")["machine"].unique(maintain_order=True).to_list()


def _build_pieces(run: Run, drawn: Drawn, split: Split) -> list[Piece]:
    """Group rows by machine or rank, in order.

    Pieces without an event are left out, and so are rows of the run.
    """
    owners = _list_owners(run, drawn)
    machines = {machine: at for at, machine in enumerate(_list_machines(run))}
    groups: dict[tuple[str, int | str], set[RowKey]] = {}
    for key, owner in owners.items():
        group: tuple[str, int | str] = (key[0], "")
        if split == "rank":
            ranks = owners.get(owner.gpu, owner).ranks
            group = ("", ranks[0]) if len(ranks) == 1 else owner.gpu
        groups.setdefault(group, set()).add(key)
    pieces = []
    for (machine, detail), keys in groups.items():
        shown = []
        for report in drawn.shown:
            placement = report.placement
            if placement.machine == RUN or not isinstance(report, PlacedReport):
                continue
            rows = {
                name: row for name, row in placement.rows.items() if (placement.machine, row.name) in keys
            }
            kept = replace(report, placement=replace(placement, rows=rows))
            if kept.drawn_subtracks():
                shown.append(kept)
        if shown:
            title = f"{machine} {detail}".strip() if machine else f"rank {detail}"
            pieces.append(_describe_piece(run, title, shown, owners, keys))
    return sorted(
        pieces, key=lambda piece: (piece.ranks if split == "rank" else (), machines[piece.machines[0]])
    )
