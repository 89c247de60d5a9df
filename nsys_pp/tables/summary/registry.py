"""Every table of a summary, by name."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_pp.tables.summary.calls import CUDA_TABLE, OS_TABLE
from nsys_pp.tables.summary.communication import COMMUNICATION_TABLE
from nsys_pp.tables.summary.copies import COPY_TABLE
from nsys_pp.tables.summary.devices import DEVICE_TABLE
from nsys_pp.tables.summary.distribution import DISTRIBUTION_TABLE
from nsys_pp.tables.summary.idle import IDLE_TABLE
from nsys_pp.tables.summary.kernels import BASE_KERNEL_TABLE, KERNEL_TABLE
from nsys_pp.tables.summary.launches import LAUNCH_TABLE
from nsys_pp.tables.summary.memory import MEMORY_TABLE
from nsys_pp.tables.summary.model import MODEL_TABLE
from nsys_pp.tables.summary.operators import OPERATOR_TABLE
from nsys_pp.tables.summary.overview import OVERVIEW_TABLE
from nsys_pp.tables.summary.ranges import RANGE_TABLE
from nsys_pp.tables.summary.sync import SYNC_TABLE
from nsys_pp.tables.summary.table import SummaryTable

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
