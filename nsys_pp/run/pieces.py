"""Pieces of a trace that is larger than a viewer opens: rows of machines or ranks, and an overview of all.

All pieces have the clock, the root and the names of the one trace, and each is a complete trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.frames.choices import Split
from nsys_pp.run.inputs import Input
from nsys_pp.run.layout import count_events, list_run_gpus
from nsys_pp.run.run import Run
from nsys_pp.write.perfetto.trace import PlacedReport
from nsys_pp.write.trace.tracks import is_busy_track, is_range_track
from nsys_pp.write.trace.training_rows import RUN

RowKey = tuple[str, str]
"""Machine and name of an outermost row of a trace."""


class RowOwner(Struct, frozen=True, kw_only=True):
    """Owner of an outermost row of a report."""

    gpu: RowKey  # row of the GPU that its process used first; the row itself without one
    ranks: tuple[int, ...]  # in order; () where unknown


class Drawn(Struct, frozen=True, kw_only=True):
    """Everything that a trace shows, encoded."""

    reports: Mapping[Path, PlacedReport]
    training: Sequence[PlacedReport]  # of the run (machine `RUN`) and of each machine

    @property
    def shown(self) -> list[PlacedReport]:
        """Return reports, then the training."""
        return [*self.reports.values(), *self.training]


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
        split: "machine" or "rank"; "auto" divides a trace with more than `max_events` by machine, or by rank if a
            machine alone has more; "none".
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
    overview, omits_ranges = build_overview(run, drawn, max_events=max_events)
    return Division(split=by, overview=overview, pieces=pieces, omits_ranges=omits_ranges)


def build_overview(run: Run, drawn: Drawn, *, max_events: int) -> tuple[Piece, bool]:
    """Build the overview: steps, jobs and messages of all ranks; of reports without jobs also their ranges, or the load of GPUs.

    Args:
        run: The run.
        drawn: All of its trace.
        max_events: With more events than this, the load of GPUs replaces these ranges.

    Returns:
        The overview, and whether it lacks ranges.
    """
    has_jobs = [recorded.path for recorded in run.inputs if recorded.part.drawn_job_count]
    shown, omits_ranges = choose_overview(drawn, frozenset(has_jobs), max_events=max_events)
    keys = {key for report in drawn.reports.values() for key in _keys(report)}
    return describe_piece(run, "overview", shown, list_owners(run, drawn.reports), keys), omits_ranges


def choose_overview(
    drawn: Drawn, has_jobs: Collection[Path], *, max_events: int
) -> tuple[list[PlacedReport], bool]:
    """Choose the contents of an overview, and return whether they lack ranges; as in `build_overview`.

    Args:
        drawn: All of a trace.
        has_jobs: Reports with jobs, which need no other row.
        max_events: Largest number of events with ranges.
    """
    for is_kept in (is_range_track, is_busy_track):
        shown = []
        for path, report in drawn.reports.items():
            tracks = {subtrack.track for subtrack in report.encoded.subtracks}
            kept = {track for track in tracks if is_kept(track)} or set(filter(is_busy_track, tracks))
            kept = set() if path in has_jobs else kept
            shown.append(replace(report, omitted=frozenset(tracks - kept)))
        shown += drawn.training
        if count_events(shown) <= max_events or is_kept is is_busy_track:
            break
    return shown, is_kept is is_busy_track


def describe_piece(
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
    ranks = {rank for key in keys for rank in (owners[key].ranks if key in owners else ())}
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
        machines=tuple(machine for machine in list_machines(run) if machine in machines),
        ranks=tuple(sorted(ranks)),
        steps=tuple(steps),
        event_count=sum(subtrack.rows for subtrack in subtracks),
        slice_count=sum(subtrack.rows for subtrack in subtracks if subtrack.kind == "slices"),
    )


def _keys(report: PlacedReport) -> set[RowKey]:
    return {(report.placement.machine, row.name) for row in report.placement.rows.values()}


def list_owners(run: Run, reports: Mapping[Path, PlacedReport]) -> dict[RowKey, RowOwner]:
    """List the owners of the rows of reports; a row of the CPU has the ranks of its process.

    Args:
        run: The run.
        reports: Some of its reports, by path.
    """
    owners: dict[RowKey, RowOwner] = {}
    gpus_of = list_run_gpus([recorded.identity for recorded in run.inputs], run.staged_roster)
    for index, recorded in enumerate(run.inputs):
        report = reports.get(recorded.path)
        if report is None:
            continue
        machine, rows = report.placement.machine, report.placement.rows
        roster = run.staged_roster.filter(pl.col("report") == index)
        ranks: dict[str, list[int]] = {gpu["local"]: gpu["rank"] for gpu in gpus_of.get(index, [])}
        local_of_pid = _list_first_gpus(recorded, roster)
        for local, row in rows.items():
            gpu = local if local in ranks else local_of_pid.get(local.rsplit(" ", 1)[-1], "")
            of_row = set(ranks.get(gpu, ()))
            key, gpu_key = (machine, row.name), (machine, rows[gpu].name if gpu in rows else row.name)
            if key in owners:  # a row of several reports
                of_row |= set(owners[key].ranks)
                gpu_key = owners[key].gpu
            owners[key] = RowOwner(gpu=gpu_key, ranks=tuple(sorted(of_row)))
    return owners


def list_machines(run: Run) -> list[str]:
    """List the machines of a run, in order of its trace."""
    return run.roster.sort("machine_order")["machine"].unique(maintain_order=True).to_list()


def _list_first_gpus(recorded: Input, roster: pl.DataFrame) -> dict[str, str]:
    """List the first GPU of each process of a report, by process id."""
    keys = ["process_key", "device_id"]
    pids = roster.join(recorded.identity.devices.select(*keys, local="gpu"), on=keys, maintain_order="left")
    first = pids.group_by("pid", maintain_order=True).agg(pl.col("local").first())
    return {str(pid): local for pid, local in first.iter_rows()}


def _build_pieces(run: Run, drawn: Drawn, split: Split) -> list[Piece]:
    """Group rows by machine or rank, in order; pieces without an event are left out."""
    owners = list_owners(run, drawn.reports)
    machines = {machine: at for at, machine in enumerate(list_machines(run))}
    groups: dict[tuple[str, int | str], set[RowKey]] = {}
    for key, owner in owners.items():
        group: tuple[str, int | str] = (key[0], "")
        if split == "rank":
            ranks = owners.get(owner.gpu, owner).ranks
            group = ("", ranks[0]) if len(ranks) == 1 else owner.gpu
        groups.setdefault(group, set()).add(key)
    pieces = []
    for (machine, detail), keys in groups.items():
        shown = [kept for report in drawn.shown if (kept := _restrict(report, keys))]
        if shown:
            title = f"{machine} {detail}".strip() if machine else f"rank {detail}"
            pieces.append(describe_piece(run, title, shown, owners, keys))
    return sorted(
        pieces, key=lambda piece: (piece.ranks if split == "rank" else (), machines[piece.machines[0]])
    )


def _restrict(report: PlacedReport, keys: set[RowKey]) -> PlacedReport | None:
    """Keep some rows; None if no event is left, and for rows of the run, which only the overview has."""
    placement = report.placement
    if placement.machine == RUN:
        return None
    rows = {local: row for local, row in placement.rows.items() if (placement.machine, row.name) in keys}
    kept = replace(report, placement=replace(placement, rows=rows))
    return kept if kept.drawn_subtracks() else None
