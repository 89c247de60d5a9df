"""Traces on the clocks and with the rows of a run that were computed elsewhere (`nsys_pp.run.run_clocks`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

import numpy as np
from msgspec import Struct

from nsys_pp.errors import ReportError
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row, Track
from nsys_pp.frames.run_clocks import MachineClocks, ReportClock, TrainingRows
from nsys_pp.read.run_clocks import damaged_clocks_error, read_machine_clocks, read_run_clocks
from nsys_pp.run.batch import Batch
from nsys_pp.run.inputs import TABLE_OPTION_NAMES, Input
from nsys_pp.run.layout import build_other_row, build_system_row
from nsys_pp.units import format_count
from nsys_pp.write.perfetto.trace import PlacedReport
from nsys_pp.write.trace.placement import Placement
from nsys_pp.write.trace.tracks import GPU_AT
from nsys_pp.write.trace.training_rows import RUN


class MachineTrace(Struct, frozen=True, kw_only=True):
    """Contents of the trace of a machine, in order; each piece has its position among all of the run."""

    clocks: MachineClocks
    reports: dict[Path, PlacedReport]
    training: list[tuple[int, PlacedReport]]
    missing_count: int  # reports of the machine that are not among the inputs

    @property
    def numbers(self) -> dict[Path, int]:
        """Number of each report in the run."""
        by_id = {report.report_id: report.number for report in self.clocks.reports}
        return {path: by_id[placed.encoded.report_id] for path, placed in self.reports.items()}

    @property
    def shown(self) -> list[PlacedReport]:
        """Return its contents, as `merge --split machine` writes them."""
        contents = [*self.reports.values(), *(placed for _, placed in self.training)]
        return [report for report in contents if report.drawn_subtracks()]


class ClockFile:
    """A file with the clocks of a run.

    Args:
        path: The file.

    Raises:
        ReportError: It is unreadable, is damaged, or was made by another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts = read_run_clocks(path, version=version("nsys-pp"))

    @cached_property
    def _machine_of(self) -> dict[int, int]:
        return {
            report_id: number
            for number, machine in enumerate(self.facts.machines)
            for report_id in machine.report_ids
        }

    @property
    def report_count(self) -> int:
        """Number of reports of the run."""
        return len(self._machine_of)

    def check(self, inputs: Sequence[Input], batch: Batch) -> list[Input]:
        """Return the inputs that have a clock; others are skipped where `keep_going` allows it.

        Raises:
            ReportError: An input has no clock, or its jobs were found with other options.
        """
        kept = []
        expected = self.facts.options
        for recorded in inputs:
            options = recorded.part.options
            if recorded.identity.fingerprint not in self._machine_of:
                text = f"`{recorded.path}` is not among the {format_count(self.report_count, 'report')} of `{self.path}`"
                batch.skip(recorded.path, ReportError(text, "align it together with all reports of its run"))
            elif any(getattr(options, name) != getattr(expected, name) for name in TABLE_OPTION_NAMES):
                text = (
                    f"`{recorded.path}` was made with `{options.words()}`, and the jobs of `{self.path}` with"
                    f" `{expected.words()}`"
                )
                batch.skip(
                    recorded.path,
                    ReportError(text, "extract it with the same options as the parts that were aligned"),
                )
            else:
                kept.append(recorded)
        return kept

    def draw(self, inputs: Sequence[Input]) -> list[MachineTrace]:
        """Draw the machines of inputs, in order of the trace.

        Args:
            inputs: Some reports of the run.

        Raises:
            ReportError: The file is damaged.
        """
        by_machine: dict[int, dict[int, Input]] = {}
        for recorded in inputs:
            report_id = recorded.identity.fingerprint
            by_machine.setdefault(self._machine_of[report_id], {})[report_id] = recorded
        return [self._draw_machine(number, own) for number, own in sorted(by_machine.items())]

    def draw_run(self) -> list[tuple[int, PlacedReport]]:
        """Draw the rows of the run itself, above all machines.

        Raises:
            ReportError: The file is damaged.
        """
        return self._read(0)[1] if self.facts.machines and self.facts.machines[0].machine == RUN else []

    def list_machines(self) -> list[MachineClocks]:
        """List all machines of the run, in order of the trace.

        Raises:
            ReportError: The file is damaged.
        """
        return [self._read(number)[0] for number in range(1, len(self.facts.machines))]

    def _draw_machine(self, number: int, inputs: Mapping[int, Input]) -> MachineTrace:
        machine, training = self._read(number)
        reports = sorted(machine.reports, key=lambda report: report.number)
        placed = {
            inputs[report.report_id].path: self._place_report(machine, report, inputs[report.report_id])
            for report in reports
            if report.report_id in inputs
        }
        return MachineTrace(
            clocks=machine,
            reports=placed,
            training=training,
            missing_count=len(reports) - len(placed),
        )

    def _read(self, number: int) -> tuple[MachineClocks, list[tuple[int, PlacedReport]]]:
        machine, blocks = read_machine_clocks(self.path, self.facts, number)
        training = [
            (
                rows.number,
                PlacedReport(
                    encoded=rows.encoded,
                    placement=self._build_placement(machine, rows, rows.rows, Clock.fixed(0)),
                    open_blocks=partial(BytesIO, data),
                ),
            )
            for rows, data in zip(machine.training, blocks, strict=True)
        ]
        return machine, training

    def _place_report(self, machine: MachineClocks, report: ReportClock, recorded: Input) -> PlacedReport:
        encoded = recorded.part.encoded
        try:
            clock = Clock(
                from_ns=np.array(report.from_ns, np.int64), offset_ns=np.array(report.offset_ns, np.int64)
            )
        except (ValueError, OverflowError):
            raise damaged_clocks_error(self.path) from None
        rows = {**report.rows, **_list_other_rows(encoded.tracks, report.rows, machine.rows_by_bus)}
        return PlacedReport(
            encoded=encoded,
            placement=self._build_placement(machine, report, rows, clock),
            open_blocks=recorded.open_blocks,
        )

    def _build_placement(
        self, machine: MachineClocks, own: ReportClock | TrainingRows, rows: Mapping[str, Row], clock: Clock
    ) -> Placement:
        return Placement(
            machine=machine.machine,
            machine_order=machine.order,
            rows=rows,
            clock=clock,
            zero_ns=self.facts.zero_ns,
            machine_description=machine.description,
            is_utc=self.facts.is_utc,
            attributes={**self.facts.attributes, **own.attributes},
        )


def _list_other_rows(
    tracks: Sequence[Track], gpus: Mapping[str, Row], rows_by_bus: Mapping[str, Row]
) -> dict[str, Row]:
    """List the rows of a report in addition to its GPUs: of processes, the system, and metrics of other GPUs."""
    outermost = [track for track in tracks if len(track.path) == 1 and track.name not in gpus]
    others = {track.name: build_other_row(track) for track in outermost if not track.name.startswith(GPU_AT)}
    elsewhere = {
        track.name: rows_by_bus.get(track.name) or build_system_row(track)
        for track in outermost
        if track.name.startswith(GPU_AT)
    }
    return others | elsewhere
