"""Which place each report of a trace has, and what is shown there."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from nsys_pp.compose.clocks import ClockOptions, Clocks, align_inputs
from nsys_pp.compose.inputs import Input
from nsys_pp.compose.placing import is_gpu, place_report
from nsys_pp.frames.part import Track
from nsys_pp.roster.consistency import find_inconsistencies
from nsys_pp.roster.layout import Layout
from nsys_pp.roster.roster import build_roster
from nsys_pp.write.perfetto.trace import PlacedReport
from nsys_pp.write.trace.drawing import Drawing, SliceSubtrack
from nsys_pp.write.trace.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDrawing:
    """A report whose events are at hand, and its place in the trace."""

    drawing: Drawing
    placement: Placement


Shown = PlacedReport | PlacedDrawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is known of all reports of a trace before any is placed."""

    given: list[Input]
    clocks: Clocks
    roster: pl.DataFrame  # ROSTER
    root: str
    devices: frozenset[int] | None

    def find(self, path: Path) -> int:
        """Return the place among the reports of the one that was named so."""
        return [one.path for one in self.given].index(path)

    def with_stages(self, lanes: pl.DataFrame) -> Plan:
        """Take over stages that the training tells (`LANES`) where the roster has none."""
        keys = ["report", "process_key", "device_id"]
        found = lanes.select(*keys, "stage", "stage_source")
        roster = self.roster.join(found, on=keys, how="left", maintain_order="left", suffix="_found")
        filled = [pl.coalesce(name, f"{name}_found").alias(name) for name in ("stage", "stage_source")]
        return replace(self, roster=roster.with_columns(filled).select(self.roster.columns))

    def place(self, one: Input, tracks: Iterable[Track]) -> Placement:
        """Place a report that shows these tracks."""
        at = self.find(one.path)
        roster = self.roster.filter(pl.col("report") == at)
        return place_report(
            one.identity,
            roster,
            tracks,
            root=self.root,
            clock=self.clocks.clocks[at],
            is_utc=self.clocks.is_utc,
            devices=self.devices,
            machine_description=self.clocks.of_machine.get(roster["machine"][0], ""),
            attributes=self.clocks.attributes,
        )

    def place_encoded(self, one: Input) -> PlacedReport:
        """Place a report that is encoded."""
        placement = self.place(one, one.part.encoded.tracks)
        return PlacedReport(encoded=one.part.encoded, placement=placement, open_blocks=one.open_blocks)

    def place_drawing(self, one: Input, drawing: Drawing) -> PlacedDrawing:
        """Place a report that is drawn; rows that are not wanted are left out."""
        placement = self.place(one, drawing.tracks)
        subtracks = [subtrack for subtrack in drawing.subtracks if subtrack.track[0] in placement.rows]
        return PlacedDrawing(drawing=replace(drawing, subtracks=subtracks), placement=placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the user says of all reports, where they do not tell it themselves."""

    clocks: ClockOptions = field(default_factory=ClockOptions)
    layout: Layout | None = None
    rank_from: str | None = None


def make_plan(given: list[Input], *, root: str, devices: frozenset[int] | None, overrides: Overrides) -> Plan:
    """Find out who is who, and put all clocks onto one; warns of what is doubtful.

    Args:
        given: One or more.
        root: Name of the row above all.
        devices: Draw only these GPUs, by their number on their machine; all if None.
        overrides: What the user says.
    """
    roster = build_run_roster(given, overrides)
    return Plan(
        given=given,
        clocks=align_inputs(given, roster, overrides.clocks),
        roster=roster,
        root=root,
        devices=devices,
    )


def build_run_roster(given: Sequence[Input], overrides: Overrides) -> pl.DataFrame:
    """Tell machines, GPUs and ranks of all reports apart (`ROSTER`); warns of what is doubtful."""
    identities = [one.identity for one in given]
    roster = build_roster(identities, layout=overrides.layout, rank_from=overrides.rank_from)
    for doubt in find_inconsistencies(identities, roster, layout=overrides.layout):
        warnings.warn(doubt, stacklevel=4)
    return roster


def count_shown(shown: Sequence[Shown]) -> tuple[int, int]:
    """Count GPUs that have a subtrack, as rows of the trace, and slices."""
    gpus: set[tuple[str, str]] = set()
    slices = 0
    for one in shown:
        if isinstance(one, PlacedReport):
            subtracks = [
                (subtrack.track, subtrack.rows * (subtrack.kind == "slices"))
                for subtrack in one.drawn_subtracks()
            ]
        else:
            subtracks = [
                (subtrack.track, len(subtrack.slices) if isinstance(subtrack, SliceSubtrack) else 0)
                for subtrack in one.drawing.subtracks
            ]
        slices += sum(count for _, count in subtracks)
        rows = {one.placement.rows[track[0]] for track, _ in subtracks}
        gpus |= {(one.placement.machine, row.name) for row in rows if is_gpu(row)}
    return len(gpus), slices
