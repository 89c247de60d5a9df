"""Clocks and rows of a run for the traces that its machines draw: the head node aligns once, all others copy the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.frames.part import FORMAT as PART_FORMAT
from nsys_pp.frames.part import PartOptions, Row
from nsys_pp.frames.run_clocks import (
    FORMAT,
    MachineClocks,
    MachineReports,
    ReportClock,
    RunClocks,
    TrainingRows,
)
from nsys_pp.run.inputs import TABLE_OPTION_NAMES
from nsys_pp.run.layout import TraceLayout
from nsys_pp.run.mpi import place_mpi_messages
from nsys_pp.run.pieces import describe_piece, list_machines, list_owners
from nsys_pp.run.run import Run
from nsys_pp.run.view import Window
from nsys_pp.write.perfetto.trace import PlacedReport, encode_drawing
from nsys_pp.write.run_clocks import write_run_clocks
from nsys_pp.write.split_index import name_files
from nsys_pp.write.spool import Spool
from nsys_pp.write.trace.training_rows import RUN


class _Rows(Struct, frozen=True, kw_only=True):
    """Encoded rows of the training, and their position among all."""

    number: int
    placed: PlacedReport


def write_clocks(run: Run, output: Path, *, force: bool) -> None:
    """Write the clocks of all reports, and the rows of the training that depend on all of them.

    Args:
        run: The run; parts of detail "jobs" suffice.
        output: The file.
        force: Replace an existing file.

    Raises:
        OutputError: The file exists and `force` is not set, or it cannot be written.
    """
    layout = TraceLayout(run, devices=None)
    reports = {recorded.path: layout.place_encoded(recorded) for recorded in run.inputs}
    window = Window(start_ns=None, end_ns=None)
    drawn = [*layout.place_training(reports, window=window), *place_mpi_messages(run, reports, window)]
    names = list_machines(run)
    with Spool(output) as spool:
        rows: dict[str, list[_Rows]] = {}
        for number, drawing in enumerate(drawn):
            with spool.add() as (sink, open_blocks):
                encoded = encode_drawing(drawing.drawing, sink)
            placed = PlacedReport(encoded=encoded, placement=drawing.placement, open_blocks=open_blocks)
            rows.setdefault(drawing.placement.machine, []).append(_Rows(number=number, placed=placed))
        machines = [_describe_run(run, rows.get(RUN, []))]
        files = name_files(names)
        machines += [
            _describe_machine(run, layout, name, file, reports, rows.get(name, []))
            for name, file in zip(names, files, strict=True)
        ]
        facts = _build_facts(run, machines)
        blocks = [[one.placed.open_blocks for one in rows.get(machine.machine, [])] for machine in machines]
        write_run_clocks(output, facts, machines, blocks, force=force)


def _build_facts(run: Run, machines: Sequence[MachineClocks]) -> RunClocks:
    used = run.inputs[0].part.options
    return RunClocks(
        format=FORMAT,
        made_by=version("nsys-pp"),
        part_format=PART_FORMAT,
        options=replace(PartOptions(), **{name: getattr(used, name) for name in TABLE_OPTION_NAMES}),
        zero_ns=run.clocks.zero_ns,
        is_utc=run.clocks.is_utc,
        attributes=run.clocks.attributes,
        machines=[
            MachineReports(
                machine=machine.machine, report_ids=[report.report_id for report in machine.reports]
            )
            for machine in machines
        ],
    )


def _describe_run(run: Run, rows: Sequence[_Rows]) -> MachineClocks:
    return MachineClocks(
        machine=RUN,
        order=-1,
        description="",
        file_name="",
        ranks=[],
        steps=run.training.steps["step"].unique().sort().drop_nulls().to_list(),
        reports=[],
        rows_by_bus={},
        training=_list_training(run, rows),
    )


def _describe_machine(
    run: Run,
    layout: TraceLayout,
    machine: str,
    file_name: str,
    reports: Mapping[Path, PlacedReport],
    rows: Sequence[_Rows],
) -> MachineClocks:
    numbers = run.roster.filter(pl.col("machine") == machine)["report"].unique().sort().to_list()
    own = {number: run.inputs[number] for number in numbers}
    placed = {recorded.path: reports[recorded.path] for recorded in own.values()}
    first = next(iter(placed.values())).placement
    keys = {(machine, row.name) for report in placed.values() for row in report.placement.rows.values()}
    piece = describe_piece(run, machine, [], list_owners(run, placed), keys)
    return MachineClocks(
        machine=machine,
        order=first.machine_order,
        description=first.machine_description,
        file_name=file_name,
        ranks=list(piece.ranks),
        steps=list(piece.steps),
        reports=[
            ReportClock(
                report_id=recorded.identity.fingerprint,
                number=number,
                from_ns=placed[recorded.path].placement.clock.from_ns.tolist(),
                offset_ns=placed[recorded.path].placement.clock.offset_ns.tolist(),
                rows=_list_gpu_rows(placed[recorded.path], set(recorded.identity.devices["gpu"])),
                attributes=_list_own_attributes(run, placed[recorded.path]),
            )
            for number, recorded in own.items()
        ],
        rows_by_bus=layout.list_rows_by_bus(machine),
        training=_list_training(run, rows),
    )


def _list_gpu_rows(report: PlacedReport, gpus: set[str]) -> dict[str, Row]:
    return {name: row for name, row in report.placement.rows.items() if name in gpus}


def _list_own_attributes(run: Run, report: PlacedReport) -> dict[str, str]:
    shared = run.clocks.attributes
    return {name: text for name, text in report.placement.attributes.items() if name not in shared}


def _list_training(run: Run, rows: Sequence[_Rows]) -> list[TrainingRows]:
    return [
        TrainingRows(
            number=one.number,
            encoded=one.placed.encoded,
            rows=dict(one.placed.placement.rows),
            attributes=_list_own_attributes(run, one.placed),
        )
        for one in rows
    ]
