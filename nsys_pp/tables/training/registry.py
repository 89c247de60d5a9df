"""The tables of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_pp.registry import Registry

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.frames.table import Table
    from nsys_pp.frames.training import Training
    from nsys_pp.tables.training.utilisation_table import Work

SOURCES = {
    "steps": "nsys_pp.tables.training.step_table:STEP_TABLE",
    "stages": "nsys_pp.tables.training.stage_table:STAGE_TABLE",
    "lanes": "nsys_pp.tables.training.stage_table:LANE_TABLE",
    "kinds": "nsys_pp.tables.training.kind_table:KIND_TABLE",
    "families": "nsys_pp.tables.training.family_table:FAMILY_TABLE",
    "step_families": "nsys_pp.tables.training.family_table:STEP_FAMILY_TABLE",
    "stage_families": "nsys_pp.tables.training.family_table:STAGE_FAMILY_TABLE",
    "iterations": "nsys_pp.tables.training.iteration_table:ITERATION_TABLE",
    "iteration_families": "nsys_pp.tables.training.iteration_table:ITERATION_FAMILY_TABLE",
    "schedule": "nsys_pp.tables.training.schedule_table:SCHEDULE_TABLE",
    "gaps": "nsys_pp.tables.training.gap_table:GAP_TABLE",
    "stragglers": "nsys_pp.tables.training.stragglers:STRAGGLER_TABLE",
    "links": "nsys_pp.tables.training.link_table:LINK_TABLE",
    "critical": "nsys_pp.tables.training.critical_table:CRITICAL_TABLE",
    "critical_path": "nsys_pp.tables.training.critical_table:PATH_TABLE",
}
"""Modules and names of tables, in the order in which they are written."""

TABLES: Registry[Table[[Training]]] = Registry(SOURCES)
"""Tables by name, in the order in which they are written."""

REQUESTED_TABLES: Registry[Table[[Training, pl.DataFrame]]] = Registry(
    {
        "metrics": "nsys_pp.tables.training.metric_table:METRIC_TABLE",
        "step_metrics": "nsys_pp.tables.training.metric_table:STEP_METRIC_TABLE",
        "network": "nsys_pp.tables.training.network_table:NETWORK_TABLE",
        "host": "nsys_pp.tables.training.host_table:HOST_TABLE",
        "overhead": "nsys_pp.tables.training.overhead_table:OVERHEAD_TABLE",
    }
)
"""Tables that are built only if they are named: reports are read once more for them (`nsys_pp.frames.requested`)."""

WORK_TABLES: Registry[Table[[Training, Work]]] = Registry(
    {"utilisation": "nsys_pp.tables.training.utilisation_table:UTILISATION_TABLE"}
)
"""Tables that also need the work of a step."""
