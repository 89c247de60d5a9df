"""The tables of a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_pp.registry import Registry

if TYPE_CHECKING:
    from nsys_pp.frames.aggregates import Summary
    from nsys_pp.frames.table import Table
    from nsys_pp.tables.summary.table import TableOptions

_SOURCES = {
    "overview": "nsys_pp.tables.summary.overview:OVERVIEW_TABLE",
    "device": "nsys_pp.tables.summary.devices:DEVICE_TABLE",
    "model": "nsys_pp.tables.summary.model:MODEL_TABLE",
    "distribution": "nsys_pp.tables.summary.distribution:DISTRIBUTION_TABLE",
    "operators": "nsys_pp.tables.summary.operators:OPERATOR_TABLE",
    "ranges": "nsys_pp.tables.summary.ranges:RANGE_TABLE",
    "families": "nsys_pp.tables.summary.families:FAMILY_TABLE",
    "kernels": "nsys_pp.tables.summary.kernels:KERNEL_TABLE",
    "base_kernels": "nsys_pp.tables.summary.kernels:BASE_KERNEL_TABLE",
    "copies": "nsys_pp.tables.summary.copies:COPY_TABLE",
    "memory": "nsys_pp.tables.summary.memory:MEMORY_TABLE",
    "communication": "nsys_pp.tables.summary.communication:COMMUNICATION_TABLE",
    "idle": "nsys_pp.tables.summary.idle:IDLE_TABLE",
    "launches": "nsys_pp.tables.summary.launches:LAUNCH_TABLE",
    "cuda": "nsys_pp.tables.summary.calls:CUDA_TABLE",
    "os": "nsys_pp.tables.summary.calls:OS_TABLE",
    "sync": "nsys_pp.tables.summary.sync:SYNC_TABLE",
}
TABLES: Registry[Table[[Summary, TableOptions]]] = Registry(_SOURCES)
"""Tables by name, in the order in which they are written."""

PADDLE_LAYOUTS = {
    name: f"nsys_pp.tables.summary.paddle:PADDLE_{table}"
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
"""Tables that Paddle's Profiler has too, in its order."""
PADDLE_TABLES: Registry[Table[[Summary, TableOptions]]] = Registry({**_SOURCES, **PADDLE_LAYOUTS})
"""The same tables, in Paddle's layout where it has them, and with communication counted as there."""
