"""Names of all tables, and where each is: an entry is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_pp.registry import Registry

if TYPE_CHECKING:
    import polars as pl

    from nsys_pp.frames.aggregates import Summary
    from nsys_pp.frames.table import Table
    from nsys_pp.frames.training import Training
    from nsys_pp.tables.training import Work

# Modules and names of tables, in the order in which they are written.
_TRAINING = {
    "steps": "nsys_pp.tables.training:STEP_TABLE",
    "coverage": "nsys_pp.tables.training:COVERAGE_TABLE",
    "stages": "nsys_pp.tables.training:STAGE_TABLE",
    "lanes": "nsys_pp.tables.training:LANE_TABLE",
    "kinds": "nsys_pp.tables.training:KIND_TABLE",
    "families": "nsys_pp.tables.training:FAMILY_TABLE",
    "step_families": "nsys_pp.tables.training:STEP_FAMILY_TABLE",
    "stage_families": "nsys_pp.tables.training:STAGE_FAMILY_TABLE",
    "iterations": "nsys_pp.tables.training:ITERATION_TABLE",
    "iteration_families": "nsys_pp.tables.training:ITERATION_FAMILY_TABLE",
    "schedule": "nsys_pp.tables.training:SCHEDULE_TABLE",
    "gaps": "nsys_pp.tables.training:GAP_TABLE",
    "stragglers": "nsys_pp.tables.verdict:STRAGGLER_TABLE",
    "links": "nsys_pp.tables.training:LINK_TABLE",
    "critical": "nsys_pp.tables.training:CRITICAL_TABLE",
    "critical_path": "nsys_pp.tables.training:PATH_TABLE",
}

# Tables by name, in the order in which they are written.
TRAINING_TABLES: Registry[Table[[Training]]] = Registry(_TRAINING)

# Tables that are built only if they are named. Reports are read once more for them
# (`nsys_pp.frames.training`).
REQUESTED_TABLES: Registry[Table[[Training, pl.DataFrame]]] = Registry(
    {
        "metrics": "nsys_pp.tables.training:METRIC_TABLE",
        "step_metrics": "nsys_pp.tables.training:STEP_METRIC_TABLE",
        "network": "nsys_pp.tables.training:NETWORK_TABLE",
        "host": "nsys_pp.tables.training:HOST_TABLE",
        "overhead": "nsys_pp.tables.training:OVERHEAD_TABLE",
    }
)

# Tables that also need the work of a step.
WORK_TABLES: Registry[Table[[Training, Work]]] = Registry(
    {"utilisation": "nsys_pp.tables.training:UTILISATION_TABLE"}
)

_SUMMARY = {
    "overview": "nsys_pp.tables.summary:OVERVIEW_TABLE",
    "device": "nsys_pp.tables.summary:DEVICE_TABLE",
    "model": "nsys_pp.tables.summary:MODEL_TABLE",
    "distribution": "nsys_pp.tables.summary:DISTRIBUTION_TABLE",
    "operators": "nsys_pp.tables.summary:OPERATOR_TABLE",
    "ranges": "nsys_pp.tables.summary:RANGE_TABLE",
    "families": "nsys_pp.tables.summary:FAMILY_TABLE",
    "kernels": "nsys_pp.tables.summary:KERNEL_TABLE",
    "base_kernels": "nsys_pp.tables.summary:BASE_KERNEL_TABLE",
    "copies": "nsys_pp.tables.summary:COPY_TABLE",
    "memory": "nsys_pp.tables.summary:MEMORY_TABLE",
    "communication": "nsys_pp.tables.summary:COMMUNICATION_TABLE",
    "idle": "nsys_pp.tables.summary:IDLE_TABLE",
    "launches": "nsys_pp.tables.summary:LAUNCH_TABLE",
    "cuda": "nsys_pp.tables.summary:CUDA_TABLE",
    "os": "nsys_pp.tables.summary:OS_TABLE",
    "sync": "nsys_pp.tables.summary:SYNC_TABLE",
}
# Tables by name, in the order in which they are written.
SUMMARY_TABLES: Registry[Table[[Summary, str]]] = Registry(_SUMMARY)

# Tables that Paddle's Profiler has too, in its order.
PADDLE_LAYOUTS = {
    name: f"nsys_pp.tables.paddle:PADDLE_{table}"
    for name, table in {
        "device": "DEVICE_TABLE",
        "overview": "OVERVIEW_TABLE",
        "model": "MODEL_TABLE",
        "distribution": "DISTRIBUTION_LAYOUT",
        "operators": "OPERATOR_TABLE",
        "kernels": "KERNEL_TABLE",
        "copies": "COPY_TABLE",
        "ranges": "RANGE_TABLE",
        "memory": "MEMORY_TABLE",
    }.items()
}
# The same tables, in Paddle's layout where it has them, and with communication counted as there.
PADDLE_TABLES: Registry[Table[[Summary, str]]] = Registry({**_SUMMARY, **PADDLE_LAYOUTS})

# Name of the findings, which other commands show, too.
VERDICT = "verdict"

# Tables by name, in the order in which they are written.
TABLES: Registry[Table[[Training]]] = Registry({VERDICT: "nsys_pp.tables.verdict:VERDICT_TABLE", **_TRAINING})

# Names of the tables of a comparison (`nsys_pp.COMPARE_TABLES`), in the order in which they are written.
COMPARE_NAMES = (
    *(VERDICT, "comparability", "steps", "bubbles", "stages", "ranks", "links"),
    *("kinds", "families", "kernels"),
)
