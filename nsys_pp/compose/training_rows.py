"""Where the rows of a training stand in a trace, beside those of its reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsys_pp.compose.placing import CPU_ORDER
from nsys_pp.compose.report_view import Window
from nsys_pp.compose.trace_layout import PlacedDrawing, Plan, Shown
from nsys_pp.frames.clock import Clock
from nsys_pp.frames.training import Training
from nsys_pp.write.trace.placement import Placement, Row
from nsys_pp.write.trace.training_rows import RUN, GpuRow, draw_training


def place_training(
    training: Training, plan: Plan, shown: Sequence[Shown], *, window: Window
) -> list[PlacedDrawing]:
    """Draw a training on the rows of the reports that are shown.

    Args:
        training: The run.
        plan: Who is who.
        shown: Each report of `plan`, in order.
        window: Draw what reaches into it, on the trace's clock.

    Returns:
        A drawing for the run and for each machine; none without jobs and messages.
    """
    rows = _gpu_rows(training, plan, shown)
    places = {lane: GpuRow(machine=one.machine, row=row.name) for lane, (one, row) in rows.items()}
    drawings = draw_training(training, places, start_ns=window.start_ns, end_ns=window.end_ns)
    first = shown[0].placement
    placed = []
    for machine, drawing in drawings.items():
        here = [(one, row) for one, row in rows.values() if one.machine == machine]
        if machine == RUN:
            names = {
                track.path[0]: Row(name=track.name, order=CPU_ORDER + track.rank) for track in drawing.tracks
            }
            placement = replace(first, machine=RUN, machine_order=-1, machine_description="", rows=names)
        else:
            placement = replace(here[0][0], rows={row.name: row for _, row in here})
        placed.append(PlacedDrawing(drawing=drawing, placement=replace(placement, clock=Clock.fixed(0))))
    return placed


def _gpu_rows(training: Training, plan: Plan, shown: Sequence[Shown]) -> dict[int, tuple[Placement, Row]]:
    """Find the row of each lane; lanes that are not drawn are left out."""
    locals_ = [
        {
            (process, device): gpu
            for process, device, gpu in one.identity.devices[["process_key", "device_id", "gpu"]].rows()
        }
        for one in plan.given
    ]
    found = {}
    for lane, report, *key in training.lanes.select("lane", "report", "process_key", "device_id").rows():
        placement = shown[report].placement
        row = placement.rows.get(locals_[report].get(tuple(key), ""))
        if row is not None:
            found[lane] = (placement, row)
    return found
