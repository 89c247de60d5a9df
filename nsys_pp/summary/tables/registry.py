"""Every table of a summary, by name."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_pp.summary.tables.calls import CUDA_TABLE, OS_TABLE
from nsys_pp.summary.tables.communication import COMMUNICATION_TABLE
from nsys_pp.summary.tables.copies import COPY_TABLE
from nsys_pp.summary.tables.devices import DEVICE_TABLE
from nsys_pp.summary.tables.distribution import DISTRIBUTION_TABLE
from nsys_pp.summary.tables.idle import IDLE_TABLE
from nsys_pp.summary.tables.kernels import BASE_KERNEL_TABLE, KERNEL_TABLE
from nsys_pp.summary.tables.launches import LAUNCH_TABLE
from nsys_pp.summary.tables.memory import MEMORY_TABLE
from nsys_pp.summary.tables.model import MODEL_TABLE
from nsys_pp.summary.tables.operators import OPERATOR_TABLE
from nsys_pp.summary.tables.overview import OVERVIEW_TABLE
from nsys_pp.summary.tables.ranges import RANGE_TABLE
from nsys_pp.summary.tables.sync import SYNC_TABLE
from nsys_pp.summary.tables.table import SummaryTable

TABLES: Mapping[str, SummaryTable] = {
    "overview": OVERVIEW_TABLE,
    "device": DEVICE_TABLE,
    "model": MODEL_TABLE,
    "distribution": DISTRIBUTION_TABLE,
    "operators": OPERATOR_TABLE,
    "ranges": RANGE_TABLE,
    "kernels": KERNEL_TABLE,
    "base_kernels": BASE_KERNEL_TABLE,
    "copies": COPY_TABLE,
    "memory": MEMORY_TABLE,
    "communication": COMMUNICATION_TABLE,
    "idle": IDLE_TABLE,
    "launches": LAUNCH_TABLE,
    "cuda": CUDA_TABLE,
    "os": OS_TABLE,
    "sync": SYNC_TABLE,
}
"""In the order in which they are shown."""
