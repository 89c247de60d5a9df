"""The tables of a summary."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Table, index_tables
from nsys_pp.tables.summary.calls import CUDA_TABLE, OS_TABLE
from nsys_pp.tables.summary.communication import COMMUNICATION_TABLE
from nsys_pp.tables.summary.copies import COPY_TABLE
from nsys_pp.tables.summary.devices import DEVICE_TABLE
from nsys_pp.tables.summary.distribution import DISTRIBUTION_TABLE, PADDLE_DISTRIBUTION_TABLE
from nsys_pp.tables.summary.families import FAMILY_TABLE
from nsys_pp.tables.summary.idle import IDLE_TABLE
from nsys_pp.tables.summary.kernels import BASE_KERNEL_TABLE, KERNEL_TABLE
from nsys_pp.tables.summary.launches import LAUNCH_TABLE
from nsys_pp.tables.summary.memory import MEMORY_TABLE
from nsys_pp.tables.summary.model import MODEL_TABLE
from nsys_pp.tables.summary.operators import OPERATOR_TABLE
from nsys_pp.tables.summary.overview import OVERVIEW_TABLE
from nsys_pp.tables.summary.ranges import RANGE_TABLE
from nsys_pp.tables.summary.sync import SYNC_TABLE
from nsys_pp.tables.summary.table import TableOptions

TABLES: Mapping[str, Table[[Summary, TableOptions]]] = index_tables(
    OVERVIEW_TABLE,
    DEVICE_TABLE,
    MODEL_TABLE,
    DISTRIBUTION_TABLE,
    OPERATOR_TABLE,
    RANGE_TABLE,
    FAMILY_TABLE,
    KERNEL_TABLE,
    BASE_KERNEL_TABLE,
    COPY_TABLE,
    MEMORY_TABLE,
    COMMUNICATION_TABLE,
    IDLE_TABLE,
    LAUNCH_TABLE,
    CUDA_TABLE,
    OS_TABLE,
    SYNC_TABLE,
)
"""Tables by name, in the order in which they are written."""

PADDLE_TABLES: Mapping[str, Table[[Summary, TableOptions]]] = {
    **TABLES,
    PADDLE_DISTRIBUTION_TABLE.name: PADDLE_DISTRIBUTION_TABLE,
}
"""The same tables, with communication counted as in Paddle's tables."""
