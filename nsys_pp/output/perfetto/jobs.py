"""A trace of the steps, jobs and messages of a training, without the rows of reports."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.part import Row
from nsys_pp.frames.training import Training
from nsys_pp.output.files import replace_file
from nsys_pp.output.formats import ExportedFile, ExportOptions, ExportResult
from nsys_pp.output.perfetto.trace import PlacedReport, encode_drawing, write_perfetto
from nsys_pp.output.trace.drawing import Placement
from nsys_pp.output.trace.run_tracks import GpuRow, draw_training


def export_trace(training: Training, path: Path, options: ExportOptions) -> ExportResult:
    """Write a trace: a row per machine and lane, in the order of lanes; reads `force`.

    Raises:
        MissingDataError: There is nothing to draw.
    """
    lanes = training.lanes.select("lane", "machine", "gpu", "label").rows()
    rows = {
        lane: GpuRow(machine=machine or "", row=" · ".join(filter(None, (label, gpu))))
        for lane, machine, gpu, label in lanes
    }
    drawings, placed = draw_training(training, rows), []
    if not drawings:
        raise MissingDataError(
            "there are no jobs, messages or steps by ranges to draw", "draw a chart instead"
        )
    for number, machine in enumerate(dict.fromkeys(row.machine for row in rows.values())):
        placement = Placement(
            machine=machine,
            machine_order=number,
            rows={row.row: Row(name=row.row, order=lane) for lane, row in rows.items()},
            clock=Clock.fixed(0),
            zero_ns=training.zero_ns,
        )
        blocks = BytesIO()
        encoded = encode_drawing(drawings[machine], blocks)
        placed.append(
            PlacedReport(
                encoded=encoded, placement=placement, open_blocks=partial(BytesIO, blocks.getvalue())
            )
        )
    with replace_file(path, force=options.force) as target, target.open("wb") as stream:
        stream.writelines(write_perfetto(placed))
    return ExportResult(files=(ExportedFile(path=path, row_count=len(training.jobs)),))
