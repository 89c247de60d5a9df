"""Messages of MPI between the reports of a run, in a trace (`--show mpi`)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from nsys_pp.frames.clock import Clock
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import RUN_MPI_MESSAGES
from nsys_pp.output.trace.run_tracks import draw_mpi_messages
from nsys_pp.read import read_report
from nsys_pp.registry import import_on_call
from nsys_pp.run.layout import PlacedDrawing, Shown
from nsys_pp.run.run import Run
from nsys_pp.run.view import FRAME, Window, list_mpi_messages
from nsys_pp.training.transfers import pair_mpi_messages
from nsys_pp.units import format_count

_build_report = import_on_call("nsys_pp.model:build_report")  # parts have their messages


def read_mpi_messages(path: Path, nsys: str | None) -> pl.DataFrame:
    """Read the messages of a report (`PART_MPI_MESSAGES`)."""
    return list_mpi_messages(_build_report(read_report(path, need=frozenset({"show_mpi"}), nsys=nsys)))


def place_mpi_messages(
    run: Run,
    shown: Mapping[Path, Shown],
    window: Window,
    messages_of: Mapping[Path, pl.DataFrame] | None = None,
) -> list[PlacedDrawing]:
    """Draw the messages of all reports below their processes; warns of messages without an arrow.

    Args:
        run: The run.
        shown: Its reports that are drawn, by path.
        window: Draw messages that overlap it, on the trace's clock.
        messages_of: `PART_MPI_MESSAGES` of each report. Default: those of the parts.

    Returns:
        A drawing per report with messages; none unless reports were extracted with `--show mpi`.
    """
    if messages_of is None:
        messages_of = {
            recorded.path: recorded.part.frames[FRAME]
            for recorded in run.inputs
            if FRAME in recorded.part.frames
        }
    messages = _gather(run, messages_of)
    if messages.is_empty():
        return []
    pairs = pair_mpi_messages(messages)
    _warn_of_unpaired(pairs)
    drawings = draw_mpi_messages(messages, pairs, start_ns=window.start_ns, end_ns=window.end_ns)
    placed = []
    for report, drawing in drawings.items():
        own = shown.get(run.inputs[report].path)
        if own is None:
            continue
        rows = {
            name: row
            for name, row in own.placement.rows.items()
            if name in {t.path[0] for t in drawing.tracks}
        }
        kept = replace(
            drawing,
            tracks=[track for track in drawing.tracks if track.path[0] in rows],
            subtracks=[subtrack for subtrack in drawing.subtracks if subtrack.track[0] in rows],
        )
        if kept.subtracks:
            placement = replace(own.placement, rows=rows, clock=Clock.fixed(0))
            placed.append(PlacedDrawing(drawing=kept, placement=placement))
    return placed


def _gather(run: Run, messages_of: Mapping[Path, pl.DataFrame]) -> pl.DataFrame:
    """Gather the messages of all reports, on the trace's clock (`RUN_MPI_MESSAGES`)."""
    parts = [RUN_MPI_MESSAGES.to_frame()]
    bounds = {
        report: (clock, group, bound)
        for clock, (reports, group, bound) in enumerate(
            run.clocks.table.select("reports", "group", "bound_ns").iter_rows()
        )
        for report in reports
    }
    for report, recorded in enumerate(run.inputs):
        frame = messages_of.get(recorded.path)
        if frame is None or frame.is_empty():
            continue
        clock, group, bound = bounds.get(report, (report, report, None))
        on_trace = run.clocks.clocks[report]
        ends = frame["end_ns"]
        until = pl.Series(on_trace.to_trace(ends.fill_null(0).to_numpy())).set(ends.is_null(), None)
        parts.append(
            frame.with_columns(
                start_ns=pl.Series(on_trace.to_trace(frame["start_ns"].to_numpy())),
                end_ns=until,
                report=pl.lit(report, pl.UInt32),
                clock=pl.lit(clock, pl.UInt32),
                clock_group=pl.lit(group, pl.UInt32),
                bound_ns=pl.lit(bound, pl.Int64),
            ).pipe(conform, RUN_MPI_MESSAGES)
        )
    return pl.concat(parts)


def _warn_of_unpaired(pairs: pl.DataFrame) -> None:
    """Warn of sends and receives without an arrow, by reason, and of guessed arrows."""
    counts = pairs["unpaired"].drop_nulls().value_counts().sort("count", "unpaired", descending=[True, False])
    facts = []
    if len(counts):
        missing = int(counts["count"].sum())
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.iter_rows())
        facts.append(f"{missing:,} of {len(pairs):,} sends and receives of MPI are not joined: {reasons}")
    if guesses := int(pairs["is_guess"].sum() or 0) // 2:
        facts.append(
            f"{format_count(guesses, 'arrow')} of MPI messages are guessed by order: recording began after "
            "`MPI_Init`"
        )
    if facts:
        warnings.warn("; ".join(facts), stacklevel=4)
